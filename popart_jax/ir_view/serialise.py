"""The JSON text of a view: one key per graph, one object per op, every value a string."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import onnx_ir as ir

from patterns import static_shape
from patterns.families.tied_gather import FULLY_CONNECTED_OFF

from ..model.attribute_names import AVAILABLE_MEMORY, BUILDER_GRAPH, CONV_DITHERING, PARTIALS_TYPE, REPLICA_GROUPING
from . import nodes
from .recompute import RECOMPUTE
from .sharing import all_graphs

SHOWN_DUNDER = {
    "__ipu_number": "__ipu_number",
    "__pipeline_stage": "__pipeline_stage",
    "__execution_phase": "__execution_phase",
    "__sourceIpus": "__sourceIpus",
    "__destIpu": "__destIpu",
    "__collectiveOperator": "__collectiveOperator",
    REPLICA_GROUPING: REPLICA_GROUPING,
    AVAILABLE_MEMORY: "available_memory_proportion",
    PARTIALS_TYPE: "partialsType",
    CONV_DITHERING: "enableConvDithering",
}
MAIN = "maingraph"  # name of the main graph
REDUCTIONS = {"Sum": "0", "Mean": "1", "None": "2", "NoReduction": "2"}


def to_json(graph: ir.Graph, fully_connected_pass: bool = True) -> str:
    """Serialise the main graph and its subgraphs."""
    names = graph_names(graph)
    document = {
        names[id(g)]: [_op(node, names, g is graph, fully_connected_pass) for node in g] for g in all_graphs(graph)
    }
    return json.dumps(document)


def graph_names(graph: ir.Graph) -> dict[int, str]:
    """Name of each graph by identity: `maingraph`, the builder's name, or `<base>_subgraph(<n>)` when taken."""
    names: dict[int, str] = {}
    taken: set[str] = set()
    number = sum("_subgraph(" in (g.name or "") for g in all_graphs(graph))  # one counter for all graphs
    for each in all_graphs(graph):
        if each is graph:
            name = MAIN if BUILDER_GRAPH in (graph.name or BUILDER_GRAPH) else graph.name or MAIN
        else:
            name = each.name or "subgraph"
        while name in taken or not name:
            name, number = f"{each.name or 'call'}_subgraph({number})", number + 1
        taken.add(name)
        names[id(each)] = name
    return names


def _op(node: ir.Node, names: Mapping[int, str], main: bool, fully_connected_pass: bool) -> dict[str, Any]:
    prefix = "" if main or not isinstance(node.graph, ir.Graph) else f"{names[id(node.graph)]}/"
    return operation(node, node.name or "", op_attributes(node, names, main, fully_connected_pass), prefix)


def operation(node: ir.Node, name: str, attributes: Mapping[str, str], prefix: str = "") -> dict[str, Any]:
    """An op as the serialised IR shows it; `prefix` comes before the names of its tensors."""
    return {
        "type": node.op_type,
        "name": name,
        "inputs": [
            {"name": prefix + (v.name or ""), "shape": _shape(v), "type": _dtype(v), "index": str(i)}
            for i, v in enumerate(node.inputs)
            if v is not None
        ],
        "outputs": [{"name": prefix + (o.name or ""), "index": str(i)} for i, o in enumerate(node.outputs)],
        "attributes": dict(attributes),
    }


def _shape(value: ir.Value) -> str:
    return text(static_shape(value) or ())


def _dtype(value: ir.Value) -> str:
    return "UNDEFINED" if value.dtype is None else value.dtype.name


