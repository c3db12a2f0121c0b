"""The steps of preparing a session, in the order in which PopART's errors appear."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

import patterns as rewrites

from ... import ir_view
from ..._compat.jax import compute_in_callers_thread
from ...builder.attribute_types import check_attribute_types
from ...enums import BatchSerializationBatchSchedule, RecomputationType
from ...errors import IN_JAX, noted, popart_exception
from ...execution import Program, Structure, Type, Variable
from ...execution.batch_parts import BatchParts
from ...execution.describe import graph_types
from ...execution.graph_passes import correct_shapes
from ...lowering import op_trace
from ...lowering.checks.known_attributes import warn_of_unknown_attributes
from ...lowering.interpreter import names
from ...lowering.passes import size_masks
from ...lowering.resolve import check_supported, has_effect, needs
from ...model.session_model import SessionModel, read_session_model
from ...ops import facts as operator_facts
from ...ops.options import OperatorOptions
from ...timings import phase
from ..checks.annotations import check_annotations
from ..checks.calls import check_calls
from ..checks.facts import option_facts
from ..checks.options import IPU_LIKE, OptionFacts, announce, check_distribution, check_options, raise_all
from ..checks.products import check_float8_products, check_serialised_matmuls
from ..patterns_api import check_mandatory, guarded
from ..requests import Request
from . import gradients, loss_scale, source
from .anchoring import GRADIENT, anchors_of
from .compile_cache import Model, cache_file, key_of, stored_types
from .described import Described
from .hyper import HyperLayout
from .infos import host_types
from .op_list_facts import op_list_facts
from .rules import Picked, take_onnx_rules
from .shards import split_over_devices
from .source import HostVariable
from .training import StepParts, with_training
from .work import check_subgraphs, check_work

_MOST_MICRO_BATCHES = 2**31 - 1  # a loop's counter is an INT32 on the device


@dataclass(frozen=True, kw_only=True)
class Prepared(Described):
    """A session's step program and what the host needs to know about it."""

    initial: dict[str, np.ndarray]  # first host copy of every variable
    hyper: HyperLayout | None  # places of hyperparameters
    streams: Mapping[str, Type]  # host types of the inputs
    facts: OptionFacts
    cache_file: Path | None  # file beside JAX's compilation cache for the compiled programs
    traced_types: Mapping[str, Type]  # types of the tensors before the patterns

    @cached_property
    def key(self) -> str:
        """The key of the compiled programs in files that may be carried elsewhere."""
        weights = self.variables.keys() - self.state
        key = key_of(self.request, Model(self.source, self.graph, self.program.opsets, weights), portable=True)
        assert key is not None  # a portable key has only plain data
        return key

    def require_device_types(self) -> None:
        """Refuse tensors that no device can hold."""
        host = {n: t.dtype for n, t in self.streams.items()} | {n: v.host_dtype for n, v in self.variables.items()}
        if self.request.strict:
            host |= source.cast_types(self.program.graph, host)
        source.require_device_types(host, popart=self.request.strict)

    @cached_property
    def op_list_facts(self) -> ir_view.IrFacts:
        """Facts from which PopART's op list is made."""
        return op_list_facts(self)


def prepare(request: Request) -> Prepared:
    """Check everything and build the step program.

    Raises popart_exception where the model, the options, the anchors, the loss or the optimizer are wrong.
    """
    compute_in_callers_thread()
    options, training = request.options, request.loss is not None
    picked = Picked(request) if training else None
    read, given = _read_model(request, picked)
    model = read.model
    facts = option_facts(model, request)
    raise_all(check_distribution(options))
    structure = _structure(request)
    weights, constants = _variables(model, request, structure, _frozen(model.graph, picked))
    base = _base_program(model, request, structure, weights)
    if request.strict:
        source.check_trip_counts(model.graph, base.streams.keys() | weights.keys() - constants)
    cached = cache_file(request, Model(read.source, given, base.opsets, weights), structure)
    types = stored_types(cached) or graph_types(base)
    _check_typed(model, types, request, facts, weights.keys() - constants)
    values = _host_values(model.graph, weights)
    step = StepParts(base, types, weights)
    if training:
        session = Described(request, read.source, given, base, host_types(given, types), weights, constants=constants)
        saved = {name: tensor.numpy() for name, tensor in read.optimizer_state.items()}
        step = with_training(session, types, {**saved, **values})
    check_work(step.program, request.data_flow.anchors())
    if request.strict:
        check_subgraphs(step.program.graph)
    program = _completed(step, model, request)
    program = split_over_devices(program, options.engineOptions, [n for n in weights if n in program.variables])
    prepared = Prepared(
        request=request,
        source=read.source,
        graph=given,
        program=program,
        infos=host_types(given, step.types),
        variables={n: replace(v, variable=program.variables[n]) for n, v in step.variables.items()},
        trained=() if program.training is None else tuple(program.training.rules),
        constants=constants,
        state=frozenset(step.state),
        initial={**values, **step.state},
        hyper=step.hyper,
        streams=source.stream_types(model.graph),
        facts=facts,
        cache_file=cached,
        traced_types=types,
    )
    return replace(prepared, program=_in_parts(prepared, _recomputing(prepared)))


