"""Adds training to a step program: gradients, the update of each weight, optimizer state, hyperparameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from ... import ir_view
from ...enums import MeanReductionStrategy, ReductionType
from ...errors import popart_exception
from ...execution import Program, Structure, Training, Type
from ...execution.describe import update_types
from ...execution.loss_scaling import Tracking, shown_types
from ...execution.program import PREVIOUS_SCALE, SCALE_RATIO
from ...functions.tied import transposed_copies
from ...logs import module_logger
from ...optimizers import SGD, Adam, Optimizer
from ...optimizers.rules import Reduction, Weight
from ..options.session_options import SessionOptions
from . import gradients, hyper, loss_scale
from .anchoring import GRADIENT
from .described import Described
from .op_list_facts import op_list_facts
from .source import HostVariable
from .state import StateTensor, state_of


@dataclass(frozen=True)
class StepParts:
    """A step program before anchors and patterns."""

    program: Program  # what runs
    types: Mapping[str, Type]  # device types of all tensors that can be anchored
    variables: Mapping[str, HostVariable]
    state: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])  # initial values of optimizer state
    hyper: hyper.HyperLayout | None = None  # positions of hyperparameters


def with_training(session: Described, types: Mapping[str, Type], known: Mapping[str, np.ndarray]) -> StepParts:
    """Add the update of the weights to the program of a session, which is the forward pass.

    `types` are the device types of the graph's tensors, `known` the values of weights and of state saved with the
    model. Raises popart_exception where the loss, the optimizer, or the settings of automatic loss scaling do not fit
    the graph.
    """
    request, base = session.request, session.program
    optimizer, loss, options = request.optimizer, request.loss, request.options
    assert optimizer is not None
    assert loss is not None
    gradients.check_loss(base.graph, loss, types)
    differentiated = gradients.with_gradient(base, loss, types, request)
    trained = [n for n in session.variables if n in differentiated and n not in base.copies]
    gradients.warn_of_untrained(base.graph, differentiated, session.variables.keys() - base.copies.keys(), types)
    _warn_of_copies(base.graph, trained)
    for name in trained:
        optimizer.check_state_types(name)
    _warn_of_unknown(optimizer, session.variables)
    clips = _clip_groups(optimizer, trained)
    track = None
    if options.automaticLossScalingSettings.enabled:
        track, more = _tracking(replace(session, trained=trained), types, optimizer)
        types = {**types, **more}
        differentiated = gradients.with_gradient(base, loss, types, request)
    wide = types[loss].dtype == np.float16 and (options.ensureFp32LossScaleTensor or track is not None)
    streamed = not optimizer.value("lossScaling").isConst()
    reduction = _reduction(options, base.structure)
    layout = hyper.lay_out(optimizer, _weights(session, trained), reduction, types[loss], wide, streamed)
    training = Training(
        loss=loss,
        loss_type=types[loss],
        rules=layout.rules(optimizer),
        hyper=layout.places,
        loss_scale=layout.loss_scale,
        clips=clips,
        wide_loss=wide,
        scaling=track,
        scaled_state=isinstance(optimizer, Adam) and optimizer.scaled_state and streamed,
        inverse_scales={} if track is None else layout.inverse_scales(optimizer),
        counter=_counter(reduction),
    )
    state = state_of(training, optimizer, session.variables, known)
    variables = {**session.variables, **{n: s.variable for n, s in state.items()}}
    program = replace(
        base, training=training, scalars=layout.by_tensor, variables={n: v.variable for n, v in variables.items()}
    )
    every = _every_type(program, types, differentiated, layout.types, state, reduction.accumulate)
    return StepParts(program, every, variables, {n: s.first for n, s in state.items()}, layout)


def _every_type(
    program: Program,
    types: Mapping[str, Type],
    differentiated: Collection[str],
    scalars: Mapping[str, Type],
    state: Mapping[str, StateTensor],
    accumulates: bool,
) -> dict[str, Type]:
    """Device types of all tensors that a training program's anchors may name."""
    training = program.training
    assert training is not None
    track, replicas = training.scaling, program.structure.replicas
    return {
        **types,
        **{GRADIENT + t: kind for t, kind in gradients.gradient_types(program.graph, differentiated, types).items()},
        **scalars,
        **update_types(program),
        **{n: s.variable.variable.type for n, s in state.items()},
        **({} if track is None else shown_types(track, accumulates, replicas)),
        **dict.fromkeys(_further_scalars(training, state), Type((), np.dtype(np.float32))),
    }


