"""SGD: without momentum, and with it in one tensor (Combined) or two (Separate).

Source: PopART's reduction factors and update equations; names follow them (mm momentum, dm
dampening, vs velocity scaling, ls loss scale, q replicas summed in the velocity).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._process.jnp import jnp
from ...enums import SGDAccumulatorAndMomentum
from ..sgd import SGD
from .common import (
    Accumulating,
    Extras,
    Hyper,
    Reduce,
    Reduction,
    Rule,
    Scalar,
    Slot,
    State,
    Weight,
    reduced_gradient,
    type_of,
    wide,
    zeros,
)


def sgd_rule(optimizer: SGD, weight: Weight, reduction: Reduction) -> Rule:
    """The form of SGD that a weight uses."""
    if not optimizer.has_momentum(weight.name):
        return PlainSGD(optimizer, weight, reduction)
    separate = optimizer.accumulator is SGDAccumulatorAndMomentum.Separate
    return (SeparateSGD if separate else CombinedSGD)(optimizer, weight, reduction)


@dataclass(frozen=True)
class _Base(Accumulating):
    optimizer: SGD

    @property
    def nesterov(self) -> bool:
        """Whether this weight uses Nesterov momentum."""
        return self.optimizer.has_nesterov(self.weight.name)


class PlainSGD(_Base):
    """w <- w * (1 - lr(1-dm)wd) - lr(1-dm)/(ls af rf) * g."""

    slots: tuple[Slot, ...] = ()

    def scalars(self) -> tuple[Scalar, ...]:
        """``lr(1-dm) / (ls * divisor)`` and ``1 - lr(1-dm)wd``."""
        lr, wd, dm, ls = (self._value(f) for f in ("learningRate", "weightDecay", "dampening", "lossScaling"))
        step = lr * (1 - dm)
        divisor = ls * np.float32(self.reduction.post_divisor)
        return (
            Scalar("scaledLearningRate0", step / divisor, self._const("learningRate", "dampening", "lossScaling"), -1),
            Scalar(
                "weightDecayScaleFactor0",
                1 - step * wd,
                self._const("learningRate", "dampening", "weightDecay"),
                of_weight_type=True,
            ),
        )

    def prepare(self, w: Any, state: State, grad: Any, h: Hyper, reduce: Reduce) -> tuple[Any, State, Extras]:
        """The gradient over all replicas; nothing is kept."""
        g = reduced_gradient(state, grad, self.reduction, reduce)
        return g, state, {"FinalReducedGradient___": g}

    def apply(self, w: Any, state: State, q: Any, h: Hyper) -> tuple[Any, State, Extras]:
        """``w * weightDecayScaleFactor0 - scaledLearningRate0 * g``."""
        new = wide(w) * h["weightDecayScaleFactor0"] - h["scaledLearningRate0"] * wide(q)
        return new.astype(w.dtype), {}, {}


class SeparateSGD(_Base):
    """Gradient accumulator and velocity are two tensors."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The velocity, which starts at zero."""
        kind = type_of(self.optimizer.accl1_type, self.weight.dtype)
        return (Slot("accl1", f"Accl1___{self.weight.name}", kind, zeros),)

    def scalars(self) -> tuple[Scalar, ...]:
        """``lr / vs``, ``(1-dm)vs / (ls * divisor)``, ``(1-dm)wd vs`` and ``mm``; four more with Nesterov."""
        fields = ("learningRate", "weightDecay", "momentum", "dampening", "velocityScaling", "lossScaling")
        lr, wd, mm, dm, vs, ls = (self._value(f) for f in fields)
        divisor = ls * np.float32(self.reduction.post_divisor)
        gradient = self._const("dampening", "velocityScaling", "lossScaling")
        decay = self._const("dampening", "weightDecay", "velocityScaling")
        plain = (
            Scalar("scaledLearningRate2", lr / vs, self._const("learningRate", "velocityScaling")),
            Scalar("dampeningScaleFactor2", (1 - dm) * vs / divisor, gradient, -1),
            Scalar("scaledWeightDecay1", (1 - dm) * wd * vs, decay, of_weight_type=True),
            Scalar("scaledMomentum2", mm, self._const("momentum"), of_weight_type=True),
        )
        if not self.nesterov:
            return plain
        return (
            *plain,
            Scalar("nesterovDampeningScaleFactor2", 1 / ls, self._const("lossScaling"), -1),
            Scalar("nesterovGradScaleFactor2", vs, self._const("velocityScaling")),
            Scalar("sgdMomentum", mm, self._const("momentum"), of_weight_type=True),
            Scalar("sgdWeightDecay", wd, self._const("weightDecay"), of_weight_type=True),
        )

    def prepare(self, w: Any, state: State, grad: Any, h: Hyper, reduce: Reduce) -> tuple[Any, State, Extras]:
        """The new velocity ``v = mm v + (1-dm)vs (wd w + g)``; Nesterov applies ``mm v + vs (wd w + g)`` of it."""
        g = reduced_gradient(state, grad, self.reduction, reduce)
        kept = state["accl1"]
        v = h["scaledMomentum2"] * wide(kept) + h["scaledWeightDecay1"] * wide(w)
        v = v + h["dampeningScaleFactor2"] * wide(g)
        q = v
        if self.nesterov:
            inner = h["nesterovDampeningScaleFactor2"] * wide(g) + h["sgdWeightDecay"] * wide(w)
            q = h["nesterovGradScaleFactor2"] * inner + h["sgdMomentum"] * v
        return q, {"accl1": v.astype(kept.dtype)}, {"FinalReducedGradient___": g}

    def apply(self, w: Any, state: State, q: Any, h: Hyper) -> tuple[Any, State, Extras]:
        """``w - (lr / vs) * q``; the velocity stays as `prepare` left it."""
        return (wide(w) - h["scaledLearningRate2"] * wide(q)).astype(w.dtype), state, {}


