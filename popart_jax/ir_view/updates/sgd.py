"""SGD: without momentum, with the combined accumulator (default), with separate ones."""

from __future__ import annotations

import onnx_ir as ir

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
    u.emit("SGD0VarUpdate", [weight, total, rate, decay], u.updated(weight), weight=weight)
    u.reset(weight)


def _combined(u: Updates, weight: ir.Value, gradient: ir.Value) -> None:
    name = weight.name
    velocity = u.state("Accl___", weight)
    many = u.is_shared(weight)
    if many and not u.options.accumulate:
        gradient = u.reduced(gradient, weight, f"FinalReducedGradient___{name}", nodes.NORMAL)
    late = many and u.options.accumulate
    factor = u.scalar("dampeningScaleFactor1", weight, DM, VS, LOSS_SCALING)
    total = nodes.tensor(f"{'AcclIntoReduce' if late else 'AcclIntoUpdate'}___{name}", velocity)
    u.emit(
        "Accumulate", [velocity, gradient, factor], total, weight=weight, context=nodes.NORMAL,
        attributes={"accumulationType": "DampenedAdd"},
    )  # fmt: skip
    raw = _raw_gradient(u, weight, gradient) if name in u.optimizer.nesterov else None
    if late:
        total = u.reduced(total, weight, f"AcclIntoUpdate___{name}", nodes.OUTER)
    step = total
    if raw is not None:
        step = _nesterov(u, weight, raw, total, "1")
    u.emit(
        "SGD1VarUpdate",
        [weight, step, u.scalar("scaledLearningRate1", weight, LR, VS)],
        u.updated(weight),
        weight=weight,
    )
    scalars = [u.scalar("scaledMomentum1", weight, MM), u.scalar("scaledWeightDecay1", weight, DM, WD, VS)]
    decayed = nodes.tensor(f"AcclOutOfAcclUpdate___{name}", velocity)
    u.emit("SGD1AcclUpdate", [total, weight, *scalars], decayed, weight=weight)


def _raw_gradient(u: Updates, weight: ir.Value, gradient: ir.Value) -> ir.Value:
    """Nesterov's plain gradient sum, kept beside the velocity while accumulating."""
    if not u.options.accumulate:
        return gradient
    name = f"Accl___{weight.name}_nesterovGrad"
    if name not in u.sources:
        u.sources[name] = nodes.source(
            name, "variable", weight.dtype, None if weight.shape is None else weight.shape.numpy()
        )
    total = nodes.tensor(f"UpdatedVar___{name}", weight)
    u.emit(
        "Accumulate",
        [u.sources[name], gradient],
        total,
        weight=weight,
        context=nodes.NORMAL,
        attributes={"accumulationType": "Add"},
    )
    reduced = u.reduced(total, weight, f"FinalReducedGradient___{weight.name}", nodes.OUTER)
    zeroed = nodes.tensor(f"Zeroed___{name}", weight)
    u.emit("AccumulatorZero", [u.sources[name]], zeroed, weight=weight)
    return reduced


def _nesterov(u: Updates, weight: ir.Value, gradient: ir.Value, velocity: ir.Value, suffix: str) -> ir.Value:
    scalars = [
        u.scalar("sgdWeightDecay", weight, WD),
        u.scalar(f"nesterovDampeningScaleFactor{suffix}", weight, VS),
        u.scalar(f"nesterovGradScaleFactor{suffix}", weight, VS, LOSS_SCALING),
        u.scalar("sgdMomentum", weight, MM),
    ]
    output = nodes.tensor(f"NesterovUpdater___{weight.name}", weight)
    return u.emit("SGD1Nesterov", [gradient, weight, velocity, *scalars], output, weight=weight)


def _separate(u: Updates, weight: ir.Value, gradient: ir.Value) -> None:
    total = u.accumulated(gradient, weight)
    velocity = u.state("Accl1___", weight)
    scalars = [u.scalar("scaledMomentum2", weight, MM), u.scalar("scaledWeightDecay1", weight, DM, WD, VS)]
    decayed = nodes.tensor(f"UpdatedVar___Decayed___Accl1___{weight.name}", velocity)
    u.emit("SGD2PartialAcclUpdate", [velocity, weight, *scalars], decayed, weight=weight)
    factor = u.scalar("dampeningScaleFactor2", weight, DM, VS, LOSS_SCALING)
    moved = nodes.tensor(f"UpdatedVar___Accl1___{weight.name}", velocity)
    u.emit("Accumulate", [decayed, total, factor], moved, weight=weight, attributes={"accumulationType": "DampenedAdd"})
    step = _nesterov(u, weight, total, moved, "2") if weight.name in u.optimizer.nesterov else moved
    u.emit(
        "SGD2VarUpdate",
        [weight, step, u.scalar("scaledLearningRate2", weight, LR, VS)],
        u.updated(weight),
        weight=weight,
    )
    u.reset(weight)
