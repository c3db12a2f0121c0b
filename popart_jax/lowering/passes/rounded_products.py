"""Sums of two products have the same bits wherever XLA computes them, if a maximum may be taken of them.

The gradient of a maximum goes to the elements that equal it. `ops.primitives.sum_of` says why they may not; as there,
the first product is rounded. Source: XLA:CPU of jaxlib 0.10, on small tensors.
"""

from __future__ import annotations

import onnx_ir as ir

from ...ops import Trait, facts
from ..kernels import DOMAIN

_SUMS = frozenset({"Add", "Sub", "Sum"})


def round_products(graph: ir.Graph) -> bool:
    """Rewrite the sums of a graph that takes maxima, in place; returns whether anything changed."""
    if not any(facts(node.op_type).has(Trait.EXTREMUM) for node in graph):
        return False
    changed = False
    for node in list(graph):
        products = [i for i, v in enumerate(node.inputs) if _is_product(v)] if node.op_type in _SUMS else []
        for i in products[:-1]:
            _round(graph, node, i)
            changed = True
    return changed


def _is_product(value: ir.Value | None) -> bool:
    node = None if value is None else value.producer()
    return node is not None and node.op_type == "Mul"


def _round(graph: ir.Graph, reader: ir.Node, index: int) -> None:
    value = reader.inputs[index]
    assert value is not None
    node = ir.Node(DOMAIN, "Rounded", [value], name=f"{reader.name}/rounded{index}")
    rounded = node.outputs[0]
    rounded.name, rounded.type, rounded.shape = (
        f"{value.name}/rounded_for/{reader.outputs[0].name}",
        value.type,
        value.shape,
    )
    graph.insert_before(reader, node)
    reader.replace_input_with(index, rounded)
