"""The weight update at the end of a batch: reduction over replicas, clipping, update rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ..lowering.rounding import HALF, to_half
from ..ops import replicas
from ..optimizers.rules.common import Reduce
from .program import Program, Training

Working = dict[str, dict[str, Any]]
Sharing = tuple[tuple[int, ...], ...]  # groups of replicas that share a weight
_WEIGHT = "weight"  # key of the weight beside the roles of its state
_COMBINED = "Accl___"  # accumulator and velocity in one; its later states in an update have names of their own


@jax.named_scope("hyperparameters")
def scalars_of(training: Training, hyper: Any, factor: Any = None, ratio: Any = None) -> dict[str, dict[str, Any]]:
    """Scalars of every weight, taken from the vector of hyperparameters.

    Scalars that contain the loss scale follow `factor`, that of automatic loss scaling. `ratio` is the change of the
    loss scale since the last update, for state that contains the scale.
    """
    moved = {} if ratio is None else {"lossScalingRatio": ratio}
    return {w: {**_scalars_of(training, w, hyper, factor), **moved} for w in training.rules}


def _scalars_of(training: Training, weight: str, hyper: Any, factor: Any) -> dict[str, Any]:
    powers = {s.base: s.loss_power for s in training.rules[weight].scalars()} if factor is not None else {}
    scalars = {base: hyper[place] for base, place in training.hyper[weight].items()}
    for base, power in powers.items():
        if power:
            scalars[base] = scalars[base] * factor if power > 0 else scalars[base] / factor
    return scalars


@jax.named_scope("accumulate gradients")
def start(program: Program, training: Training, carried: Mapping[str, Any]) -> Working:
    """State of every rule at the start of a batch."""
    return {
        weight: rule.start(carried[weight], {slot.role: carried[slot.name] for slot in rule.slots})
        for weight, rule in training.rules.items()
    }


@jax.named_scope("accumulate gradients")
def accumulate(
    training: Training, working: Working, gradients: Mapping[str, Any], scalars: Any, index: Any, rounding: Any = None
) -> Working:
    """Add a micro-batch's gradients; `rounding` as in `UpdateInputs`."""
    changed: Working = {}
    for weight, rule in training.rules.items():
        before = working[weight]
        after = rule.accumulate(_widened(before, rounding), gradients[weight], scalars[weight], index)
        changed[weight] = _rounded(after, before, rounding)
    return changed


def _widened(state: Mapping[str, Any], rounding: Any) -> dict[str, Any]:
    """State for a rule: with stochastic rounding, half tensors in single precision, since `_rounded` rounds them.

    A rule rounds its results to the type of its operands.
    """
    if rounding is None:
        return dict(state)
    return {n: x.astype(jnp.float32) if x.dtype == HALF else x for n, x in state.items()}


def _rounded(state: Mapping[str, Any], before: Mapping[str, Any], rounding: Any) -> dict[str, Any]:
    if rounding is None:
        return dict(state)
    return {n: to_half(x, rounding) if n in before and before[n].dtype == HALF else x for n, x in state.items()}


def accumulators(training: Training, working: Working, index: Any) -> dict[str, Any]:
    """Anchorable state inside a batch: accumulators, the velocity of Combined SGD, and the running mean's counter."""
    shown: dict[str, Any] = {training.counter: jnp.float32(index + 1)} if training.counter else {}
    for weight, state in working.items():
        if "accum" in state:
            shown["Accum___" + weight] = state["accum"]
        shown |= {slot.name: state[slot.role] for slot in training.rules[weight].slots}
    return shown


@dataclass(frozen=True)
class UpdateInputs:
    """The inputs of an update."""

    program: Program
    training: Training  # its rules say which weights are updated
    carried: Mapping[str, Any]  # variables
    working: Working  # state of every rule in the batch
    gradients: Mapping[str, Any]  # empty where they were accumulated in `working`
    scalars: Mapping[str, Mapping[str, Any]]  # scalars of every weight
    # key for stochastic rounding of half results, the same on all replicas; None to round to nearest
    rounding: Any = None


