"""The steps of preparing a session, in the order in which PopART's errors appear."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

import patterns as rewrites

from ...builder.attribute_types import check_attribute_types
from ...enums import MeanReductionStrategy, ReductionType
from ...errors import popart_exception
from ...execution import Program, Structure, Training, Type, Variable
from ...execution.describe import graph_types, update_types
from ...execution.program import PREVIOUS_SCALE, SCALE_RATIO
from ...lowering import op_trace
from ...lowering.interpreter import names
from ...lowering.resolve import check_supported, has_effect, make_plan, needs
from ...model.input_shapes import InputShapeInfo
from ...model.lean import LeanModel
from ...model.session_model import read_session_model
from ...ops import facts
from ...ops.options import OperatorOptions
from ...optimizers import Adam, Optimizer
from ...optimizers.rules import Reduction, Weight
from ..call_checks import check_calls
from ..facts import option_facts
from ..matmul_checks import check_serialised_matmuls
from ..option_checks import IPU_LIKE, OptionFacts, announce, check_options, raise_all
from ..patterns_api import Patterns, check_mandatory, guarded
from . import gradients, hyper, loss_scale, source
from .anchoring import GRADIENT, anchors_of
from .clips import clip_groups
from .infos import host_types
from .kept import kept_types, place
from .source import Held
from .state import state_of

if TYPE_CHECKING:
    from ...ir_view import TrackedGradient


@dataclass(frozen=True)
class Request:
    """What a program asks for; everything is the session's own copy. `loss` and `optimizer` are None for inference."""

    model: Any
    data_flow: Any
    device: Any
    options: Any
    patterns: Patterns
    shapes: InputShapeInfo
    name: str
    loss: str | None = None
    optimizer: Optimizer | None = None


@dataclass(frozen=True)
class Prepared:
    """A session's step program and what the host needs to know about it.

    Attributes
    ----------
    source : LeanModel
        The model as given, for saving.
    program : Program
        What runs (before layout passes).
    held : mapping of str to Held
        Variables as the host sees them.
    initial : mapping of str to array
        First host copy of every variable.
    state : frozenset of str
        Variables that are optimizer state.
    hyper : HyperLayout or None
        Places of hyperparameters.
    infos : mapping of str to Type
        Type of every tensor as the IR has it.
    streams : mapping of str to Type
        Host types of the inputs.
    local_replicas : int
        Replicas of this process.
    kept : Path or None
        File of what was traced and compiled.
    traced_types : mapping of str to Type
        Types of the tensors before the patterns.
    """

    request: Request
    source: LeanModel
    program: Program
    held: Mapping[str, Held]
    initial: dict[str, np.ndarray]
    state: frozenset[str]
    hyper: hyper.HyperLayout | None
    infos: Mapping[str, Type]
    streams: Mapping[str, Type]
    local_replicas: int
    facts: OptionFacts
    constants: frozenset[str] = frozenset()
    kept: Path | None = None
    traced_types: Mapping[str, Type] = field(default_factory=dict)


def prepare(request: Request, tracked: Collection[TrackedGradient] | None = None) -> Prepared:
    """Check everything and build the step program.

    Parameters
    ----------
    request : Request
        What a program asks for.
    tracked : collection of TrackedGradient, optional
        What automatic loss scaling counts, where the op list has told.

    Raises
    ------
    popart_exception
        What a session's constructor can find wrong with model, options, anchors, loss or optimizer.
    """
    options, training = request.options, request.loss is not None
    if not training and not request.data_flow.anchors():
        raise popart_exception("User must specify an anchor tensor when doing inference.")
    read = read_session_model(request.model, request.shapes)
    model, graph = read.model, read.model.graph
    if not training:
        if options.enableGradientAccumulation:
            raise popart_exception("Gradient Accumulation only available when training.")
        loss_scale.refuse_inference(options)
    check_supported(graph, model.opset_imports)
    check_attribute_types(graph)
    facts = option_facts(model, request)
    saved_state = {name: tensor.numpy() for name, tensor in read.optimizer_state.items()}
    structure = _structure(request)
    held, constants = _variables(model, request, structure)
    base = _base_program(model, request, structure, held)
    kept = place(request, read.source, base, held)
    device_types = kept_types(kept) or graph_types(base)
    check_calls(graph, device_types, model.opset_imports.get("", 1))
    check_serialised_matmuls(graph, device_types)
    raise_all(check_options(options, facts))
    announce(options, facts)
    check_mandatory(request.patterns.selection)
    if training:
        made = _prepare_training(request, read.source, model, base, held, saved_state, device_types, facts, tracked)
    else:
        initial, none = _host_values(graph, held), frozenset()
        made = _finish(request, read.source, model, base, held, initial, None, device_types, none, constants, facts)
    return replace(made, kept=kept, traced_types=device_types)


def _structure(request: Request) -> Structure:
    options = request.options
    return Structure(
        request.data_flow.batchesPerStep(),
        options.accumulationFactor if options.enableGradientAccumulation else 1,
        options.getGlobalReplicationFactor(),
        bool(options.enableGradientAccumulation),
    )


