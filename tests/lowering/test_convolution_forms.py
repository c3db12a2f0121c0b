"""The forms of convolutions that serve XLA:CPU against XLA's own, in float64, with their gradients."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax

from popart_jax.lowering.kernels.convolution import block_diagonal, convolution, merged
from popart_jax.ops import kernels

from ..platforms import ON_CPUS

CASES = {
    "few groups": ((2, 9, 8, 6), (3, 3, 3, 8), 2, (1, 1), ((1, 1), (1, 1)), (1, 1)),
    "many groups": ((2, 7, 6, 64), (3, 2, 1, 64), 64, (2, 1), ((1, 0), (0, 1)), (1, 1)),
    "groups that multiply": ((2, 7, 6, 8), (3, 3, 1, 24), 8, (1, 2), ((2, 2), (2, 2)), (2, 1)),
    "many groups of places": ((2, 7, 6, 24), (1, 1, 3, 16), 8, (2, 1), ((0, 0), (0, 0)), (1, 1)),
    "many groups of places, padded": ((2, 7, 6, 24), (1, 1, 3, 16), 8, (1, 1), ((1, 0), (0, 2)), (1, 1)),
    "many groups of places in one dimension": ((1, 9, 18), (1, 2, 9), 9, (2,), ((0, 0),), (3,)),
    "many groups of places in a volume": ((2, 3, 4, 5, 16), (1, 1, 1, 2, 8), 8, (1, 2, 2), ((0, 0),) * 3, (1, 1, 1)),
    "dilated groups of one dimension": ((2, 15, 32), (3, 16, 48), 2, (1,), ((2, 2),), (2,)),
    "volume": ((2, 7, 6, 5, 3), (3, 2, 3, 3, 4), 1, (1, 1, 1), ((1, 1), (0, 1), (1, 1)), (1, 1, 1)),
    "strided, dilated, cropped volume": (
        (1, 9, 6, 5, 3),
        (3, 2, 1, 3, 4),
        1,
        (2, 1, 2),
        ((2, -1), (0, 0), (1, 0)),
        (2, 1, 1),
    ),
    "volume in groups": ((2, 5, 6, 5, 4), (2, 2, 2, 2, 6), 2, (1, 2, 1), ((1, 0), (0, 0), (0, 0)), (1, 1, 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case):
    data, weights, group, strides, pads, dilations = CASES[case]
    rng = np.random.default_rng(0)
    spatial = "DHW"[-len(strides) :]
    names = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")
    with jax.enable_x64(True):
        x, w = rng.normal(size=data), rng.normal(size=weights)
        y, pull = jax.vjp(
            lambda x, w: lax.conv_general_dilated(
                x, w, strides, pads, None, dilations, names, feature_group_count=group
            ),
            x,
            w,
        )
        ours, our_pull = jax.vjp(lambda x, w: convolution(x, w, group, strides, pads, dilations), x, w)
        g = rng.normal(size=y.shape)
        np.testing.assert_allclose(ours, y, rtol=1e-12, atol=1e-12)
        for mine, expected in zip(our_pull(g), pull(g), strict=True):
            np.testing.assert_allclose(mine, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("group", "channels", "together"), [(32, 4, 4), (32, 16, 2), (4, 32, 1), (512, 1, 32), (3, 2, 3), (7, 5, 7)]
)
def test_how_many_groups_go_together(group, channels, together):
    assert merged(group, channels) == together


def test_block_diagonal():
    w = np.arange(1, 13, dtype=np.float32).reshape(1, 2, 6)
    (found,) = block_diagonal(w, 3)
    expected = np.zeros((6, 6))
    for i in range(3):
        expected[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = w[0, :, 2 * i : 2 * i + 2]
    np.testing.assert_array_equal(found, expected)


@ON_CPUS
def test_no_grouped_convolution_is_left_for_the_cpu():
    def step(x, w):
        return (convolution(x, w, 8, (1, 1), ((1, 1), (1, 1)), (1, 1)) ** 2).sum()

    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in ((1, 6, 6, 32), (3, 3, 4, 32))]
    text = str(jax.make_jaxpr(jax.grad(step, (0, 1)))(*shapes))
    assert "feature_group_count=8" not in text
    with kernels.tracing_for(kernels.IPU):
        assert "feature_group_count=8" in str(jax.make_jaxpr(step)(*shapes))
