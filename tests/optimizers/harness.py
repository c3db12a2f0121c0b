"""Runs the package's update rules over several steps on given gradients, without a session."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from popart_jax.ops import replicas as exchange
from popart_jax.optimizers import Optimizer
from popart_jax.optimizers.rules import Reduction, Rule, Weight, rule_for


def run_rule(
    optimizers: Sequence[Optimizer], grads: np.ndarray, w0: np.ndarray, reduction: Reduction
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Final weight and state after one update per optimizer; grads [steps, A, R, *shape]."""
    replicas = reduction.replicas
    weight = Weight("w", np.dtype(w0.dtype), replicas)
    rule: Rule = rule_for(optimizers[0], weight, reduction)
    scalars = [{s.base: s.value for s in rule_for(o, weight, reduction).scalars()} for o in optimizers]
    state = {s.role: s.init(np.zeros(()) if s.is_scalar else w0, scalars[0]).astype(s.dtype) for s in rule.slots}
    update = _update(rule, reduction, replicas)  # op by op: the operators compile once for all tests
    w = jnp.asarray(w0)
    for h, g in zip(scalars, grads, strict=True):
        w, state = update(w, state, jnp.asarray(g, w0.dtype), h)
    return np.asarray(w), {k: np.asarray(v) for k, v in state.items()}


def _update(rule: Rule, reduction: Reduction, replicas: int):
    def one(w, state, grads, h):
        def reduce(x, *, mean=False):
            return exchange.all_reduce(x, exchange.MEAN if mean else exchange.ADD)

        working = rule.start(w, state)
        grad = grads[0]
        if reduction.accumulate:
            for a in range(reduction.factor):
                working = rule.accumulate(working, grads[a], h, a)
        q, working, _ = rule.prepare(w, working, grad, h, reduce)
        w, kept, _ = rule.apply(w, working, q, h)
        return w, kept

    if replicas == 1:
        return lambda w, state, grads, h: one(w, state, grads[:, 0], h)
    return jax.vmap(one, in_axes=(None, None, 1, None), out_axes=None, axis_name="replica")
