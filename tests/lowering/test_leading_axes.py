"""Reductions over leading dimensions on CPUs, row after row, against NumPy in double precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from popart_jax.lowering.kernels import leading_axes
from popart_jax.ops import primitives
from popart_jax.ops.folding import largest, smallest, total
from popart_jax.ops.softmax import log_softmax, softmax

SHAPES = [
    ((2, 1030), (0,)),
    ((32, 5, 300), (0,)),
    ((1, 7, 1, 2000), (1,)),
    ((4, 6, 1025), (0, 1)),
    ((33, 16400), (0,)),
    ((1100, 16400), (0,)),
]
RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def on_cpu():
    if jax.default_backend() != "cpu":
        pytest.skip("this form is for CPUs")


def drawn(shape: Sequence[int]) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_values(shape: tuple[int, ...], axes: tuple[int, ...]):
    x = drawn(shape)
    sums, tops, bottoms = jax.jit(lambda x: [fold(x, axes) for fold in (total, largest, smallest)])(x)
    np.testing.assert_allclose(sums, x.sum(axes, np.float64, keepdims=True), rtol=0, atol=3e-4)
    np.testing.assert_array_equal(tops, x.max(axes, keepdims=True))
    np.testing.assert_array_equal(bottoms, x.min(axes, keepdims=True))


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_no_reduction_is_left_to_the_library(shape: tuple[int, ...], axes: tuple[int, ...]):
    for fold in (total, largest, smallest):
        x = jax.ShapeDtypeStruct(shape, np.float32)
        assert "reduce_" not in str(jax.make_jaxpr(lambda x, fold=fold: fold(x, axes))(x))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((8, 64, 64, 32), (0, 1, 2)), ((40, 1000), (0,)), ((8, 4, 4000), (1,)), ((8, 40), (0,)), ((8, 2000), (1,))],
)
def test_other_reductions_are(shape: tuple[int, ...], axes: tuple[int, ...]):
    assert "reduce_sum" in str(jax.make_jaxpr(lambda x: total(x, axes))(drawn(shape)))


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.float16])
def test_other_types(dtype: Any):
    x = RANDOM.integers(-9, 9, (6, 2000)).astype(dtype)
    np.testing.assert_array_equal(jax.jit(lambda x: total(x, (0,)))(x), x.sum(0, keepdims=True))


@pytest.mark.parametrize("fold", [total, largest, smallest])
def test_not_a_number_stays(fold: Any):
    x = drawn((40, 17000))
    x[35, 3] = np.nan
    assert list(np.flatnonzero(np.isnan(jax.jit(lambda x: fold(x, (0,)))(x)))) == [3]


def test_gradient_of_a_sum():
    x, weights = drawn((5, 3, 1000)), drawn((1, 3, 1000))
    found = jax.jit(jax.grad(lambda x: (jnp.square(total(x, (0,))) * weights).sum()))(x)
    wanted = 2 * x.astype(np.float64).sum(0, keepdims=True) * weights
    np.testing.assert_allclose(found, np.broadcast_to(wanted, x.shape), rtol=1e-4, atol=1e-4)


def test_forward_mode_and_batching():
    x = drawn((3, 4, 1500))
    _, tangent = jax.jvp(lambda x: total(x, (0,)), (x,), (np.ones_like(x),))
    np.testing.assert_array_equal(tangent, np.full((1, 4, 1500), 3.0))
    many = jax.vmap(lambda x: total(x, (0,)))(x)
    np.testing.assert_allclose(many, x.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 3, 1000), (3, 1000), (1, 1, 3000)])
def test_gradients_of_broadcasts_are_such_sums(shape: tuple[int, ...]):
    """As of a position embedding that is added to a batch."""
    x, small = drawn((6, *shape)[-3:]) if len(shape) == 2 else drawn((6, *shape[1:])), drawn(shape)
    weights = drawn(x.shape)

    def loss(x: Any, small: Any) -> Any:
        return (primitives.multiply(primitives.add(x, small), small) * weights).sum()

    of_x, of_small = jax.jit(jax.grad(loss, argnums=(0, 1)))(x, small)
    wide, whole = (a.astype(np.float64) for a in (x, weights))
    np.testing.assert_allclose(of_x, whole * small, rtol=1e-5)
    wanted = ((wide + 2 * small) * whole).sum(0).reshape(small.shape)
    np.testing.assert_allclose(of_small, wanted, rtol=1e-4, atol=1e-4)
    assert "name=_total" in str(jax.make_jaxpr(jax.grad(loss, argnums=1))(x, small))


def test_symbolic_sizes_are_left_alone():
    (batch,) = jax.export.symbolic_shape("b")
    x = jax.ShapeDtypeStruct((batch, 3000), np.float32)
    made = jax.export.export(jax.jit(lambda x: total(primitives.add(x, x[:1]), (0,))))(x)
    given = drawn((7, 3000))
    np.testing.assert_allclose(made.call(given)[0], (given + given[:1]).sum(0), rtol=1e-4, atol=1e-4)


def test_mismatched_shapes_are_refused_as_before():
    with pytest.raises((TypeError, ValueError), match="shape"):
        jax.jit(primitives.add)(drawn((2, 2000)), drawn((3, 2000)))


def test_kinds_of_reductions_by_size():
    slow = leading_axes._is_slow  # pyright: ignore[reportPrivateUsage]
    assert slow((8, 2000), [True, False])
    assert not slow((0, 2000), [True, False])
    assert not slow((8, 0), [True, False])


@pytest.mark.parametrize("shape", [(2, 5, 130, 130), (1, 20, 1100)])
def test_softmax_over_the_classes_of_pixels(shape: tuple[int, ...]):
    x, weights = drawn(shape), drawn(shape)
    wide, g = x.astype(np.float64), weights.astype(np.float64)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    y = powers / powers.sum(1, keepdims=True)
    for fn, wanted, of_x in (
        (softmax, y, y * (g - (y * g).sum(1, keepdims=True))),
        (log_softmax, np.log(y), g - y * g.sum(1, keepdims=True)),
    ):
        found, gradient = jax.jit(lambda x, fn=fn: (fn(x, 1), jax.grad(lambda x: (fn(x, 1) * weights).sum())(x)))(x)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)
        np.testing.assert_allclose(gradient, of_x, rtol=1e-4, atol=1e-5)
        text = str(jax.make_jaxpr(jax.grad(lambda x, fn=fn: (fn(x, 1) * weights).sum()))(x))
        assert "axes=(1,)" not in text
