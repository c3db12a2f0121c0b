"""Automatic loss scaling inside the step program.  Source: PopART's documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..ops.replicas import all_reduce
from .program import PREVIOUS_SCALE, SCALE_RATIO, Program, Training, Type

FACTOR = "lossScaleUpdateFactor"
GRADIENT = "Gradient___"


@dataclass(frozen=True)
class Tracking:
    """Which gradients automatic loss scaling watches, and how it changes the factor."""

    tracked: tuple[str, ...]  # tensors whose gradients are counted
    edge: float  # magnitudes from here on count as large
    threshold: float  # share of large elements above which the factor is halved
    period: int = 1  # batches between decisions
    histogram_counters: tuple[str, ...] = ()  # names of INT32 counters, when the period is more than 1
    update_counter: str = ""


SUMMED = "summedHistograms"
RUNNING = "Accum___autoLossScaleStats"
Tensors = Mapping[str, Any]


def statistics_of(tensor: str) -> str:
    """Name of the counts of one tracked tensor's gradient."""
    return f"{GRADIENT}{tensor}_statistics"


def shown_types(tracking: Tracking, accumulates: bool, replicas: int) -> dict[str, Type]:
    """Types of the anchorable counts (number of elements below the edge, and of all others)."""
    pair = Type((2,), np.dtype(np.uint32))
    wide = Type((2,), np.dtype(np.float32))
    types = {statistics_of(name): pair for name in tracking.tracked}
    types |= {SUMMED: pair, "summedCastedHistograms": wide, f"UpdatedVar___{FACTOR}": Type((), wide.dtype)}
    if accumulates:
        types[RUNNING] = wide
    return types | ({f"{SUMMED}_reduced": pair} if replicas > 1 else {})


@dataclass(frozen=True)
class Scaling:
    """The loss scale of one batch; `factor` is None when automatic loss scaling is off.

    `shown` are the tensors of the feature that can be anchored.
    """

    training: Training
    scale: Any
    factor: Any
    shown: Mapping[str, Any]

    def start(self) -> Any:
        """The initial counts: zero small and zero large elements."""
        return jnp.zeros((2,), jnp.uint32)

    def count(self, counts: Any, values: Tensors) -> tuple[Any, Tensors]:
        """Add the small and large elements of this micro-batch's tracked gradients; also returns anchorable tensors."""
        tracking = self.training.scaling
        if tracking is None:
            return counts, {}
        single = {statistics_of(n): _counted(values[GRADIENT + n], tracking.edge) for n in tracking.tracked}
        summed = self.start()
        for pair in single.values():
            summed = summed + pair
        counts = counts + summed
        reduced = {f"{SUMMED}_reduced": all_reduce(summed), RUNNING: counts.astype(jnp.float32)}
        return counts, {**single, SUMMED: summed, "summedCastedHistograms": summed.astype(jnp.float32), **reduced}

    def finish(self, counts: Any, carried: Tensors, program: Program) -> dict[str, Any]:
        """Variables after the factor is updated at the end of the batch."""
        tracking = self.training.scaling
        if tracking is None:
            return dict(carried)
        lower, upper = all_reduce(counts).astype(jnp.float32)
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


def _counted(gradient: Any, edge: float) -> Any:
    """Numbers of elements below the edge, which is rounded to the gradient's type, and of all others, including NaN."""
    limit = jnp.asarray(edge, jnp.float32).astype(gradient.dtype).astype(jnp.float32)
    small = jnp.sum(jnp.abs(gradient.astype(jnp.float32)) < limit, dtype=jnp.uint32)
    return jnp.stack([small, jnp.uint32(gradient.size) - small])


@jax.named_scope("loss scale")
def begin(training: Training, carried: Mapping[str, Any], hyper: Any) -> Scaling:
    """Loss scale of a batch."""
    scale = hyper[training.loss_scale]
    if training.scaling is None:
        return Scaling(training, scale, None, {})
    factor = carried[FACTOR]
    scale = scale * factor.astype(jnp.float32)
    inverse = {name: hyper[place] / factor for name, place in training.inverse_scales.items()}
    return Scaling(training, scale, factor, {"finalLossScale": scale, **inverse})


@dataclass(frozen=True)
class ScaleChange:
    """The change of the loss scale since the last update, where optimizer state follows it."""

    ratio: Any  # the change; None where no state follows it
    state: Mapping[str, Any]  # the variable that stores the scale, with its new value
    shown: Mapping[str, Any]  # anchorable tensors


def scale_change(training: Training, carried: Mapping[str, Any], hyper: Any) -> ScaleChange:
    """Ratio of the loss scale of a batch to that of the last one."""
    name = next((n for n in carried if n.startswith(PREVIOUS_SCALE)), None) if training.scaled_state else None
    if name is None:
        return ScaleChange(None, {}, {})
    scale = hyper[training.loss_scale]
    ratio = scale / carried[name]
    return ScaleChange(ratio, {name: scale}, {name.replace(PREVIOUS_SCALE, SCALE_RATIO, 1): ratio})
