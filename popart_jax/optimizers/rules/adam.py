"""The Adam family.  Source: PopART's update equations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._process.jnp import jnp
from ...enums import AdamMode, WeightDecayMode
from ..adam import Adam
from .common import (
    F32,
    Accumulating,
    Extras,
    Hyper,
    Reduce,
    Scalar,
    Slot,
    State,
    reduced_gradient,
    type_of,
    wide,
    zeros,
)

HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)


@dataclass(frozen=True)
class AdamRule(Accumulating):
    """Adam, AdamNoBias, AdaMax, Lamb or LambNoBias for one weight.

    With scaled optimizer state `h` also holds ``lossScalingRatio``, the new loss scale over the previous one.
    """

    optimizer: Adam

    @property
    def slots(self) -> tuple[Slot, ...]:
        """First and second moment, and with bias correction the step counter, all starting at zero."""
        name, opt = self.weight.name, self.optimizer
        moments = (
            Slot("accl1", f"Accl1___{name}", type_of(opt.accl1_type, self.weight.dtype), zeros),
            Slot("accl2", f"Accl2___{name}", type_of(opt.accl2_type, self.weight.dtype), zeros),
        )
        return (*moments, Slot("step", f"Step___{name}", SINGLE, zeros, True)) if opt.corrects_bias() else moments

    @property
    def _l2(self) -> bool:
        return self.optimizer.decay_mode is WeightDecayMode.L2Regularization

    @property
    def _trusts_ratio(self) -> bool:
        limit = self.optimizer.value("maxWeightNorm", self.weight.name)
        return self.optimizer.is_lamb() and not (limit.isConst() and limit.val() == 0)

    def scalars(self) -> tuple[Scalar, ...]:
        """PopART's hyperparameters; with scaled state, epsilon and L2 decay carry the loss scale."""
        scaled = self.optimizer.scaled_state
        ls = self._value("lossScaling")
        post = np.float32(self.reduction.post_divisor)
        decay_scaled = scaled and self._l2
        fields = [
            Scalar("learningRate", self._value("learningRate"), self._const("learningRate")),
            Scalar(
                "weightDecay",
                self._value("weightDecay") * (ls if decay_scaled else np.float32(1)),
                self._const("weightDecay", *(("lossScaling",) if decay_scaled else ())),
            ),
            Scalar("adamBeta1", self._value("beta1"), self._const("beta1")),
            Scalar("adamBeta2", self._value("beta2"), self._const("beta2")),
            Scalar(
                "adamEps",
                self._value("eps") * (ls if scaled else np.float32(1)),
                self._const("eps", *(("lossScaling",) if scaled else ())),
            ),
            Scalar(
                "adamGradientScaling",
                1 / (post if scaled else ls * post),
                scaled or self._const("lossScaling"),
                -int(not scaled),
            ),
        ]
        if self.optimizer.is_lamb():
            fields.append(Scalar("maxWeightNorm", self._value("maxWeightNorm"), self._const("maxWeightNorm")))
        return tuple(fields)

    def prepare(self, w: Any, state: State, grad: Any, h: Hyper, reduce: Reduce) -> tuple[Any, State, Extras]:
        """The unscaled mean gradient, plus ``weightDecay * w`` under L2 regularisation."""
        g = reduced_gradient(state, grad, self.reduction, reduce)
        s = (wide(g) * h["adamGradientScaling"]).astype(self._gradient_type())
        if self._l2:
            s = (wide(s) + h["weightDecay"] * wide(w)).astype(s.dtype)
        return s, {k: v for k, v in state.items() if k != "accum"}, {"FinalReducedGradient___": g}

    def _gradient_type(self) -> np.dtype:
        """Type of the unscaled gradient: a half accumulator with single moments is widened first."""
        kind = self.accum_type if self.reduction.accumulate else self.weight.dtype
        moments = {slot.dtype for slot in self.slots if slot.role.startswith("accl")}
        return SINGLE if kind == HALF and moments == {SINGLE} and not self.optimizer.scaled_state else kind

    def apply(self, w: Any, state: State, q: Any, h: Hyper) -> tuple[Any, State, Extras]:
        """New moments and ``w - lr * r * m / (sqrt(v) + eps)``, `r` Lamb's trust ratio or 1; AdaMax takes no root."""
        s, b1, b2 = wide(q), h["adamBeta1"], h["adamBeta2"]
        ratio = h.get("lossScalingRatio", F32(1))
        m = b1 * (wide(state["accl1"]) * ratio) + (1 - b1) * s
        old = wide(state["accl2"])
        adamax = self.optimizer.mode is AdamMode.AdaMax
        v = jnp.maximum(b2 * (old * ratio), jnp.abs(s)) if adamax else b2 * (old * ratio**2) + (1 - b2) * s * s
        kept = {"accl1": m.astype(state["accl1"].dtype), "accl2": v.astype(state["accl2"].dtype)}
        m, v = wide(kept["accl1"]), wide(kept["accl2"])
        if self.optimizer.corrects_bias():
            t = kept["step"] = state["step"] + 1
            m = m / (1 - b1**t)
            v = v if adamax else v / (1 - b2**t)
        x = m / (v + h["adamEps"]) if adamax else m / (jnp.sqrt(v) + h["adamEps"])
        if not self._l2:
            x = x + h["weightDecay"] * wide(w)
        factor, extras = self._trust_ratio(w, x, h)
        new = (wide(w) - h["learningRate"] * factor * x).astype(w.dtype)
        return new, kept, {"AdamUpdater___": x, **extras}

    def _trust_ratio(self, w: Any, x: Any, h: Hyper) -> tuple[Any, Extras]:
        if not self._trusts_ratio:
            return F32(1), {}
        r1_sq, r2_sq = jnp.sum(jnp.square(wide(w))), jnp.sum(jnp.square(x))
        r1, r2, limit = jnp.sqrt(r1_sq), jnp.sqrt(r2_sq), h["maxWeightNorm"]
        neutral = (r1 == 0) | (r2 == 0) | (limit == 0)
        ratio = jnp.where(neutral, 1, jnp.minimum(r1, limit) / jnp.where(neutral, 1, r2))
        return ratio, {"LambR1Sq___": r1_sq, "LambR2Sq___": r2_sq}