class CombinedSGD(_Base):
    """One tensor accumulates gradients and is the velocity, already decayed for the coming batch."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The velocity, which starts with the decay of the initial weight; with Nesterov a plain sum too."""
        name = f"Accl___{self.weight.name}"
        kind = type_of(self.optimizer.accl1_type, self.accum_type)
        velocity = Slot("accl", name, kind, _decay_of_initial_weight)
        if not self.nesterov:
            return (velocity,)
        return velocity, Slot("nesterov", f"{name}_nesterovGrad", self.accum_type, zeros)

    def scalars(self) -> tuple[Scalar, ...]:
        """As for two tensors; step and momentum are divided by the `q` replicas that the velocity sums."""
        fields = ("learningRate", "weightDecay", "momentum", "dampening", "velocityScaling", "lossScaling")
        lr, wd, mm, dm, vs, ls = (self._value(f) for f in fields)
        r = self.reduction
        q = np.float32(self.weight.group if r.accumulate else 1)
        averaged = np.float32(r.factor if r.mean and r.accumulate else 1)
        c = q / np.float32(r.replicas) if r.mean else q
        gradient = self._const("dampening", "velocityScaling", "lossScaling")
        decay = self._const("dampening", "weightDecay", "velocityScaling")
        plain = (
            Scalar("scaledLearningRate1", lr / (vs * q), self._const("learningRate", "velocityScaling")),
            Scalar("dampeningScaleFactor1", (1 - dm) * vs * c / (ls * averaged), gradient, -1),
            Scalar("scaledWeightDecay1", (1 - dm) * wd * vs, decay, of_weight_type=True),
            Scalar("scaledMomentum1", mm / q, self._const("momentum"), of_weight_type=True),
        )
        if not self.nesterov:
            return plain
        running = np.float32(r.factor if r.mean and r.running and r.accumulate else 1)
        return (
            *plain,
            Scalar("nesterovDampeningScaleFactor1", 1 / (ls * running), self._const("lossScaling"), -1),
            Scalar("nesterovGradScaleFactor1", vs * q, self._const("velocityScaling")),
            Scalar("sgdMomentum", mm, self._const("momentum"), of_weight_type=True),
            Scalar("sgdWeightDecay", wd, self._const("weightDecay"), of_weight_type=True),
        )

    def start(self, w: Any, state: State) -> State:
        """The kept state: the velocity itself accumulates."""
        return state

    def accumulate(self, state: State, grad: Any, h: Hyper, index: Any) -> State:
        """Adds the scaled gradient to the velocity, and with Nesterov the plain one to its sum."""
        v = state["accl"]
        added = {**state, "accl": (wide(v) + h["dampeningScaleFactor1"] * wide(grad)).astype(v.dtype)}
        if self.nesterov:
            total = state["nesterov"]
            added["nesterov"] = (wide(total) + wide(grad)).astype(total.dtype)
        return added

    def prepare(self, w: Any, state: State, grad: Any, h: Hyper, reduce: Reduce) -> tuple[Any, State, Extras]:
        """The velocity over all replicas; Nesterov applies ``mm v + vs q (wd w + g)`` of it."""
        if self.reduction.accumulate:
            before = state["accl"]
            state = {role: reduce(x) for role, x in state.items()}
        else:
            state = self.accumulate(state, reduce(grad), h, 0)
            before = state["accl"]
        v = state["accl"]
        q = v
        if self.nesterov:
            inner = h["nesterovDampeningScaleFactor1"] * wide(state["nesterov"]) + h["sgdWeightDecay"] * wide(w)
            q = h["nesterovGradScaleFactor1"] * inner + h["sgdMomentum"] * wide(v)
        return q, state, {"AcclIntoReduce___": before, "AcclIntoUpdate___": v}

    def apply(self, w: Any, state: State, q: Any, h: Hyper) -> tuple[Any, State, Extras]:
        """``w - lr / (vs q) * v``, and the velocity decayed for the next batch: times ``mm / q``, plus weight decay."""
        new = (wide(w) - h["scaledLearningRate1"] * wide(q)).astype(w.dtype)
        v = state["accl"]
        decayed = h["scaledMomentum1"] * wide(v)
        if not self._is_zero("weightDecay"):  # the update is memory-bound: reading the weight once more costs a seventh
            decayed = decayed + h["scaledWeightDecay1"] * wide(new)
        decayed = decayed.astype(v.dtype)
        kept = {"accl": decayed}
        if self.nesterov:
            kept["nesterov"] = jnp.zeros_like(state["nesterov"])
        return new, kept, {"AcclOutOfAcclUpdate___": decayed}


def _decay_of_initial_weight(w0: np.ndarray, scalars: Mapping[str, np.float32]) -> np.ndarray:
    factor = scalars["scaledWeightDecay1"]
    return np.asarray(factor * np.asarray(w0, np.float32)) if factor else zeros(w0, scalars)
