"""Adam, AdaMax and Lamb, with and without bias correction."""

from __future__ import annotations

import onnx_ir as ir

from .. import nodes
from .common import LOSS_SCALING, Updates

LR, WD, B1, B2, EPS, NORM = "learningRate", "weightDecay", "beta1", "beta2", "eps", "maxWeightNorm"
FLOAT = ir.DataType.FLOAT


def update(u: Updates, weight: ir.Value, gradient: ir.Value) -> None:
    """Append the update ops of one weight."""
    mode, name = u.optimizer.mode, weight.name
    decays = name in u.optimizer.weight_decay
    step = unscaled(u, weight, u.accumulated(gradient, weight), "adamGradientScaling", decays)
    counter = _counted(u, weight) if mode in ("Adam", "Lamb", "AdaMax") else None
    first = moment(u, weight, step, "Accl1___", "MovingAverage", u.scalar("adamBeta1", weight, B1))
    kind = "Infinity" if mode == "AdaMax" else "MovingAverageSquare"
    second = moment(u, weight, step, "Accl2___", kind, u.scalar("adamBeta2", weight, B2))
    scalars = [
        u.scalar("weightDecay", weight, WD),
        u.scalar("adamBeta1", weight, B1),
        u.scalar("adamBeta2", weight, B2),
        u.scalar("adamEps", weight, EPS, *([LOSS_SCALING] if u.optimizer.scaled_state else [])),
    ]
    reads = weight if decays and not u.optimizer.l2 else None
    updater = u.emit("AdamUpdater", [reads, first, second, counter, *scalars], f"AdamUpdater___{name}", weight=weight)
    norms = _norms(u, weight, updater) if mode.startswith("Lamb") and u.optimizer.trust_ratio else [None, None]
    rates = [u.scalar("learningRate", weight, LR), u.scalar("maxWeightNorm", weight, NORM) if norms[0] else None]
    u.emit("AdamVarUpdate", [weight, updater, *norms, *rates], f"UpdatedVar___{name}", weight=weight)
    u.reset(weight)


def unscaled(u: Updates, weight: ir.Value, gradient: ir.Value, base: str, decays: bool) -> ir.Value:
    """Take out loss scale and averaging, and add the L2 term."""
    divisor = u.scalar(base, weight, *([] if u.optimizer.scaled_state else [LOSS_SCALING]))
    result = nodes.tensor(f"{gradient.name}__unscaled", gradient)
    if divisor is None:
        u.emit("Scale", [gradient], result, weight=weight)
    else:
        u.emit("Mul", [gradient, divisor], result, weight=weight, domain="")
    if not (u.optimizer.l2 and decays):
        return result
    with_decay = nodes.tensor(f"{gradient.name}__l2", gradient)
    return u.emit("ScaledAdd", [result, weight, None, u.scalar("weightDecay", weight, WD)], with_decay, weight=weight)


def moment(u: Updates, weight: ir.Value, step: ir.Value, prefix: str, kind: str, factor: ir.Value | None) -> ir.Value:
    """One running moment."""
    state = u.state(prefix, weight)
    return u.emit(
        "Accumulate", [state, step, factor], f"UpdatedVar___{state.name}", weight=weight, accumulationType=kind
    )


def _counted(u: Updates, weight: ir.Value) -> ir.Value:
    state = u.state("Step___", weight, shape=(), dtype=FLOAT)
    output = nodes.tensor(f"UpdatedVar___{state.name}", state)
    return u.emit("Accumulate", [state, None], output, weight=weight, accumulationType="Add", factor=1.0)


def _norms(u: Updates, weight: ir.Value, updater: ir.Value) -> list[ir.Value]:
    """Squared norms of the weight and of its update direction."""
    pairs = (("LambR1Sq___", weight), ("LambR2Sq___", updater))
    return [
        u.emit("LambSquare", [v], nodes.tensor(f"{prefix}{weight.name}", dtype=FLOAT, shape=()), weight=weight)
        for prefix, v in pairs
    ]
