"""AdaGrad, RMSProp (plain and centred) and AdaDelta."""

from __future__ import annotations

import onnx_ir as ir

from .adam import moment, unscaled
from .common import Update

LR, WD, ALPHA, MM, EPS = "learningRate", "weightDecay", "alpha", "momentum", "eps"


def update(u: Update, gradient: ir.Value) -> None:
    """Append the update ops of one weight."""
    mode, name = u.optimizer.mode, u.name
    decays = name in u.optimizer.weight_decay
    step = unscaled(u, u.accumulated(gradient), "adaptiveGradientScaling", decays)
    alpha, eps = u.scalar("adaptiveAlpha", ALPHA), u.scalar("adaptiveEps", EPS)
    kind = "DampenedAddSquare" if mode == "AdaGrad" else "MovingAverageSquare"
    first = moment(u, step, "Accl1___", kind, None if mode == "AdaGrad" else alpha)
    direction = f"AdaptiveUpdater___{name}"
    if mode == "AdaDelta":
        second = u.state("Accl2___")
        updater = u.emit("AdaDeltaUpdater", [step, first, second, eps], direction)
        moment(u, updater, "Accl2___", "MovingAverageSquare", alpha)
    else:
        centre = moment(u, step, "Accl2___", "MovingAverage", alpha) if mode == "CenteredRMSProp" else None
        updater = u.emit("RMSPropUpdater", [step, first, centre, eps], direction)
    if name in u.optimizer.momentum:
        updater = moment(u, updater, "Accl3___", "MovingAverage", u.scalar("adaptiveMomentum", MM))
    scalars = [
        u.scalar("learningRate", LR),
        u.scalar("weightDecay", WD) if decays and not u.optimizer.l2 else None,
    ]
    u.emit("ScaledVarUpdate", [u.weight, updater, *scalars], f"UpdatedVar___{name}")
    u.reset()
