"""A product with a transposed array reads it as it is stored.

Source: XLA:CPU (jaxlib 0.10) writes the transposed array at each run. One row times 4,096 x 4,096 numbers takes 25 ms
in place of 1.1, 12 queries of 64 by 1,024 keys each 354 us in place of 73, 12 times 128 x 64 by 128 x 64 151 and 130.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from ..kernels import DOMAIN
from .channels_last import take_over

_OWN = ("", "ai.onnx")


def read_as_computed(graph: ir.Graph) -> bool:
    """Rewrite each MatMul with a Transpose of what a node computes, in place; returns whether anything changed."""
    return _rewrite_all(graph, lambda value: value.producer() is not None)


def read_as_stored(graph: ir.Graph) -> bool:
    """The same with a Transpose of an input or weight; sessions keep such weights transposed instead."""
    return _rewrite_all(graph, lambda value: value.producer() is None)


def _rewrite_all(graph: ir.Graph, suits: Callable[[ir.Value], bool]) -> bool:
    changed = False
    for node in list(graph):
        if node.op_type == "MatMul" and node.domain in _OWN and not node.attributes:
            changed = _rewrite(graph, node, suits) or changed
    return changed


def _rewrite(graph: ir.Graph, node: ir.Node, suits: Callable[[ir.Value], bool]) -> bool:
    x, y = node.inputs
    made = None if y is None else y.producer()
    if made is None or made.op_type != "Transpose" or made.domain not in _OWN:
        return False
    (stored,) = made.inputs
    order = [] if stored is None or not suits(stored) else _order(made, stored)
    if len(order) < 2 or order[-1] > order[-2]:  # otherwise it is turned once more, not once less
        return False
    swapped = [*order[:-2], order[-1], order[-2]]
    if stored is None or stored.shape is None or swapped != sorted(order):
        stored = _transposed(graph, node, made, swapped)
    new = ir.Node(DOMAIN, "MatMul", [x, stored], name=node.name)
    graph.insert_before(node, new)
    take_over(node.outputs[0], new.outputs[0])
    graph.remove(node, safe=True)
    return True


def _order(made: ir.Node, stored: ir.Value) -> list[int]:
    """The permutation of a Transpose; empty where it is not one of the dimensions."""
    rank = None if stored.shape is None else len(stored.shape)
    order = list(made.attributes.get_ints("perm", [1, 0] if rank == 2 else []))
    fits = sorted(order) == list(range(len(order))) and rank in (None, len(order))
    return order if fits else []


def _transposed(graph: ir.Graph, node: ir.Node, made: ir.Node, order: list[int]) -> ir.Value:
    new = ir.node("Transpose", [made.inputs[0]], {"perm": order}, version=made.version, name=f"{made.name}/{node.name}")
    new.outputs[0].name = f"{made.outputs[0].name}/{node.outputs[0].name}"
    graph.insert_before(node, new)
    return new.outputs[0]
