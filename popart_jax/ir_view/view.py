"""The stages that turn a model into PopART's op list, in PopART's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import onnx_ir as ir

import patterns

from .._process.collector import without_collector
from ..autodiff import is_float
from ..ops import facts as operator_facts
from . import (
    batch_serial,
    hostio,
    locations,
    loss_scaling,
    main_loops,
    nodes,
    outline,
    pipeline,
    placement,
    random_seeds,
    recompute,
    schedule,
    serial_matmul,
    sharing,
    streamed_activations,
    tied_gather,
    training,
)
from .facts import IrFacts
from .forward import forward_graph

CHECKPOINTS = ("Fwd0", "Fwd1", "Bwd0", "PreAlias", "MainLoops", "Final")  # stages at which `look` is called
Look = Callable[[str, ir.Graph], None]


@dataclass(frozen=True, slots=True)
class View:
    """The op list and the log of the pattern sweeps."""

    graph: ir.Graph
    log: patterns.SweepLog


@without_collector()
def build(facts: IrFacts, look: Look = lambda checkpoint, graph: None) -> View:
    """PopART's view of the graph that a session with these facts would run.

    `look` is called with the name of each of `CHECKPOINTS` and the graph at that stage. A loss that no op produces, and
    a clipped weight without update, raise popart_exception.
    """
    graph = forward_graph(facts)
    protected = _protected(facts)
    look("Fwd0", graph)
    numbers = count()  # numbers of the graphs that the IR creates
    serial = facts.options.batch_serialisation
    late = serial.after_backward and facts.training
    if serial.factor > 1 and not late:
        placement.prepare(graph, facts)
        batch_serial.serialise(graph, serial, protected, numbers)
    log = _sweep(graph, facts, protected | _loss_inputs(graph, facts))
    placement.prepare(graph, facts)
    look("Fwd1", graph)
    if facts.training:
        _make_training(graph, facts, protected, log, look)
    else:
        _prune(graph, facts)
    if serial.factor > 1 and late:
        batch_serial.serialise(graph, serial, protected, numbers)
    _schedule(graph, facts, protected, look, numbers)
    look("Final", graph)
    return View(graph, log)


def _make_training(
    graph: ir.Graph, facts: IrFacts, protected: frozenset[str], log: patterns.SweepLog, look: Look
) -> None:
    variables = training.variables_of(graph)  # read by the forward ops; gradient ops may read fewer
    gradients = {v.name: g for v, g in training.backward(graph, facts).items()}
    look("Bwd0", graph)
    copied = training.copy_statistics(graph)
    needed = frozenset(f"{nodes.GRADIENT}{v.name}" for v in variables) | tied_gather.row_gradients(graph, facts)
    _prune(graph, facts, needed)
    log.extend(_sweep(graph, facts, protected | needed))
    _prune(graph, facts, needed)
    produced = {o.name: o for n in graph for o in n.outputs}
    if facts.loss in produced:
        loss = produced[facts.loss].producer()
        assert loss is not None
        loss.meta[nodes.PASS] = nodes.FORWARD  # even if it also makes a gradient
    trained = {
        v: produced.get(f"{nodes.GRADIENT}{v.name}", gradients[v.name])
        for v in variables
        if v.name in gradients and v not in copied and is_float(v)
    }
    training.add_updates(graph, facts, trained)
    tied_gather.accumulate_rows(graph, facts)
    loss_scaling.add_histograms(graph, facts)


def _schedule(graph: ir.Graph, facts: IrFacts, protected: frozenset[str], look: Look, numbers: Iterator[int]) -> None:
    options, selection = facts.options, facts.selection
    serial_matmul.weight_gradients_first(graph, options.accumulate)
    if options.serialized_matmuls:
        serial_matmul.serialise(graph)
    serial_matmul.set_partials(graph, options.matmul_partials)
    serial_matmul.set_passes(graph, options.fully_connected_pass)
    random_seeds.add_seeds(graph, options.stochastic_rounding)
    recompute.annotate(graph, facts, pipeline.add_stages(graph, facts))
    streamed_activations.stream_activations(graph, facts)
    placement.add_copies(graph, facts)
    _prune(graph, facts)
    locations.place_tensors(graph, facts)
    pipeline.add_stashes(graph, facts)
    sharing.constants_to_tensors(graph)
    schedule.sort(graph)
    sharing.share_callees(graph)
    if options.host_copy_ops:
        hostio.add_host_copies(graph, facts)
    main_loops.add_main_loops(graph, facts, numbers)
    look("MainLoops", graph)
    if options.outlining:
        outline.outline(graph, options.outline_threshold, numbers, protected)
    look("PreAlias", graph)
    if "InPlace" in selection:
        prefer = "UpdateInplacePrioritiesForIpu" in selection
        for each in sharing.all_graphs(graph):
            patterns.make_inplace(each, operator_facts, protected, prefer, recompute.in_place_extent(facts))


def _sweep(graph: ir.Graph, facts: IrFacts, protected: frozenset[str]) -> patterns.SweepLog:
    mode: patterns.Mode = "training" if facts.training else "inference"
    rules = patterns.rules_of(facts.selection, "view", mode)
    if facts.training and not facts.options.accumulate:
        rules = [r for r in rules if r.pattern != "TiedGather"]  # it needs the accumulator
    return patterns.sweep(graph, rules, operator_facts, mode=mode, protected=protected)


def _protected(facts: IrFacts) -> frozenset[str]:
    forward = {a.removeprefix(nodes.GRADIENT) for a in facts.anchors}
    scale = {"finalLossScale"} if facts.options.automatic_loss_scaling else ()
    return facts.anchors.union(forward, scale, (facts.loss,) if facts.loss else ())


def _loss_inputs(graph: ir.Graph, facts: IrFacts) -> frozenset[str]:
    names = {
        v.name or "" for n in graph for v in n.inputs if v is not None and any(o.name == facts.loss for o in n.outputs)
    }
    return frozenset(names)


def _prune(graph: ir.Graph, facts: IrFacts, also: frozenset[str] = frozenset()) -> None:
    """Drop ops that no update, anchor or side effect needs."""
    updated = {o.name or "" for n in graph if n.meta.get(nodes.PASS) == nodes.UPDATE for o in n.outputs}
    patterns.remove_unused(graph, operator_facts, facts.anchors | also | updated)