def op_attributes(node: ir.Node, names: Mapping[int, str], main: bool, fully_connected_pass: bool) -> dict[str, str]:
    """The attributes of an op as the serialised IR shows them."""
    kind: str = nodes.note(node, nodes.RECOMPUTE_TYPE, "Checkpoint")
    result: dict[str, str] = {
        "recompute": "YES" if kind == RECOMPUTE else "NO",
        "tileSet": nodes.note(node, nodes.TILE_SET, nodes.COMPUTE_TILES),
        "__execution_context": str(nodes.note(node, nodes.CONTEXT, nodes.NORMAL)) if main else "Subgraph",
        "scope": "",
        "recomputetype": kind,
        "schedulePriority": _priority(node),
    }
    for name, attribute in node.attributes.items():
        result.update(_attribute(node, name, attribute, names))
    if node.op_type == "MatMul":
        result.update(_matmul(node, fully_connected_pass))
    if node.op_type in ("Conv", "ConvWeightsGrad", "ConvDataGrad"):
        result.update(_convolution(node))
    return result


def _priority(node: ir.Node) -> str:
    value = nodes.note(node, nodes.PRIORITY, nodes.attribute(node, "__schedule_priority", 0.0))
    return text(float(value))


def _attribute(node: ir.Node, name: str, attribute: ir.Attr, names: Mapping[int, str]) -> dict[str, str]:
    if attribute.type == ir.AttributeType.GRAPH:
        return {"callee" if node.op_type == "Call" else name: names[id(attribute.as_graph())]}
    if name == "__outline":
        return {pair.split(":", 1)[0]: pair for pair in _pairs(attribute)}
    if name in SHOWN_DUNDER:
        value = attribute.value
        if name in ("__ipu_number", "__pipeline_stage", "__execution_phase") and isinstance(value, (list, tuple)):
            value = cast("Sequence[Any]", value)[0]
        return {SHOWN_DUNDER[name]: text(value)}
    if name == "reduction" and attribute.value in REDUCTIONS:
        return {"reduction_type": REDUCTIONS[attribute.value]}
    if name.startswith("__") or attribute.type in (ir.AttributeType.TENSOR, ir.AttributeType.GRAPHS):
        return {}
    return {name: text(attribute.value)}


def _pairs(attribute: ir.Attr) -> list[str]:
    """The builder keeps `outlineAttributes` as a flat list: key, value, key, value, ..."""
    flat = list(attribute.as_strings())
    if any(":" in item for item in flat):
        return flat
    return [f"{k}:{v}" for k, v in zip(flat[::2], flat[1::2], strict=False)]


def _matmul(node: ir.Node, fully_connected_pass: bool) -> dict[str, str]:
    modes = {"none": "0", "input_channels": "1", "reducing_dim": "2", "output_channels": "3"}
    off = not fully_connected_pass or nodes.attribute(node, FULLY_CONNECTED_OFF, 0)
    passes = -1 if off else nodes.attribute(node, "fully_connected_pass", 0)
    return {
        "fully_connected_pass": text(int(passes)),
        "serialization_mode": modes.get(nodes.attribute(node, "__serialize_matmul_mode", "none"), "0"),
        "serialization_factor": text(int(nodes.attribute(node, "__serialize_matmul_factor", 0))),
    }


def _convolution(node: ir.Node) -> dict[str, str]:
    """The parameters of a convolution that its shapes determine."""
    data = static_shape(node.inputs[-1 if node.op_type == "ConvWeightsGrad" else 0])
    weights = static_shape(node.outputs[0] if node.op_type == "ConvWeightsGrad" else node.inputs[1])
    if data is None or weights is None:
        return {}
    rank = len(data) - 2
    listed = {
        "__inputShape": data[2:],
        "__kernelShape": weights[2:],
        "__strides": nodes.attribute(node, "strides", (1,) * rank),
        "__dilations": nodes.attribute(node, "dilations", (1,) * rank),
        "__pads": nodes.attribute(node, "pads", (0,) * (2 * rank)),
    }
    numbers = {"__batchsize": data[0], "__groups": int(nodes.attribute(node, "group", 1))}
    return {k: text(v) for k, v in {**numbers, **listed}.items()}


def text(value: Any) -> str:
    """A value as PopART prints it: floats with six decimals, lists as `[1 2 3]`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "inf" if value == float("inf") or value > 1.7e308 else f"{value:.6f}"
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Iterable):
        return "[" + " ".join(text(v) for v in cast("Iterable[Any]", value)) + "]"
    return str(value)
