"""Weights that were only moved about can be read back from what was made of them, as views."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from popart_jax.lowering.on_load.weight_views import inverse_views
from popart_jax.preparation import view_as

RNG = np.random.default_rng(0)
A, B, C = (RNG.normal(size=s).astype(np.float32) for s in ((2, 3, 1, 4), (3, 5), (7,)))


def program(a, b, c):
    return a.transpose(2, 3, 1, 0).reshape(4, 3, 2), b.T * 2, c + 1, jnp.squeeze(c[None], 0)


def test_the_way_back() -> None:
    closed = jax.make_jaxpr(program)(A, B, C)
    results = [np.asarray(x) for x in program(A, B, C)]
    found = inverse_views(closed)
    assert set(found) <= {0, 2}
    for argument, (result, moves) in found.items():
        back = view_as(results[result], moves)
        np.testing.assert_array_equal(back, (A, B, C)[argument])
        assert np.may_share_memory(back, results[result])
    assert 0 in found