def _variables(model: ir.Model, request: Request, structure: Structure) -> tuple[dict[str, Held], frozenset[str]]:
    """Initializers that live on the device, and those that are constants of the program."""
    training, options = request.loss is not None, request.options
    held: dict[str, Held] = {}
    constants = set()
    for name, value in model.graph.initializers.items():
        if value.const_value is None:
            continue
        entry = source.held_variable(model, value, structure, narrow=options.enableSupportedDataTypeCasting)
        floating = jnp.issubdtype(entry.variable.type.dtype, jnp.floating)
        if training and not floating:
            raise popart_exception(
                f"Currently only floating point variable tensors are updatable: initializer '{name}' has type "
                f"{entry.host_dtype}.\n  fix: make it a constant (aiOnnx.constant, or "
                "GraphTransformer.convertInitializersToConstants)."
            )
        if len(entry.variable.groups) > 1:
            value.shape = ir.Shape(entry.variable.type.shape)
            if not training and options.constantWeights:
                source.warn_grouped_constant(name)
        elif not training and options.constantWeights:
            constants.add(name)
            if not floating:
                continue
        held[name] = entry
    return held, frozenset(constants)


def _base_program(model: ir.Model, request: Request, structure: Structure, held: Mapping[str, Held]) -> Program:
    training = request.loss is not None
    streams = source.stream_types(model.graph)
    narrow = request.options.enableSupportedDataTypeCasting
    fed = {n: Type(t.shape, source.device_dtype(t.dtype, n, narrow=narrow)) for n, t in streams.items()}
    return Program(
        graph=model.graph,
        opsets=dict(model.opset_imports),
        structure=structure,
        streams=fed,
        variables={n: h.variable for n, h in held.items()},
        anchors=(),
        types={},
        options=_options_for_operators(request),
        training_mode=training,
        broadcast=source.broadcast_streams(model, streams),
        copies=gradients.copied_variables(model.graph, training),
        random=request.options.enableStochasticRounding
        or gradients.draws_numbers(model.graph, model.opset_imports, training),
    )


def _options_for_operators(request: Request) -> OperatorOptions:
    options = request.options
    return OperatorOptions(
        nonstable_softmax=options.enableNonStableSoftmax,
        strided_group_norm=options.groupNormStridedChannelGrouping,
        subsamples_slices="Slice2SliceSubsample" in request.patterns.selection,
        rounds_stochastically=options.enableStochasticRounding and request.device.type in IPU_LIKE,
        announces_operators=op_trace.asked_for(),
    )


def _prepare_training(
    request: Request,
    source_model: LeanModel,
    model: ir.Model,
    base: Program,
    held: dict[str, Held],
    saved_state: Mapping[str, np.ndarray],
    types: Mapping[str, Type],
    facts: OptionFacts,
    tracked: Collection[TrackedGradient] | None,
) -> Prepared:
    optimizer, loss, options, graph = request.optimizer, request.loss, request.options, model.graph
    assert optimizer is not None
    assert loss is not None
    gradients.check_loss(graph, loss, types)
    counted = None if tracked is None else loss_scale.separated(graph, tracked)
    own = None if counted is None else [name for name, _ in counted]
    types = {**types, **{name: types[tensor] for name, tensor in counted or ()}}
    differentiated = gradients.with_gradient(graph, loss, types, base.structure.replicas)
    trained = [n for n in held if n in differentiated and n not in base.copies]
    weights = {n: Weight(n, held[n].variable.type.dtype, len(held[n].variable.groups[0])) for n in trained}
    track = loss_scale.tracking(options, graph, types, differentiated, base.structure, optimizer, own)
    wide = types[loss].dtype == np.float16 and (options.ensureFp32LossScaleTensor or track is not None)
    streamed = not optimizer.value("lossScaling").isConst()
    layout = hyper.lay_out(optimizer, weights, _reduction(options, base.structure), types[loss], wide, streamed)
    training = Training(
        loss=loss,
        loss_type=types[loss],
        rules=layout.rules(optimizer),
        hyper=layout.places,
        loss_scale=layout.loss_scale,
        clips=clip_groups(optimizer, weights),
        wide_loss=wide,
        scaling=track,
        scaled_state=isinstance(optimizer, Adam) and optimizer.scaled_state and streamed,
        recompute=options.autoRecomputation.name,
        inverse_scales={} if track is None else layout.inverse_scales(optimizer),
        counter=_counter(layout.reduction),
    )
    values = _host_values(graph, held)
    state = state_of(training, optimizer, held, {**saved_state, **values})
    everything = {**held, **{n: s.held for n, s in state.items()}}
    variables = {n: h.variable for n, h in everything.items()}
    program = replace(base, training=training, scalars=layout.shown, variables=variables)
    extra = {**layout.types, **update_types(program), **{n: s.held.variable.type for n, s in state.items()}}
    extra |= dict.fromkeys(_shown_scalars(training, state), Type((), np.dtype(np.float32)))
    every = {**types, **{GRADIENT + t: types[t] for t in differentiated}, **extra}
    initial = {**values, **{n: s.first for n, s in state.items()}}
    return _finish(
        request, source_model, model, program, everything, initial, layout, every, differentiated, frozenset(), facts
    )


