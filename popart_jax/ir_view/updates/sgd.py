"""SGD: without momentum, with the combined accumulator (default), with separate ones."""

from __future__ import annotations

import onnx_ir as ir

from patterns import static_shape

from .. import nodes
from .common import LOSS_SCALING, Update

LR, DM, WD, MM, VS = "learningRate", "dampening", "weightDecay", "momentum", "velocityScaling"


def update(u: Update, gradient: ir.Value) -> None:
    """Append the update ops of one weight."""
    if u.name not in u.optimizer.momentum:
        _plain(u, gradient)
    elif u.optimizer.mode == "Separate":
        _separate(u, gradient)
    else:
        _combined(u, gradient)


def _plain(u: Update, gradient: ir.Value) -> None:
    total = u.accumulated(gradient)
    rate = u.scalar("scaledLearningRate0", LR, DM, LOSS_SCALING)
    decay = u.scalar("weightDecayScaleFactor0", LR, DM, WD)
    u.emit("SGD0VarUpdate", [u.weight, total, rate, decay], f"UpdatedVar___{u.name}")
    u.reset()


def _combined(u: Update, gradient: ir.Value) -> None:
    name = u.name
    velocity = u.state("Accl___")
    many = u.is_shared
    if many and not u.options.accumulate:
        gradient = u.reduced(gradient, f"FinalReducedGradient___{name}", nodes.NORMAL)
    late = many and u.options.accumulate
    factor = u.scalar("dampeningScaleFactor1", DM, VS, LOSS_SCALING)
    total = u.emit(
        "Accumulate", [velocity, gradient, factor], f"{'AcclIntoReduce' if late else 'AcclIntoUpdate'}___{name}",
        context=nodes.NORMAL, accumulationType="DampenedAdd",
    )  # fmt: skip
    raw = _raw_gradient(u, gradient) if name in u.optimizer.nesterov else None
    if late:
        total = u.reduced(total, f"AcclIntoUpdate___{name}", nodes.OUTER)
    step = total
    if raw is not None:
        step = _nesterov(u, raw, total, "1")
    rate = u.scalar("scaledLearningRate1", LR, VS)
    u.emit("SGD1VarUpdate", [u.weight, step, rate], f"UpdatedVar___{name}")
    scalars = [u.scalar("scaledMomentum1", MM), u.scalar("scaledWeightDecay1", DM, WD, VS)]
    u.emit("SGD1AcclUpdate", [total, u.weight, *scalars], f"AcclOutOfAcclUpdate___{name}")


def _raw_gradient(u: Update, gradient: ir.Value) -> ir.Value:
    """Nesterov's plain gradient sum, in a variable of its own while accumulating."""
    if not u.options.accumulate:
        return gradient
    name = f"Accl___{u.name}_nesterovGrad"
    state, to = u.source(name, "variable", u.weight.dtype, static_shape(u.weight)), f"UpdatedVar___{name}"
    total = u.emit("Accumulate", [state, gradient], to, context=nodes.NORMAL, accumulationType="Add")
    reduced = u.reduced(total, f"FinalReducedGradient___{u.name}", nodes.OUTER)
    u.emit("AccumulatorZero", [state], f"Zeroed___{name}")
    return reduced


def _nesterov(u: Update, gradient: ir.Value, velocity: ir.Value, suffix: str) -> ir.Value:
    scalars = [
        u.scalar("sgdWeightDecay", WD),
        u.scalar(f"nesterovDampeningScaleFactor{suffix}", VS),
        u.scalar(f"nesterovGradScaleFactor{suffix}", VS, LOSS_SCALING),
        u.scalar("sgdMomentum", MM),
    ]
    name = f"NesterovUpdater___{u.name}"
    return u.emit("SGD1Nesterov", [gradient, u.weight, velocity, *scalars], name)


def _separate(u: Update, gradient: ir.Value) -> None:
    total = u.accumulated(gradient)
    velocity = u.state("Accl1___")
    scalars = [u.scalar("scaledMomentum2", MM), u.scalar("scaledWeightDecay1", DM, WD, VS)]
    name = f"UpdatedVar___Decayed___Accl1___{u.name}"
    decayed = u.emit("SGD2PartialAcclUpdate", [velocity, u.weight, *scalars], name)
    factor = u.scalar("dampeningScaleFactor2", DM, VS, LOSS_SCALING)
    name = f"UpdatedVar___Accl1___{u.name}"
    moved = u.emit("Accumulate", [decayed, total, factor], name, accumulationType="DampenedAdd")
    step = _nesterov(u, total, moved, "2") if u.name in u.optimizer.nesterov else moved
    rate = u.scalar("scaledLearningRate2", LR, VS)
    u.emit("SGD2VarUpdate", [u.weight, step, rate], f"UpdatedVar___{u.name}")
    u.reset()
