"""AdaGrad, RMSProp (plain and centred) and AdaDelta."""

from __future__ import annotations

import onnx_ir as ir

from .adam import moment, unscaled
from .common import Updates

LR, WD, ALPHA, MM, EPS = "learningRate", "weightDecay", "alpha", "momentum", "eps"


def update(u: Updates, weight: ir.Value, gradient: ir.Value) -> None:
    """Append the update ops of one weight."""
    mode, name = u.optimizer.mode, weight.name
    decays = name in u.optimizer.weight_decay
    step = unscaled(u, weight, u.accumulated(gradient, weight), "adaptiveGradientScaling", decays)
    alpha, eps = u.scalar("adaptiveAlpha", weight, ALPHA), u.scalar("adaptiveEps", weight, EPS)
    kind = "DampenedAddSquare" if mode == "AdaGrad" else "MovingAverageSquare"
    first = moment(u, weight, step, "Accl1___", kind, None if mode == "AdaGrad" else alpha)
    direction = f"AdaptiveUpdater___{name}"
    if mode == "AdaDelta":
        second = u.state("Accl2___", weight)
        updater = u.emit("AdaDeltaUpdater", [step, first, second, eps], direction, weight=weight)
        moment(u, weight, updater, "Accl2___", "MovingAverageSquare", alpha)
    else:
        centre = moment(u, weight, step, "Accl2___", "MovingAverage", alpha) if mode == "CenteredRMSProp" else None
        updater = u.emit("RMSPropUpdater", [step, first, centre, eps], direction, weight=weight)
    if name in u.optimizer.momentum:
        updater = moment(u, weight, updater, "Accl3___", "MovingAverage", u.scalar("adaptiveMomentum", weight, MM))
    scalars = [
        u.scalar("learningRate", weight, LR),
        u.scalar("weightDecay", weight, WD) if decays and not u.optimizer.l2 else None,
    ]
    u.emit("ScaledVarUpdate", [weight, updater, *scalars], f"UpdatedVar___{name}", weight=weight)
    u.reset(weight)