def _read_model(request: Request, picked: Picked | None) -> tuple[SessionModel, ir.Graph]:
    """The model, checked as far as no types of tensors are needed, and its graph before anything changes it."""
    training, strict = request.loss is not None, request.strict
    choose = [] if picked is None else [picked.choose]
    read = read_session_model(request.model, request.shapes, *choose, anywhere=strict)
    model = read.model
    if not training and not request.data_flow.anchors():
        raise popart_exception("User must specify an anchor tensor when doing inference.")
    if not strict:
        take_onnx_rules(model)
        size_masks(model.graph)
    given = model.graph.clone()
    if not training:
        if request.options.enableGradientAccumulation:
            raise popart_exception("Gradient Accumulation only available when training.")
        loss_scale.refuse_inference(request.options)
    check_supported(model.graph, model.opset_imports, popart=strict)
    warn_of_unknown_attributes(model.graph, model.opset_imports)
    check_attribute_types(model.graph)
    if strict:
        source.check_drawn_types(model)
    return read, given


def _check_typed(
    model: ir.Model, types: Mapping[str, Type], request: Request, facts: OptionFacts, variables: Collection[str]
) -> None:
    """Check what needs the types of tensors, then the options and patterns."""
    check_calls(model.graph, types, model.opset_imports.get("", 1))
    check_serialised_matmuls(model.graph, types)
    if request.strict:
        check_float8_products(model.graph, types, request.options.partialsTypeMatMuls or "float")
        raise_all(check_annotations(model.graph, model.opset_imports, request.options, variables))
    raise_all(check_options(request.options, facts))
    announce(request.options, facts)
    check_mandatory(request.patterns.selection)


def _recomputing(prepared: Prepared) -> Program:
    """The program, whose backward pass computes again what the op list marks, and keeps the rest."""
    program, asked = prepared.program, prepared.request.options.autoRecomputation
    if program.training is None or (asked is RecomputationType.NoRecompute and not prepared.facts.user_recompute):
        return program
    again = ir_view.computed_again(prepared.op_list_facts, program.graph)
    return replace(program, training=replace(program.training, again=again))


def _in_parts(prepared: Prepared, program: Program) -> Program:
    """The program, whose operators take one part of the batch after the other if the options say so."""
    settings = prepared.request.options.batchSerializationSettings
    if settings.factor < 2 or program.parts > 1:
        return program
    types = {n: (ir.DataType.from_numpy(np.dtype(t.dtype)), t.shape) for n, t in prepared.traced_types.items()}
    axes = ir_view.batch_dimensions(program.graph, types, program.streams, settings.factor)
    in_turn = settings.batchSchedule is not BatchSerializationBatchSchedule.Scheduler
    shapes = {n: types[n][1] for n in axes}
    return replace(program, batch=BatchParts(settings.factor, axes, shapes, in_turn)) if axes else program


def _structure(request: Request) -> Structure:
    options = request.options
    made = Structure(
        request.data_flow.batchesPerStep(),
        options.accumulationFactor if options.enableGradientAccumulation else 1,
        options.getGlobalReplicationFactor(),
        bool(options.enableGradientAccumulation),
    )
    if made.micro_batches > _MOST_MICRO_BATCHES:
        raise popart_exception(
            f"A step of {made.batches} batches of {made.accumulation} micro-batches is longer than a program counts: "
            f"at most {_MOST_MICRO_BATCHES} micro-batches."
        )
    return made


def _frozen(graph: ir.Graph, picked: Picked | None) -> Collection[str] | None:
    """Initializers that are neither trained nor written by a run, as statistics are that a training step updates."""
    if picked is None or picked.frozen is None:
        return None
    return picked.frozen - gradients.copied_variables(graph, training=True).keys()


def _variables(
    model: ir.Model, request: Request, structure: Structure, frozen: Collection[str] | None
) -> tuple[dict[str, HostVariable], frozenset[str]]:
    """Initializers that live on the device, and those that are constants of the program.

    `frozen` are initializers that stay as they are; None where PopART's rule holds: every one is trained.
    """
    training, options = request.loss is not None, request.options
    found: dict[str, HostVariable] = {}
    constants: set[str] = set()
    for name, value in model.graph.initializers.items():
        if value.const_value is None:
            continue
        entry = source.host_variable(model, value, structure, narrow=options.enableSupportedDataTypeCasting)
        floating = jnp.issubdtype(entry.variable.type.dtype, jnp.floating)
        if frozen is not None and (name in frozen or not floating):
            constants.add(name)
            continue
        if training and not floating:
            raise noted(
                popart_exception("Currently only floating point variable tensors are updatable"),
                f"initializer '{name}' has type {entry.host_dtype}.\n  fix: make it a constant (aiOnnx.constant, or "
                "GraphTransformer.convertInitializersToConstants).",
                IN_JAX,
            )
        if len(entry.variable.groups) > 1:
            value.shape = ir.Shape(entry.variable.type.shape)
        if not training and options.constantWeights and not _is_one_value(entry, structure):
            source.warn_declined_constant(name)
        elif not training and options.constantWeights:
            constants.add(name)
            if not floating:
                continue
        found[name] = entry
    return found, frozenset(constants)