@dataclass(frozen=True)
class Prepared:
    """Weights and their state before the last step of an update; with stochastic rounding in single precision."""

    directions: dict[str, Any]
    states: Working
    weights: dict[str, Any]
    shown: dict[str, Any]


def prepare(given: UpdateInputs) -> Prepared:
    """The first step of an update: reduction over replicas, and each rule's direction."""
    found = Prepared({}, {}, {}, {})
    for weight, rule in given.training.rules.items():
        reduce = _reducer(given.program.variables[weight].groups)
        state = _widened({**given.working[weight], _WEIGHT: given.carried[weight]}, given.rounding)
        found.weights[weight] = state.pop(_WEIGHT)
        q, found.states[weight], extras = rule.prepare(
            found.weights[weight], state, given.gradients.get(weight), given.scalars[weight], reduce
        )
        found.directions[weight] = q
        found.shown.update({prefix + weight: value for prefix, value in extras.items()})
    return found


def squares(training: Training, prepared: Prepared) -> list[Any]:
    """Sum of squares of each clip group's members, for members of the group that are updated elsewhere."""
    return [_squares(prepared.directions, members) for members, _ in training.clips]


def apply(given: UpdateInputs, elsewhere: Sequence[Any] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """New variables, and the named intermediate tensors of the update.

    `elsewhere` has the sums that `squares` returns for each clip group in other places.
    """
    training, scalars = given.training, given.scalars
    with jax.named_scope("update"):
        found = prepare(given)
        shown = found.shown
        for i, (members, limit) in enumerate(training.clips):
            groups = {m: given.program.variables[m].groups for m in members}
            shown[f"GlobalNorm___{i}"] = _clip(found.directions, groups, limit, elsewhere[i] if elsewhere else 0)
        changed = dict(given.carried)
        for weight, rule in training.rules.items():
            new, state, extras = rule.apply(
                found.weights[weight], found.states[weight], found.directions[weight], scalars[weight]
            )
            before = {**given.working[weight], _WEIGHT: given.carried[weight]}
            state = _rounded({**state, _WEIGHT: new}, before, given.rounding)
            changed[weight] = new = state[_WEIGHT]
            moved = {slot.name: state[slot.role] for slot in rule.slots}
            changed |= moved
            shown |= {prefix + weight: value for prefix, value in extras.items()}
            updated = {n: x for n, x in moved.items() if not n.startswith(_COMBINED)} | {weight: new}
            shown |= {f"UpdatedVar___{name}": value for name, value in updated.items()}
    return changed, shown


def _reducer(members: Sharing) -> Reduce:
    groups = replicas.groups_of(members)

    def reduce(x: Any, *, mean: bool = False) -> Any:
        return replicas.all_reduce(x, replicas.MEAN if mean else replicas.ADD, groups)

    return reduce


def _squares(directions: Mapping[str, Any], members: Iterable[str]) -> Any:
    return sum((jnp.sum(jnp.square(directions[m].astype(jnp.float32))) for m in members), start=jnp.float32(0))


def _clip(directions: dict[str, Any], members: Mapping[str, Sharing], limit: float, elsewhere: Any) -> Any:
    """Scale the members down together, in place; returns their common norm from before.

    Members that different replicas share have one norm on each replica. The norm of a weight's lowest replica is used
    by all replicas that share the weight, so that they stay equal.
    """
    norm = jnp.sqrt(_squares(directions, members) + elsewhere)
    factor = jnp.float32(limit) / jnp.maximum(jnp.float32(limit), norm)
    alike = len(set(members.values())) == 1
    for m, sharing in members.items():
        mine = factor if alike else replicas.first_of_group(factor, replicas.groups_of(sharing))
        directions[m] = (directions[m].astype(jnp.float32) * mine).astype(directions[m].dtype)
    return norm
