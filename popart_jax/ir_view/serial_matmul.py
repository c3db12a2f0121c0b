"""Serialised matmuls: one MatMul becomes `factor` of them on slices."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from patterns import static_shape
from patterns.families.tied_gather import FULLY_CONNECTED_OFF

from . import nodes

PARTIALS = "__partials_type"
MODE, FACTOR = "__serialize_matmul_mode", "__serialize_matmul_factor"
KEEP_PRECISION = "__serialize_matmul_precision"
OF_DATA, OF_WEIGHT = 1, 2
"""Values of fully_connected_pass: the gradient of the left operand, of the right one."""
_TO_HALF = {"to": ir.DataType.FLOAT16.value}
PASSED_ON = ("fully_connected_pass", FULLY_CONNECTED_OFF, PARTIALS, "__available_memory", "__output_type")
# Mode of each gradient product by the mode of the forward product; keys: fully_connected_pass.
MODES = {
    0: {"input_channels": "input_channels", "output_channels": "output_channels", "reducing_dim": "reducing_dim"},
    1: {"input_channels": "input_channels", "output_channels": "reducing_dim", "reducing_dim": "output_channels"},
    2: {"input_channels": "reducing_dim", "output_channels": "output_channels", "reducing_dim": "input_channels"},
}
# Axes of (lhs, rhs) that are sliced, and the axis along which the parts are concatenated; None: they are summed.
AXES = {"input_channels": (1, None, 1), "output_channels": (None, 2, 2), "reducing_dim": (2, 1, None)}


def set_partials(graph: ir.Graph, partials: str) -> None:
    """Give matmuls without a partials type that of the session."""
    for node in graph.all_nodes():
        if node.op_type == "MatMul" and PARTIALS not in node.attributes:
            node.attributes[PARTIALS] = ir.AttrString(PARTIALS, partials)


def set_passes(graph: ir.Graph, told_apart: bool) -> None:
    """Where forward and gradient products are not told apart, none has a pass of its own: they may share a subgraph."""
    for node in graph.all_nodes():
        if node.op_type == "MatMul" and (not told_apart or nodes.attribute(node, FULLY_CONNECTED_OFF, 0)):
            node.attributes["fully_connected_pass"] = ir.AttrInt64("fully_connected_pass", -1)


def weight_gradients_first(graph: ir.Graph, accumulate: bool) -> None:
    """Move the product for a weight's gradient before the one for the data's where that needs less live memory.

    That is so if the weight's is summed, by gradient accumulation or over parts, and the data's is not.
    """
    products = [n for n in graph if n.op_type == "MatMul"]
    of_weights = {n.inputs[1]: n for n in products if _passes(n) == OF_WEIGHT}
    place = {n: float(i) for i, n in enumerate(graph)}
    for of_data in (n for n in products if _passes(n) == OF_DATA):
        of_weight = of_weights.get(of_data.inputs[0])
        if of_weight is not None and (accumulate or (_adds_up(of_weight) and not _adds_up(of_data))):
            moved = _needed_since(of_weight, place[of_data], place)
            graph.remove(moved)
            graph.insert_before(of_data, moved)
            place.update(dict.fromkeys(moved, place[of_data] - 0.5))


def _needed_since(node: ir.Node, since: float, place: Mapping[ir.Node, float]) -> list[ir.Node]:
    """The node and the nodes that it depends on, in order, if they are behind position `since`."""
    pending, found = [node], dict[ir.Node, None]()
    while pending:
        one = pending.pop()
        found[one] = None
        makers = (v.producer() for v in one.inputs if v is not None)
        pending += [p for p in makers if p is not None and place[p] > since and p not in found]
    return sorted(found, key=lambda one: place[one])


def _passes(node: ir.Node) -> int:
    return int(nodes.attribute(node, "fully_connected_pass", 0))


def _adds_up(node: ir.Node) -> bool:
    mode = nodes.attribute(node, MODE, "none")
    return mode in AXES and AXES[MODES[_passes(node)][mode]][2] is None


def serialise(graph: ir.Graph) -> None:
    """Split every MatMul with a serialisation factor."""
    for node in [n for n in graph if n.op_type == "MatMul"]:
        factor, mode = int(nodes.attribute(node, FACTOR, 0)), nodes.attribute(node, MODE, "none")
        passes = _passes(node)
        if factor > 1 and mode in AXES and passes in MODES:
            _split(graph, node, AXES[MODES[passes][mode]], factor)


def _split(graph: ir.Graph, node: ir.Node, axes: tuple[int | None, int | None, int | None], factor: int) -> None:
    lhs_axis, rhs_axis, join = axes
    output = node.outputs[0]
    wide = join is None and output.dtype is ir.DataType.FLOAT16 and nodes.attribute(node, KEEP_PRECISION, 0)
    parts: list[ir.Value] = []
    for i in range(factor):
        operands = [
            value if axis is None or value is None else _slice(graph, node, value, axis, i, factor)
            for value, axis in zip(node.inputs[:2], (lhs_axis, rhs_axis), strict=True)
        ]
        shape, dtype = _part_shape(output, join, factor), ir.DataType.FLOAT if wide else output.dtype
        part = nodes.tensor(f"{output.name}__part{i}", output, dtype=dtype, shape=shape)
        passed_on = {k: a for k, a in node.attributes.items() if k in PASSED_ON}
        graph.insert_before(node, nodes.make("MatMul", operands, [part], domain="", like=node, attributes=passed_on))
        parts.append(part)
    name, output.name = output.name, f"{output.name}__whole"
    result = _concat(graph, node, parts, join) if join is not None else _add_up(graph, node, parts)
    if wide:
        total, result = result, nodes.tensor(f"{output.name}__cast", output)
        graph.insert_before(node, nodes.make("Cast", [total], [result], domain="", like=node, attributes=_TO_HALF))
    result.name = name
    output.replace_all_uses_with(result)
    graph.remove(node, safe=True)


def _part_shape(output: ir.Value, join: int | None, factor: int) -> list[int] | None:
    shape = static_shape(output)
    return None if shape is None else [d // factor if i == join else d for i, d in enumerate(shape)]


def _slice(graph: ir.Graph, node: ir.Node, value: ir.Value, axis: int, index: int, factor: int) -> ir.Value:
    shape = list(static_shape(value) or (0, 0, 0))
    size = shape[axis] // factor
    shape[axis] = size
    part = nodes.tensor(f"{value.name}__{node.outputs[0].name}__slice{index}", value, shape=shape)
    bounds = {"axes": (axis,), "starts": (index * size,), "ends": ((index + 1) * size,)}
    graph.insert_before(node, nodes.make("Slice", [value], [part], like=node, attributes=bounds))
    return part


def _concat(graph: ir.Graph, node: ir.Node, parts: list[ir.Value], axis: int) -> ir.Value:
    result = nodes.tensor(f"{node.outputs[0].name}__joined", node.outputs[0])
    graph.insert_before(node, nodes.make("Concat", parts, [result], domain="", like=node, attributes={"axis": axis}))
    return result


def _add_up(graph: ir.Graph, node: ir.Node, parts: list[ir.Value]) -> ir.Value:
    total = parts[0]
    for i, part in enumerate(parts[1:], 1):
        result = nodes.tensor(f"{node.outputs[0].name}__sum{i}", parts[0])
        graph.insert_before(node, nodes.make("Add", [total, part], [result], domain="", like=node))
        total = result
    return total