def _warn_of_copies(graph: ir.Graph, trained: Collection[str]) -> None:
    """Log which weights are stored twice, so that both are trained, each on its own."""
    for copy, weight in transposed_copies(graph, inputs=True).items():
        if copy in trained and weight in trained:
            module_logger("session").warning(
                "'%s' is '%s' transposed, stored once more: as in PopART each is trained on its own. to_jax trains "
                "them as one.", copy, weight,
            )  # fmt: skip


def _tracking(
    session: Described, types: Mapping[str, Type], optimizer: Optimizer
) -> tuple[Tracking, Mapping[str, Type]]:
    """The tracking of automatic loss scaling, and types that include the tensors it adds to the graph."""
    settings, program = session.request.options.automaticLossScalingSettings, session.program
    loss_scale.check(settings, program.graph, optimizer)
    tracked = ir_view.tracked_gradients(op_list_facts(session))
    separated = loss_scale.separated(program.graph, tracked)
    more = {name: types[tensor] for name, tensor in separated}
    loss = session.request.loss or ""
    differentiated = gradients.with_gradient(program, loss, {**types, **more}, session.request)
    candidates = [name for name, _ in separated if name in differentiated and more[name].dtype == np.float16]
    return loss_scale.tracking(settings, candidates), more


def _weights(session: Described, trained: Collection[str]) -> dict[str, Weight]:
    variables = {n: session.variables[n].variable for n in trained}
    return {n: Weight(n, v.type.dtype, len(v.groups[0])) for n, v in variables.items()}


def _counter(reduction: Reduction) -> str:
    """Name of the counter of micro-batches, which only the running mean has."""
    return "Counter___mean" if reduction.accumulate and reduction.mean and reduction.running else ""


def _warn_of_unknown(optimizer: Optimizer, weights: Collection[str]) -> None:
    """Log values of `insertSpecific` for tensors that are no weights: PopART never looks them up."""
    for name in optimizer.specific_weights():
        if name not in weights:
            module_logger("session").warning(
                "insertSpecific was called for '%s', which is no weight of the model: its values have no effect.", name
            )


def _clip_groups(optimizer: Optimizer, trained: Collection[str]) -> tuple[tuple[tuple[str, ...], float], ...]:
    """Weights and largest norm of every group; popart_exception for a listed weight that is not updated."""
    if not isinstance(optimizer, (SGD, Adam)):
        return ()
    groups: list[tuple[tuple[str, ...], float]] = []
    for clip in optimizer.clip_norms():
        members = tuple(trained) if clip.covers_all() else tuple(clip.weightIds)
        for name in members:
            if name not in trained:
                raise popart_exception(f"Could not find a varupdate op for tensor {name}")
        if members:
            groups.append((members, clip.maxNorm))
    return tuple(groups)


def _further_scalars(training: Training, state: Collection[str]) -> list[str]:
    """Scalars that exist beside state and hyperparameters: of loss scaling, and the running mean's counter."""
    ratios = [n.replace(PREVIOUS_SCALE, SCALE_RATIO, 1) for n in state if n.startswith(PREVIOUS_SCALE)]
    final = [] if training.scaling is None else ["finalLossScale", *training.inverse_scales]
    return [*ratios, *final, *filter(None, [training.counter])]


def _reduction(options: SessionOptions, structure: Structure) -> Reduction:
    mean = options.accumulationAndReplicationReductionType is ReductionType.Mean
    running = options.meanAccumulationAndReplicationReductionStrategy is MeanReductionStrategy.Running
    return Reduction(structure.accumulates, structure.accumulation, structure.replicas, mean, running)
