"""Seeds: one GetRandomSeed per micro-batch, one ModifyRandomSeed per random op."""

from __future__ import annotations

import onnx_ir as ir

from . import nodes

RANDOM = frozenset({"Dropout", "ShapedDropout", "RandomNormal", "RandomUniform"})
SEED = "randomSeed___fromHost"
UPDATED = "randomSeed___updated"
UINT32 = ir.DataType.UINT32


def add_seeds(graph: ir.Graph, stochastic_rounding: bool) -> None:
    """Give every random op, and the gradient op that shares its mask, a seed of its own."""
    random_ops = [n for n in graph if n.op_type in RANDOM]
    if not random_ops and not stochastic_rounding:
        return
    host = nodes.source(SEED, "stream", UINT32, (2,))
    seed = nodes.tensor(UPDATED, host)
    get = nodes.make("GetRandomSeed", [host], [seed], **{nodes.PASS: nodes.FORWARD})
    first = next(iter(graph), None)
    if first is None:
        graph.append(get)
    else:
        graph.insert_before(first, get)
    for i, node in enumerate(random_ops):
        modifier = nodes.source(f"randomSeedModifier___{i}", "const", UINT32, ())
        own = nodes.tensor(f"randomSeed___{i}", host)
        graph.insert_before(node, nodes.make("ModifyRandomSeed", [seed, modifier], [own], like=node))
        _append_input(node, own)
        for gradient in _gradient_ops(graph, node):
            _append_input(gradient, own)


def _gradient_ops(graph: ir.Graph, node: ir.Node) -> list[ir.Node]:
    wanted = f"Gradient___{node.inputs[0].name}" if node.inputs and node.inputs[0] is not None else ""
    kind = f"{node.op_type}Grad"
    return [n for n in graph if n.op_type == kind and n.outputs[0].name == wanted] if wanted else []


def _append_input(node: ir.Node, value: ir.Value) -> None:
    node.resize_inputs(len(node.inputs) + 1)
    node.replace_input_with(len(node.inputs) - 1, value)
