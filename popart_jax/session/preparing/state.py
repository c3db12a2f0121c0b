"""Optimizer state of a session: its variables and their initial values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import popart_exception
from ...execution import Training, Type, Variable
from ...execution.program import PREVIOUS_SCALE
from ...model.variable_settings import VariableSettings
from ...optimizers import Optimizer
from ...optimizers.places import first_value
from . import hyper, loss_scale
from .source import HostVariable


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One state variable and its first host value."""

    variable: HostVariable
    first: np.ndarray


def state_of(
    training: Training, optimizer: Optimizer, weights: Mapping[str, HostVariable], known: Mapping[str, np.ndarray]
) -> dict[str, StateTensor]:
    """All optimizer state, in the groups of its weights; initial values are those `known` from the model, if any.

    The optimizer tells the first value of the previous loss scale. Raises popart_exception for saved state whose shape
    does not fit.
    """
    found: dict[str, StateTensor] = {}
    for weight, rule in training.rules.items():
        owner = weights[weight]
        for slot in rule.slots:
            shape = () if slot.is_scalar else owner.variable.type.shape
            variable = Variable(Type(shape, slot.dtype), owner.variable.groups)
            entry = HostVariable(variable, owner.settings, slot.dtype)
            like = np.zeros(entry.host_shape, np.float32) if slot.is_scalar else known[weight]
            found[slot.name] = _tensor(slot.name, entry, known, first_value(slot, rule, like))
    for name, value in _session_state(training, optimizer).items():
        entry = HostVariable(Variable(Type((), value.dtype), (_everybody(weights),)), VariableSettings(), value.dtype)
        found[name] = _tensor(name, entry, known, value)
    return found


def _session_state(training: Training, optimizer: Optimizer) -> dict[str, np.ndarray]:
    """State that belongs to no weight."""
    state = loss_scale.initial_state(training.scaling)
    if training.scaled_state:
        kind = hyper.loss_scale_name(training.loss_type).removeprefix(hyper.LOSS_SCALE)
        state[f"{PREVIOUS_SCALE}{kind}"] = np.asarray(optimizer.getLossScalingVal(), np.float32)
    return state


def _everybody(weights: Mapping[str, HostVariable]) -> tuple[int, ...]:
    groups = next(iter(weights.values())).variable.groups if weights else ((0,),)
    return tuple(range(sum(map(len, groups))))


def _tensor(name: str, entry: HostVariable, known: Mapping[str, np.ndarray], first: np.ndarray) -> StateTensor:
    saved = known.get(name)
    if saved is None:
        return StateTensor(entry, np.asarray(first, entry.host_dtype).reshape(entry.host_shape))
    if saved.size != np.prod(entry.host_shape, dtype=int):
        raise popart_exception(
            f"Optimizer state '{name}' in the model has shape {list(saved.shape)}, expected {list(entry.host_shape)}."
        )
    return StateTensor(entry, saved.astype(entry.host_dtype).reshape(entry.host_shape))
