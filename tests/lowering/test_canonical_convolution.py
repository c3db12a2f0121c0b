"""The hand-written gradients of the channels-last convolution against JAX's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from popart_jax.lowering.kernels.canonical_convolution import canonical_convolution, canonical_transposed, layout


def agree(ours, theirs, *operands):
    """Values and gradients of two functions are the same."""
    like = jax.eval_shape(theirs, *operands)
    g = np.random.default_rng(1).normal(size=like.shape).astype(np.float32)

    def both(fn):
        values, pull = jax.vjp(fn, *operands)
        return values, pull(g)

    (found, ours_back), (expected, back) = (jax.jit(both, static_argnums=0)(fn) for fn in (ours, theirs))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for mine, other in zip(ours_back, back, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("pads", [((0, 0), (0, 0)), ((1, 1), (2, 0)), ((3, 3), (1, 2))])
@pytest.mark.parametrize("dilations", [(1, 1), (2, 3)])
def test_gradients(strides, pads, dilations):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 11, 12, 3)).astype(np.float32)
    w = rng.normal(size=(3, 2, 3, 4)).astype(np.float32)

    def plain(x, w):
        return lax.conv_general_dilated(x, w, strides, pads, None, dilations, ("NHWC", "HWIO", "NHWC"))

    agree(lambda x, w: canonical_convolution(x, w, strides, pads, dilations), plain, x, w)


@pytest.mark.parametrize("spatial", [1, 3])
def test_gradients_with_other_numbers_of_spatial_dimensions(spatial):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, *(9, 7, 6)[:spatial], 3)).astype(np.float32)
    w = rng.normal(size=(*(3, 2, 3)[:spatial], 3, 4)).astype(np.float32)
    strides, pads, dilations = (2, 1, 3)[:spatial], ((1, 2), (0, 1), (2, 0))[:spatial], (1, 3, 1)[:spatial]
    names = "DHW"[:spatial]

    def plain(x, w):
        order = (f"N{names}C", f"{names}IO", f"N{names}C")
        return lax.conv_general_dilated(x, w, strides, pads, None, dilations, order)

    agree(lambda x, w: canonical_convolution(x, w, strides, pads, dilations), plain, x, w)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("pad", [(1, 1), (2, 0), (0, 3), (4, 5), (0, 0)])
def test_gradients_of_many_channels_to_few(spatial, pad):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, *(5, 7, 6)[:spatial], 9)).astype(np.float32)
    w = rng.normal(size=(*(3, 2, 3)[:spatial], 9, 2)).astype(np.float32)
    how = (1,) * spatial, (pad, (1, 1), (2, 1))[:spatial]

    def plain(x, w):
        return lax.conv_general_dilated(x, w, *how, None, None, layout(x.ndim))

    agree(lambda x, w: canonical_convolution(x, w, *how, (1,) * spatial), plain, x, w)


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("pads", [((0, 0), (0, 0)), ((1, 0), (2, -1))])
@pytest.mark.parametrize("dilations", [(1, 1), (1, 2)])
def test_the_transposed_convolution_is_the_transpose(strides, pads, dilations):
    rng = np.random.default_rng(0)
    spatial, w = (11, 12), rng.normal(size=(3, 2, 3, 4)).astype(np.float32)

    def plain(x, w):
        return lax.conv_general_dilated(x, w, strides, pads, None, dilations, ("NHWC", "HWIO", "NHWC"))

    def expected(y, w):
        return jax.linear_transpose(lambda x: plain(x, w), jax.ShapeDtypeStruct((2, *spatial, 3), np.float32))(y)[0]

    like = jax.eval_shape(plain, jax.ShapeDtypeStruct((2, *spatial, 3), np.float32), w)
    y = rng.normal(size=like.shape).astype(np.float32)
    agree(lambda y, w: canonical_transposed(y, w, spatial, strides, pads, dilations), expected, y, w)


@pytest.mark.parametrize(("size", "window"), [(1, 3), (2, 3), (4, 2)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_windows_larger_than_the_data(size: int, window: int, dilation: int) -> None:
    """Their padding is done before; values and gradients are those of XLA's own convolution.

    The result of a padded even window is larger than the data, and in the gradient of the weights it is the window.
    """
    rng = np.random.default_rng(size)
    x = jnp.asarray(rng.normal(size=(2, size, size, 5)), jnp.float32)
    w = jnp.asarray(rng.normal(size=(window, window, 5, 4)), jnp.float32)
    pads, apart = ((dilation, dilation),) * 2, (dilation, dilation)

    def plain(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sin(lax.conv_general_dilated(x, w, (1, 1), pads, None, apart, layout(4))).sum()

    def ours(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sin(canonical_convolution(x, w, (1, 1), pads, apart)).sum()

    assert "optimization_barrier" in str(jax.make_jaxpr(jax.grad(ours, 1))(x, w))
    for mine, theirs in zip(jax.grad(ours, (0, 1))(x, w), jax.grad(plain, (0, 1))(x, w), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours(x, w), plain(x, w), rtol=1e-5)
