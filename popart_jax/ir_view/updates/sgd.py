"""SGD: without momentum, with the combined accumulator (default), with separate ones."""

from __future__ import annotations

import onnx_ir as ir

from patterns import static_shape

from .. import nodes
from .common import LOSS_SCALING, Updates

LR, DM, WD, MM, VS = "learningRate", "dampening", "weightDecay", "momentum", "velocityScaling"


def update(u: Updates, weight: ir.Value, gradient: ir.Value) -> None:
    """Append the update ops of one weight."""
    name = weight.name or ""
    if name not in u.optimizer.momentum:
        _plain(u, weight, gradient)
    elif u.optimizer.mode == "Separate":
        _separate(u, weight, gradient)
    else:
        _combined(u, weight, gradient)


def _plain(u: Updates, weight: ir.Value, gradient: ir.Value) -> None:
    total = u.accumulated(gradient, weight)
    rate = u.scalar("scaledLearningRate0", weight, LR, DM, LOSS_SCALING)
    decay = u.scalar("weightDecayScaleFactor0", weight, LR, DM, WD)
    u.emit("SGD0VarUpdate", [weight, total, rate, decay], f"UpdatedVar___{weight.name}", weight=weight)
    u.reset(weight)


def _combined(u: Updates, weight: ir.Value, gradient: ir.Value) -> None:
    name = weight.name
    velocity = u.state("Accl___", weight)
    many = u.is_shared(weight)
    if many and not u.options.accumulate:
        gradient = u.reduced(gradient, weight, f"FinalReducedGradient___{name}", nodes.NORMAL)
    late = many and u.options.accumulate
    factor = u.scalar("dampeningScaleFactor1", weight, DM, VS, LOSS_SCALING)
    total = u.emit(
        "Accumulate", [velocity, gradient, factor], f"{'AcclIntoReduce' if late else 'AcclIntoUpdate'}___{name}",
        weight=weight, context=nodes.NORMAL, accumulationType="DampenedAdd",
    )  # fmt: skip
    raw = _raw_gradient(u, weight, gradient) if name in u.optimizer.nesterov else None
    if late:
        total = u.reduced(total, weight, f"AcclIntoUpdate___{name}", nodes.OUTER)
    step = total
    if raw is not None:
        step = _nesterov(u, weight, raw, total, "1")
    rate = u.scalar("scaledLearningRate1", weight, LR, VS)
    u.emit("SGD1VarUpdate", [weight, step, rate], f"UpdatedVar___{name}", weight=weight)
    scalars = [u.scalar("scaledMomentum1", weight, MM), u.scalar("scaledWeightDecay1", weight, DM, WD, VS)]
    u.emit("SGD1AcclUpdate", [total, weight, *scalars], f"AcclOutOfAcclUpdate___{name}", weight=weight)


def _raw_gradient(u: Updates, weight: ir.Value, gradient: ir.Value) -> ir.Value:
    """Nesterov's plain gradient sum, in a variable of its own while accumulating."""
    if not u.options.accumulate:
        return gradient
    name = f"Accl___{weight.name}_nesterovGrad"
    if name not in u.sources:
        u.sources[name] = nodes.source(name, "variable", weight.dtype, static_shape(weight))
    total = u.emit(
        "Accumulate", [u.sources[name], gradient], f"UpdatedVar___{name}", weight=weight, context=nodes.NORMAL,
        accumulationType="Add",
    )  # fmt: skip
    reduced = u.reduced(total, weight, f"FinalReducedGradient___{weight.name}", nodes.OUTER)
    u.emit("AccumulatorZero", [u.sources[name]], f"Zeroed___{name}", weight=weight)
    return reduced


def _nesterov(u: Updates, weight: ir.Value, gradient: ir.Value, velocity: ir.Value, suffix: str) -> ir.Value:
    scalars = [
        u.scalar("sgdWeightDecay", weight, WD),
        u.scalar(f"nesterovDampeningScaleFactor{suffix}", weight, VS),
        u.scalar(f"nesterovGradScaleFactor{suffix}", weight, VS, LOSS_SCALING),
        u.scalar("sgdMomentum", weight, MM),
    ]
    name = f"NesterovUpdater___{weight.name}"
    return u.emit("SGD1Nesterov", [gradient, weight, velocity, *scalars], name, weight=weight)


def _separate(u: Updates, weight: ir.Value, gradient: ir.Value) -> None:
    total = u.accumulated(gradient, weight)
    velocity = u.state("Accl1___", weight)
    scalars = [u.scalar("scaledMomentum2", weight, MM), u.scalar("scaledWeightDecay1", weight, DM, WD, VS)]
    name = f"UpdatedVar___Decayed___Accl1___{weight.name}"
    decayed = u.emit("SGD2PartialAcclUpdate", [velocity, weight, *scalars], name, weight=weight)
    factor = u.scalar("dampeningScaleFactor2", weight, DM, VS, LOSS_SCALING)
    moved = u.emit(
        "Accumulate", [decayed, total, factor], f"UpdatedVar___Accl1___{weight.name}", weight=weight,
        accumulationType="DampenedAdd",
    )  # fmt: skip
    step = _nesterov(u, weight, total, moved, "2") if weight.name in u.optimizer.nesterov else moved
    rate = u.scalar("scaledLearningRate2", weight, LR, VS)
    u.emit("SGD2VarUpdate", [weight, step, rate], f"UpdatedVar___{weight.name}", weight=weight)
    u.reset(weight)
