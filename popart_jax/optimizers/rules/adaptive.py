"""AdaGrad, RMSProp, centred RMSProp, AdaDelta.  Source: PopART's update equations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._process.jnp import jnp
from ...enums import AdaptiveMode, WeightDecayMode
from ..adaptive import Adaptive
from .common import (
    Accumulating,
    Extras,
    Hyper,
    Reduce,
    Scalar,
    Slot,
    State,
    ones,
    reduced_gradient,
    type_of,
    wide,
    zeros,
)

_SECOND = (AdaptiveMode.CenteredRMSProp, AdaptiveMode.AdaDelta)


@dataclass(frozen=True)
class AdaptiveRule(Accumulating):
    """One of the adaptive optimizers for one weight."""

    optimizer: Adaptive

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The accumulated squares of the gradient, and further state of the mode and of momentum."""
        name, opt, kind = self.weight.name, self.optimizer, self.weight.dtype
        slots = [Slot("accl1", f"Accl1___{name}", type_of(opt.accl1_type, kind), ones if opt.tf_variant else zeros)]
        if opt.mode in _SECOND:
            slots.append(Slot("accl2", f"Accl2___{name}", type_of(opt.accl2_type, kind), zeros))
        if opt.has_momentum(name):
            slots.append(Slot("accl3", f"Accl3___{name}", type_of(opt.accl3_type, kind), zeros))
        return tuple(slots)

    def scalars(self) -> tuple[Scalar, ...]:
        """PopART's hyperparameters, and ``1 / (loss scale * micro-batches and replicas of a mean)``."""
        plain = {
            "learningRate": "learningRate",
            "weightDecay": "weightDecay",
            "adaptiveAlpha": "alpha",
            "adaptiveMomentum": "momentum",
            "adaptiveEps": "eps",
        }
        scale = 1 / (self._value("lossScaling") * np.float32(self.reduction.post_divisor))
        return (
            *(Scalar(base, self._value(field), self._const(field)) for base, field in plain.items()),
            Scalar("adaptiveGradientScaling", scale, self._const("lossScaling"), -1),
        )

    def prepare(self, w: Any, state: State, grad: Any, h: Hyper, reduce: Reduce) -> tuple[Any, State, Extras]:
        """The unscaled gradient, plus ``weightDecay * w`` under L2 regularisation."""
        g = reduced_gradient(state, grad, self.reduction, reduce)
        s = wide(g) * h["adaptiveGradientScaling"]
        if self.optimizer.decay_mode is WeightDecayMode.L2Regularization:
            s = s + h["weightDecay"] * wide(w)
        return s, {k: v for k, v in state.items() if k != "accum"}, {"FinalReducedGradient___": g}

    def apply(self, w: Any, state: State, q: Any, h: Hyper) -> tuple[Any, State, Extras]:
        """New state and ``w - lr * step``; TensorFlow's variant keeps the learning rate in the momentum."""
        s, a = wide(q), h["adaptiveAlpha"]
        stored = dict(state)

        def keep(role: str, value: Any) -> Any:
            stored[role] = value.astype(state[role].dtype)
            return wide(stored[role])

        adagrad = self.optimizer.mode is AdaptiveMode.AdaGrad
        v1 = wide(state["accl1"])
        v1 = keep("accl1", v1 + s * s if adagrad else a * v1 + (1 - a) * s * s)
        x = self._direction(s, v1, state, keep, h)
        step = x
        if "accl3" in state:
            inside = h["learningRate"] * x if self.optimizer.tf_variant else x
            step = keep("accl3", h["adaptiveMomentum"] * wide(state["accl3"]) + inside)
        if self.optimizer.decay_mode is WeightDecayMode.Decay:
            step = step + h["weightDecay"] * wide(w)
        rate_inside = self.optimizer.tf_variant and "accl3" in state
        new = wide(w) - (step if rate_inside else h["learningRate"] * step)
        return new.astype(w.dtype), stored, {"AdaptiveUpdater___": x}

    def _direction(self, s: Any, v1: Any, state: State, keep: Any, h: Hyper) -> Any:
        a, eps, mode = h["adaptiveAlpha"], h["adaptiveEps"], self.optimizer.mode
        if mode is AdaptiveMode.AdaDelta:
            v2 = wide(state["accl2"])
            x = s * jnp.sqrt(v2 + eps) / jnp.sqrt(v1 + eps)
            keep("accl2", a * v2 + (1 - a) * x * x)
            return x
        if mode is AdaptiveMode.CenteredRMSProp:
            v2 = keep("accl2", a * wide(state["accl2"]) + (1 - a) * s)
            v1 = v1 - v2 * v2
        return s / jnp.sqrt(v1 + eps) if self.optimizer.tf_variant else s / (jnp.sqrt(v1) + eps)
