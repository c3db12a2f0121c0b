"""Adam, AdaMax and Lamb, with and without bias correction."""

from __future__ import annotations

import onnx_ir as ir

from .. import nodes
from .common import LOSS_SCALING, Update

LR, WD, B1, B2, EPS, NORM = "learningRate", "weightDecay", "beta1", "beta2", "eps", "maxWeightNorm"
FLOAT = ir.DataType.FLOAT


def update(u: Update, gradient: ir.Value) -> None:
    """Append the update ops of one weight."""
    mode, name = u.optimizer.mode, u.name
    decays = name in u.optimizer.weight_decay
    step = unscaled(u, u.accumulated(gradient), "adamGradientScaling", decays)
    counter = _counted(u) if mode in ("Adam", "Lamb", "AdaMax") else None
    first = moment(u, step, "Accl1___", "MovingAverage", u.scalar("adamBeta1", B1))
    kind = "Infinity" if mode == "AdaMax" else "MovingAverageSquare"
    second = moment(u, step, "Accl2___", kind, u.scalar("adamBeta2", B2))
    scalars = [
        u.scalar("weightDecay", WD),
        u.scalar("adamBeta1", B1),
        u.scalar("adamBeta2", B2),
        u.scalar("adamEps", EPS, *([LOSS_SCALING] if u.optimizer.scaled_state else [])),
    ]
    reads = u.weight if decays and not u.optimizer.l2 else None
    updater = u.emit("AdamUpdater", [reads, first, second, counter, *scalars], f"AdamUpdater___{name}")
    norms = _norms(u, updater) if mode.startswith("Lamb") and u.optimizer.trust_ratio else [None, None]
    rates = [u.scalar("learningRate", LR), u.scalar("maxWeightNorm", NORM) if norms[0] else None]
    u.emit("AdamVarUpdate", [u.weight, updater, *norms, *rates], f"UpdatedVar___{name}")
    u.reset()


def unscaled(u: Update, gradient: ir.Value, base: str, decays: bool) -> ir.Value:
    """Take out loss scale and averaging, and add the L2 term."""
    divisor = u.scalar(base, *([] if u.optimizer.scaled_state else [LOSS_SCALING]))
    result = nodes.tensor(f"{gradient.name}__unscaled", gradient)
    if divisor is None:
        u.emit("Scale", [gradient], result)
    else:
        u.emit("Mul", [gradient, divisor], result, domain="")
    if not (u.optimizer.l2 and decays):
        return result
    with_decay = nodes.tensor(f"{gradient.name}__l2", gradient)
    return u.emit("ScaledAdd", [result, u.weight, None, u.scalar("weightDecay", WD)], with_decay)


def moment(u: Update, step: ir.Value, prefix: str, kind: str, factor: ir.Value | None) -> ir.Value:
    """One running moment."""
    state = u.state(prefix)
    return u.emit("Accumulate", [state, step, factor], f"UpdatedVar___{state.name}", accumulationType=kind)


def _counted(u: Update) -> ir.Value:
    state = u.state("Step___", shape=(), dtype=FLOAT)
    output = nodes.tensor(f"UpdatedVar___{state.name}", state)
    return u.emit("Accumulate", [state, None], output, accumulationType="Add", factor=1.0)


def _norms(u: Update, updater: ir.Value) -> list[ir.Value]:
    """Squared norms of the weight and of its update direction."""
    pairs = (("LambR1Sq___", u.weight), ("LambR2Sq___", updater))
    return [u.emit("LambSquare", [v], nodes.tensor(f"{prefix}{u.name}", dtype=FLOAT, shape=())) for prefix, v in pairs]
