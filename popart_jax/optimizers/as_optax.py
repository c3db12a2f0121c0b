"""PopART's optimizers as optax transformations, for functions made by `to_jax` and any other JAX code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._process.jnp import jnp
from .base import Optimizer
from .rules import Reduction, Rule, Weight, rule_for

if TYPE_CHECKING:
    import optax

Params = Mapping[str, Any]


class RuleState(NamedTuple):
    """Optimizer state by weight and role, and the hyperparameters by weight and name."""

    slots: dict[str, dict[str, Any]]
    hyper: dict[str, dict[str, Any]]


def as_optax(optimizer: Optimizer) -> optax.GradientTransformation:
    """An optimizer as `optax.GradientTransformation` over a flat dictionary of parameters.

    Parameters
    ----------
    optimizer : SGD, Adam or Adaptive
        Its loss scale must be the one that the gradients carry. Clipping is left to optax.

    Returns
    -------
    optax.GradientTransformation
        Hyperparameters are arrays in the state (`with_values` replaces them), so jitted steps need no recompilation.

    Examples
    --------
    >>> fn, params = to_jax("model.onnx")  # doctest: +SKIP
    >>> tx = as_optax(SGD({"defaultMomentum": (0.9, True)}))  # doctest: +SKIP
    >>> state = tx.init(params)  # doctest: +SKIP
    """

    def init(params: Params) -> RuleState:
        rules = _rules(optimizer, params)
        hyper = hyper_values(optimizer, params)
        slots = {
            name: {
                s.role: jnp.asarray(
                    s.init(np.zeros(()) if s.is_scalar else np.asarray(params[name]), hyper[name]), s.dtype
                )
                for s in rule.slots
            }
            for name, rule in rules.items()
        }
        return RuleState(slots, {n: {k: jnp.asarray(v) for k, v in h.items()} for n, h in hyper.items()})

    def update(grads: Params, state: RuleState, params: Params | None = None) -> tuple[dict[str, Any], RuleState]:
        if params is None:
            raise ValueError("PopART's rules read the parameters: call update(grads, state, params)")
        steps: dict[str, Any] = {}
        slots: dict[str, Any] = {}
        for name, rule in _rules(optimizer, params).items():
            h, w = state.hyper[name], params[name]
            q, working, _ = rule.prepare(w, rule.start(w, state.slots[name]), grads[name], h, _alone)
            new, slots[name], _ = rule.apply(w, working, q, h)
            steps[name] = new - w
        return steps, RuleState(slots, state.hyper)

    import optax  # half a second that sessions need not spend

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def with_values(state: RuleState, optimizer: Optimizer, params: Params) -> RuleState:
    """The state with the hyperparameters of another optimizer of the same kind."""
    hyper = hyper_values(optimizer, params)
    return state._replace(hyper={n: {k: jnp.asarray(v) for k, v in h.items()} for n, h in hyper.items()})


def hyper_values(optimizer: Optimizer, params: Params) -> dict[str, dict[str, np.float32]]:
    """Scalars of every weight."""
    return {n: {s.base: s.value for s in rule.scalars()} for n, rule in _rules(optimizer, params).items()}


def _rules(optimizer: Optimizer, params: Params) -> dict[str, Rule]:
    for name in params:
        optimizer.check_state_types(name)
    return {n: rule_for(optimizer, Weight(n, np.dtype(w.dtype)), Reduction()) for n, w in params.items()}


def _alone(x: Any, *, mean: bool = False) -> Any:
    return x
