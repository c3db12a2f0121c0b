"""Automatic loss scaling: histograms of fp16 gradients and the update of the loss scale factor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import onnx_ir as ir

from ..ops import Trait
from ..ops import facts as facts_of
from . import nodes
from .facts import IrFacts, ViewOptions
from .updates.common import FACTOR

UINT32 = ir.DataType.UINT32
ALL, PRODUCTS_ONLY = "AllNonViewChangingGradientTensors", "ConvAndMatmulGradients"


def add_histograms(graph: ir.Graph, facts: IrFacts) -> None:
    """One Histogram per tracked gradient and one LossScaleUpdate behind them."""
    options = facts.options
    if not (options.automatic_loss_scaling and facts.training):
        return
    factor = next((v for n in graph for v in n.inputs if v is not None and v.name == FACTOR), None)
    tracked = [v for v in _gradients(graph) if _is_tracked(v, options)]
    if factor is None or not tracked:
        return
    statistics = [_histogram(graph, value, options, f"Histogram_{i}") for i, value in enumerate(tracked)]
    updated = nodes.tensor(f"UpdatedVar___{FACTOR}", factor)
    meta = {nodes.PASS: nodes.UPDATE, nodes.CONTEXT: nodes.OUTER if options.accumulate else nodes.NORMAL}
    update = nodes.make("LossScaleUpdate", [factor, *statistics], [updated], meta=meta)
    graph.append(_every_period(update, options, "LossScaleUpdate"))


class TrackedGradient(NamedTuple):
    """The gradient of a forward tensor, or the part of it that one reader contributes.

    `reader` is the first output of that op, empty for the whole gradient; `position` is its input.
    """

    tensor: str
    reader: str = ""
    position: int = 0


def tracked_tensors(graph: ir.Graph, forward: ir.Graph) -> tuple[TrackedGradient, ...]:
    """The gradient that each Histogram of a view counts, described by tensors of the forward graph.

    A reshaped gradient counts as the gradient that it becomes. Intermediate results that become none (a product that is
    reduced afterwards) are omitted.
    """
    makers = {o.name: node for node in forward for o in node.outputs if o.name}
    known = {v.name: None for v in (*forward.inputs, *forward.initializers.values())} | makers
    counted = (_counted(n.inputs[0], known) for n in graph.all_nodes() if n.op_type == "Histogram")
    return tuple(found for found in counted if found is not None)


def _counted(value: ir.Value | None, forward: Mapping[str | None, ir.Node | None]) -> TrackedGradient | None:
    producer, summed = None if value is None else value.producer(), False
    while value is not None:
        name = (value.name or "").removeprefix(nodes.GRADIENT)
        if name != value.name and name in forward:
            part = _part(producer, name, forward) if summed and producer is not None else None
            return part or TrackedGradient(name)
        becomes = next((n for n in value.consumers() if n.outputs and (_is_sum(n) or _changes_view(n))), None)
        summed = summed or (becomes is not None and _is_sum(becomes))
        value = None if becomes is None else becomes.outputs[0]
    return None


def _part(backward: ir.Node, tensor: str, forward: Mapping[str | None, ir.Node | None]) -> TrackedGradient | None:
    """The part of a tensor's gradient that an op of the backward pass makes, if its reader and input are plain."""
    given = [v.name for v in backward.inputs if v is not None and v.name]
    readers = (forward.get(name.removeprefix(nodes.GRADIENT)) for name in given if name.startswith(nodes.GRADIENT))
    for reader in filter(None, readers):
        places = [i for i, v in enumerate(reader.inputs) if v is not None and v.name == tensor]
        if len(places) == 1:
            return TrackedGradient(tensor, reader.outputs[0].name or "", places[0])
    return None


def _is_sum(node: ir.Node) -> bool:
    return node.op_type in ("Sum", "Add", *facts_of("Add").inplace.values())


def _changes_view(node: ir.Node) -> bool:
    return nodes.row(node).has(Trait.VIEW_CHANGE)


def _gradients(graph: ir.Graph) -> list[ir.Value]:
    backward = [
        n for n in graph if n.meta.get(nodes.PASS) == nodes.BACKWARD or n.op_type == "NlllWithSoftmaxGradDirect"
    ]
    return [o for n in backward for o in n.outputs if o.dtype == ir.DataType.FLOAT16 and o.uses()]


def _is_tracked(value: ir.Value, options: ViewOptions) -> bool:
    producer = value.producer()
    assert producer is not None
    if options.tracking == PRODUCTS_ONLY:
        return nodes.row(producer).has(Trait.PRODUCT)
    if options.tracking != ALL:
        return (value.name or "").removeprefix(nodes.GRADIENT) in options.tracked
    reads_state = any(nodes.kind(v) in ("variable", "stream") for v in producer.inputs)
    return not _changes_view(producer) and not reads_state


def _histogram(graph: ir.Graph, value: ir.Value, options: ViewOptions, name: str) -> ir.Value:
    producer = value.producer()
    assert producer is not None
    counts = nodes.tensor(f"{value.name}_statistics", dtype=UINT32, shape=(2,))
    meta = {nodes.PASS: nodes.BACKWARD} | ({nodes.PRIORITY: float("inf")} if options.histograms_first else {})
    attributes = {"absoluteOfInput": 1, "levels": (0.0,)}
    node = nodes.make("Histogram", [value], [counts], like=producer, attributes=attributes, name="Histogram", meta=meta)
    graph.insert_after(producer, _every_period(node, options, name))
    return counts if node.graph is graph else _output_of_wrapper(graph, f"{value.name}_statistics")


def _output_of_wrapper(graph: ir.Graph, name: str) -> ir.Value:
    return next(o for n in graph if n.op_type == "If" for o in n.outputs if o.name == name)


def _every_period(node: ir.Node, options: ViewOptions, op: str) -> ir.Node:
    """With an update period, put the op into an If with a counter: it runs only in the first batch of each period."""
    if options.loss_scale_period <= 1:
        return node
    output = node.outputs[0]
    name, output.name = output.name or "", f"{output.name}__inner"
    then = ir.Graph([], [output], nodes=[node], name=f"{node.op_type}_then")
    idle = nodes.tensor(f"{name}__idle", output)
    otherwise = ir.Graph([], [idle], nodes=[nodes.make("Init", [], [idle])], name=f"{node.op_type}_else")
    counter = nodes.source(f"{op}_counter", "variable", ir.DataType.INT32, ())
    attributes = {"then_branch": then, "else_branch": otherwise}
    return nodes.make("If", [counter], [nodes.tensor(name, output)], domain="", like=node, attributes=attributes)
