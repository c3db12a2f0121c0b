"""Automatic loss scaling inside the step program.  Source: PopART's documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from ..ops.replicas import all_reduce
from .program import Program, Training

FACTOR = "lossScaleUpdateFactor"
GRADIENT = "Gradient___"


@dataclass(frozen=True)
class Tracking:
    """Which gradients are watched and how the factor moves.

    Attributes
    ----------
    tracked : tuple of str
        Tensors whose gradients are counted.
    edge : float
        Magnitudes from here on are large.
    threshold : float
        Share of large elements above which the factor is halved.
    period : int
        Batches between decisions.
    histogram_counters, update_counter : tuple of str, str
        Names of the INT32 counters, when the period is more than 1.
    """

    tracked: tuple[str, ...]
    edge: float
    threshold: float
    period: int = 1
    histogram_counters: tuple[str, ...] = ()
    update_counter: str = ""


Counts = tuple[Any, Any]


@dataclass(frozen=True)
class Scaling:
    """The loss scale of one batch; `factor` is None when automatic loss scaling is off.

    `shown` are the tensors of the feature that can be anchored.
    """

    training: Training
    scale: Any
    factor: Any
    shown: Mapping[str, Any]

    def start(self) -> Counts:
        """No elements counted."""
        return (jnp.zeros((), jnp.uint32), jnp.zeros((), jnp.uint32))

    def count(self, counts: Counts, values: Mapping[str, Any]) -> Counts:
        """Add the small and large elements of this micro-batch's tracked gradients."""
        tracking = self.training.scaling
        if tracking is None:
            return counts
        lower, upper = counts
        for name in tracking.tracked:
            gradient = jnp.abs(values[GRADIENT + name].astype(jnp.float32))
            small = jnp.sum(gradient < tracking.edge, dtype=jnp.uint32)
            lower, upper = lower + small, upper + (jnp.uint32(gradient.size) - small)
        return lower, upper

    def finish(self, counts: Counts, carried: Mapping[str, Any], program: Program) -> dict[str, Any]:
        """Variables after the decision at the end of the batch."""
        tracking = self.training.scaling
        if tracking is None:
            return dict(carried)
        lower, upper = (all_reduce(x).astype(jnp.float32) for x in counts)
        t = tracking.threshold
        many = upper > lower * (t / (1 - t)) if t < 1 else jnp.zeros((), bool)
        moved = (self.factor * jnp.where(many, 0.5, 2.0)).astype(self.factor.dtype)
        changed = dict(carried)
        if tracking.period == 1:
            changed[FACTOR] = moved
            return changed
        counter = (carried[tracking.update_counter] + 1) % tracking.period
        changed[tracking.update_counter] = counter
        changed[FACTOR] = jnp.where(counter == 0, moved, self.factor)
        steps = program.structure.accumulation
        for name in tracking.histogram_counters:
            changed[name] = (carried[name] + steps) % (steps * tracking.period)
        return changed


def begin(training: Training, carried: Mapping[str, Any], hyper: Any) -> Scaling:
    """Loss scale of a batch."""
    scale = hyper[training.loss_scale]
    if training.scaling is None:
        return Scaling(training, scale, None, {})
    factor = carried[FACTOR]
    scale = scale * factor.astype(jnp.float32)
    inverse = {name: hyper[place] / factor for name, place in training.inverse_scales.items()}
    return Scaling(training, scale, factor, {"finalLossScale": scale, **inverse})
