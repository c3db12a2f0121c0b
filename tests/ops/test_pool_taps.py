"""Windows of strided pools: the taps of unpadded data are those of padded data."""

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from popart_jax.ops import pooling
from popart_jax.ops.windows import taps, window


@pytest.mark.parametrize(
    ("kernel", "strides", "dilations", "pads", "ceil", "size"),
    [
        ((3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 0, (7, 8)),
        ((2, 3), (3, 2), (1, 1), (1, 0, 0, 2), 0, (6, 5)),
        ((3, 2), (2, 4), (2, 1), (2, 1, 3, 0), 0, (6, 9)),
        ((2, 2), (2, 2), (1, 1), (0, 1, 0, 0), 1, (7, 7)),
        ((1, 1), (4, 2), (1, 1), (5, 0, 3, 0), 0, (3, 5)),
    ],
)
def test_taps_of_unpadded_data(kernel, strides, dilations, pads, ceil, size):
    win = window(size, kernel, strides, dilations, pads, "NOTSET", ceil)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, *size)), jnp.float32)
    expected = jax.jit(lambda v: reduce(jnp.maximum, taps(pooling._padded(v, win, -np.inf), win)))(x)
    found = jax.jit(lambda v: reduce(jnp.maximum, pooling._taps_of_unpadded(v, win, -np.inf)))(x)
    np.testing.assert_array_equal(found, expected)
