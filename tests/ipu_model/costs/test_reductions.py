"""Reductions in programs: awkward sizes cost about as much as the next regular ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import ipu_model


def cycles(fn, *shape, dtype="float16"):
    return ipu_model.profile(fn, jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))).total_cycles


@pytest.mark.parametrize(
    ("fn", "axis", "odd", "even"),
    [
        (jnp.max, 0, (64, 129), (64, 192)),
        (jnp.sum, 0, (64, 65), (64, 128)),
        (jnp.max, 1, (1473, 64), (2944, 64)),
        (jnp.argmax, 1, (64, 31), (64, 32)),
        (jnp.min, 0, (3312, 27847), (3312, 27848)),  # 125 kB on a tile
        (jnp.max, 0, (449, 19805), (449, 19808)),
    ],
)
def test_rows_that_fill_no_tile_cost_no_more_than_longer_ones(fn, axis, odd, even):
    # the library's plan of a tensor dealt out element by element takes two to twenty times as long
    assert cycles(lambda x: fn(x, axis=axis), *odd) <= 1.01 * cycles(lambda x: fn(x, axis=axis), *even)


@pytest.mark.parametrize("shape", [(1, 2944), (64, 1024)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_largest_is_found_about_as_fast_as_the_sum(shape, dtype):
    # results of single tiles are gathered word by word, so that one vertex takes them in a run
    most, total = (cycles(lambda x, fn=fn: fn(x, axis=1), *shape, dtype=dtype) for fn in (jnp.max, jnp.sum))
    assert most < 1.5 * total