def _is_one_value(entry: HostVariable, structure: Structure) -> bool:
    """Whether the host gets one value of a variable; only such are constants of inference sessions."""
    return entry.settings.numReplicasReturningVariable(structure.replicas) == 1


def _base_program(
    model: ir.Model, request: Request, structure: Structure, weights: Mapping[str, HostVariable]
) -> Program:
    training = request.loss is not None
    streams = source.stream_types(model.graph)
    narrow = request.options.enableSupportedDataTypeCasting
    fed = {n: Type(t.shape, source.device_dtype(t.dtype, n, narrow=narrow)) for n, t in streams.items()}
    return Program(
        graph=model.graph,
        opsets=dict(model.opset_imports),
        structure=structure,
        streams=fed,
        variables={n: h.variable for n, h in weights.items()},
        anchors=(),
        types={},
        options=_options_for_operators(request),
        training_mode=training,
        broadcast=source.broadcast_streams(model, streams),
        copies=gradients.copied_variables(model.graph, training),
        generators=request.options.enableLoadAndOffloadRNGState and _rounds_at_random(request),
        random=request.options.enableStochasticRounding
        or gradients.draws_numbers(model.graph, model.opset_imports, training),
    )


def _rounds_at_random(request: Request) -> bool:
    return request.options.enableStochasticRounding and request.device.type in IPU_LIKE


def _options_for_operators(request: Request) -> OperatorOptions:
    options = request.options
    return OperatorOptions(
        nonstable_softmax=options.enableNonStableSoftmax,
        strided_group_norm=options.groupNormStridedChannelGrouping,
        subsamples_slices="Slice2SliceSubsample" in request.patterns.selection,
        rounds_stochastically=_rounds_at_random(request),
        announces_operators=op_trace.asked_for(),
    )


def _host_values(graph: ir.Graph, weights: Mapping[str, HostVariable]) -> dict[str, np.ndarray]:
    """First host copies of the model's variables."""
    found: dict[str, np.ndarray] = {}
    for name in weights:
        tensor = graph.initializers[name].const_value
        assert tensor is not None
        found[name] = tensor.numpy()
    return found


def _completed(step: StepParts, model: ir.Model, request: Request) -> Program:
    """Check the anchors, apply the patterns, and drop inputs that are no longer read."""
    program = step.program
    anchors = anchors_of(request.data_flow, program.structure, step.types, names(model.graph), program.copies)
    program = replace(program, anchors=anchors, types=step.types, variables=_drifting(program))
    program = replace(program, graph=_rewritten(model, request, program))
    return replace(program, streams=_needed_streams(program))


def _drifting(program: Program) -> dict[str, Variable]:
    """Variables, marked where each replica may come to a value of its own."""
    return {n: replace(v, drifts=n in program.copies) for n, v in program.variables.items()}


@phase("patterns")
def _rewritten(model: ir.Model, request: Request, program: Program) -> ir.Graph:
    """The graph after the patterns; anchors, variables and copied tensors keep their names."""
    training = request.loss is not None
    keep = {a.source for a in program.anchors} | {a.name for a in program.anchors}
    keep |= set(program.variables) | {*program.copies.values()} | ({request.loss} if request.loss else set())
    if program.training is not None and program.training.scaling is not None:
        keep |= {n for t in program.training.scaling.tracked for n in (t, GRADIENT + t)}
    protected = frozenset(n for n in keep if n)
    correct_shapes(model.graph, program.types)
    guarded(
        rewrites.apply,
        model,
        request.patterns.selection,
        operator_facts,
        mode="training" if training else "inference",
        protected=protected,
        accumulates=program.structure.accumulates,
    )
    return model.graph


def _needed_streams(program: Program) -> dict[str, Type]:
    """Streams that anchors, updates or copies depend on."""
    known = names(program.graph)
    shown = {a.source.removeprefix(GRADIENT) for a in program.anchors}
    want = shown | {*program.copies.values(), *([program.training.loss] if program.training else [])}
    live = {known[n] for n in want if n in known}
    for node in reversed(program.graph):
        if not live.isdisjoint(node.outputs) or has_effect(node):
            live.update(needs(node))
    read = {v.name for v in live}
    return {n: t for n, t in program.streams.items() if n in read}