def _counter(reduction: Reduction) -> str:
    """Name of the counter of micro-batches, which only the running mean has."""
    return "Counter___mean" if reduction.accumulate and reduction.mean and reduction.running else ""


def _shown_scalars(training: Training, state: Collection[str]) -> list[str]:
    """Scalars that exist beside state and hyperparameters: of loss scaling, and the running mean's counter."""
    ratios = [n.replace(PREVIOUS_SCALE, SCALE_RATIO, 1) for n in state if n.startswith(PREVIOUS_SCALE)]
    final = [] if training.scaling is None else ["finalLossScale", *training.inverse_scales]
    return [*ratios, *final, *filter(None, [training.counter])]


def _host_values(graph: ir.Graph, held: Mapping[str, Held]) -> dict[str, np.ndarray]:
    """First host copies of the model's variables."""
    found = {}
    for name in held:
        tensor = graph.initializers[name].const_value
        assert tensor is not None
        found[name] = tensor.numpy()
    return found


def _reduction(options: Any, structure: Structure) -> Reduction:
    mean = options.accumulationAndReplicationReductionType is ReductionType.Mean
    running = options.meanAccumulationAndReplicationReductionStrategy is MeanReductionStrategy.Running
    return Reduction(structure.accumulates, structure.accumulation, structure.replicas, mean, running)


def _finish(
    request: Request,
    source_model: LeanModel,
    model: ir.Model,
    program: Program,
    held: Mapping[str, Held],
    initial: dict[str, np.ndarray],
    layout: hyper.HyperLayout | None,
    types: Mapping[str, Type],
    differentiated: Collection[str],
    constants: frozenset[str],
    facts: OptionFacts,
) -> Prepared:
    """Check the anchors, apply the patterns, and put everything together."""
    host = host_types(model.graph, types)
    anchors = anchors_of(request.data_flow, program.structure, types, names(model.graph))
    program = replace(program, anchors=anchors, types=types, variables=_drifting(program))
    program = replace(program, graph=_rewritten(model, request, program, differentiated))
    _check_work(program)
    program = replace(program, streams=_needed_streams(program))
    options = request.options
    return Prepared(
        request=request,
        source=source_model,
        program=program,
        held={n: replace(h, variable=program.variables[n]) for n, h in held.items()},
        initial=initial,
        state=frozenset(n for n in initial if n not in model.graph.initializers),
        hyper=layout,
        infos=host,
        streams=source.stream_types(model.graph),
        local_replicas=options.replicatedGraphCount if options.enableReplicatedGraphs else 1,
        facts=facts,
        constants=constants,
    )


def _drifting(program: Program) -> dict[str, Variable]:
    """Variables, with those that replicas change each for themselves marked."""
    return {n: replace(v, drifts=n in program.copies) for n, v in program.variables.items()}


def _rewritten(model: ir.Model, request: Request, program: Program, differentiated: Collection[str]) -> ir.Graph:
    """The graph after the patterns; anchors, variables and copied tensors keep their names."""
    training = request.loss is not None
    keep = {a.source for a in program.anchors} | {a.name for a in program.anchors}
    keep |= set(program.variables) | {*program.copies.values()} | ({request.loss} if request.loss else set())
    if program.training is not None and program.training.scaling is not None:
        keep |= {n for t in program.training.scaling.tracked for n in (t, GRADIENT + t)}
    protected = frozenset(n for n in keep if n)
    guarded(
        rewrites.apply,
        model,
        request.patterns.selection,
        facts,
        mode="training" if training else "inference",
        protected=protected,
        accumulates=program.structure.accumulates,
    )
    return model.graph


def _needed_streams(program: Program) -> dict[str, Type]:
    """Streams that anchors, updates or copies depend on."""
    known = names(program.graph)
    shown = {a.source.removeprefix(GRADIENT) for a in program.anchors}
    want = shown | set(program.copies.values()) | ({program.training.loss} if program.training else set())
    values = tuple(known[n] for n in sorted(want) if n in known)
    plan = make_plan(program.graph, values, program.opsets, popart=True)
    read = {v.name for step in plan.steps for v in needs(step.node)} | {v.name for v in values}
    return {n: t for n, t in program.streams.items() if n in read}


def _check_work(program: Program) -> None:
    """Raise when no operator is needed by an anchor or an update."""
    if program.training is not None and program.training.rules:
        return
    known = names(program.graph)
    shown = [a.source.removeprefix(GRADIENT) for a in program.anchors]
    makers = [known[n].producer() for n in (*shown, *program.copies.values()) if n in known]
    works = any(node is not None and node.op_type != "Constant" for node in makers)
    if not works and not any(has_effect(node) for node in program.graph):
        raise popart_exception("All operations in the main graph were pruned, nothing to compute")
