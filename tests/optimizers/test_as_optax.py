"""PopART's optimizers as optax transformations do what the rules do."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest

from popart_jax.optimizers import SGD, Adam, Adaptive, as_optax
from popart_jax.optimizers.as_optax import with_values
from popart_jax.optimizers.rules import Reduction

from .harness import run_rule

MAKERS = {
    "sgd": lambda rate: SGD({"defaultLearningRate": (rate, False), "defaultMomentum": (0.9, True)}),
    "adam": lambda rate: Adam({"defaultLearningRate": (rate, False)}),
    "adaptive": lambda rate: Adaptive({"defaultLearningRate": (rate, False)}),
}


@pytest.mark.parametrize("name", MAKERS)
def test_same_steps(name):
    make, rates = MAKERS[name], (0.1, 0.05, 0.02)
    rng = np.random.default_rng(0)
    w, grads = rng.normal(size=(4,)).astype(np.float32), rng.normal(size=(3, 1, 1, 4)).astype(np.float32)
    transformation = as_optax(make(rates[0]))
    params = {"w": jax.numpy.asarray(w)}
    state = transformation.init(params)
    update = jax.jit(transformation.update)
    for rate, g in zip(rates, grads, strict=True):
        state = with_values(state, make(rate), params)
        steps, state = update({"w": g[0, 0]}, state, params)
        params = optax.apply_updates(params, steps)
    expected, _ = run_rule([make(r) for r in rates], grads, w, Reduction())
    np.testing.assert_allclose(params["w"], expected, rtol=1e-5)
    assert update._cache_size() == 1
