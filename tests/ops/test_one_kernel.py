"""Random operators that networks have in every layer: XLA compiles one kernel for all that are equal."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from popart_jax.lowering.rounding import to_half
from popart_jax.ops.dropout import kept_places

from ..platforms import ON_CPUS


def _rounded(x: Any, key: Any) -> Any:
    return to_half(x, key).astype(np.float32)


def _dropped(x: Any, key: Any) -> Any:
    return jnp.where(kept_places(key, 0.75, x.shape), x, 0)


@ON_CPUS
@pytest.mark.parametrize("operator", [_rounded, _dropped])
def test_equal_operators_share_a_kernel(operator):
    """Each kernel takes about 0.1 s to compile; merged with its surroundings, each of three would be another."""

    def layers(x, key):
        for i in range(3):
            x = jnp.tanh(operator(x, jax.random.fold_in(key, i))) * (0.5 + i)
        return x

    x, key = jnp.ones((4, 5)), jax.random.key(0)
    text = jax.jit(layers).lower(x, key).compile().as_text()
    bodies = [body.split("{", 1)[1] for body in text.split("\n\n") if re.search(r"xor\S* = u32\[(20|4)", body)]
    kernels = {re.sub(r"[.]\d+|[.]clone|, metadata=\{[^}]*\}", "", body) for body in bodies}
    assert len(bodies) == 3 * len(kernels) > 0


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_kept_places_are_those_of_bernoulli(share):
    key = jax.random.key(3)
    expected = jax.random.bernoulli(key, jnp.float32(share), (300, 7))
    np.testing.assert_array_equal(kept_places(key, share, (300, 7)), expected)
    batch = jax.random.split(key, 4)
    drawn = jax.vmap(lambda key: kept_places(key, share, (30,)))(batch)
    np.testing.assert_array_equal(drawn, jax.vmap(lambda key: jax.random.bernoulli(key, share, (30,)))(batch))
