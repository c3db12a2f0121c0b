"""TiedGatherAccumulate: gradient rows of a tied Gather are added into the accumulator of the dense gradient."""

from __future__ import annotations

import onnx_ir as ir

from . import nodes
from .facts import IrFacts

PATTERN, GRADIENT_OP = "TiedGatherAccumulate", "TiedGatherGrad"


def row_gradients(graph: ir.Graph, facts: IrFacts) -> frozenset[str]:
    """Names of the row gradients that pruning must keep."""
    if PATTERN not in facts.selection or not facts.options.accumulate:
        return frozenset()
    return frozenset(n.outputs[0].name or "" for n in graph if n.op_type == GRADIENT_OP)


def accumulate_rows(graph: ir.Graph, facts: IrFacts) -> None:
    """Replace every TiedGatherGrad by PopartSparseAccumulate behind the Accumulate of its table."""
    if not row_gradients(graph, facts):
        return
    dense = {n.inputs[0].name: n for n in graph if n.op_type == "Accumulate" and n.inputs[0] is not None}
    for node in [n for n in graph if n.op_type == GRADIENT_OP]:
        table, transposed = _table(node)
        accumulate = next(
            (dense[p + (table.name or "")] for p in ("Accum___", "Accl___") if p + (table.name or "") in dense), None
        )
        if accumulate is None:
            graph.remove(node, safe=True)
            continue
        _add_rows(graph, node, accumulate, table, transposed)


def _table(node: ir.Node) -> tuple[ir.Value, bool]:
    """The variable behind the forward Gather's Detach, and whether it is read transposed."""
    value: ir.Value = nodes.note(node, "data")
    assert isinstance(value, ir.Value)
    transposed = False
    producer = value.producer()
    while producer is not None and producer.inputs[0] is not None:
        transposed ^= producer.op_type == "Transpose"
        value = producer.inputs[0]
        producer = value.producer()
    return value, transposed


def _add_rows(graph: ir.Graph, node: ir.Node, accumulate: ir.Node, table: ir.Value, transposed: bool) -> None:
    total = accumulate.outputs[0]
    readers = list(total.uses())
    # placed like the Gather, whose pipeline stage has the rows: that of the dense product is earlier
    meta = {nodes.PASS: nodes.UPDATE, nodes.CONTEXT: nodes.NORMAL}
    target = total
    if transposed:
        shape = list(reversed(total.shape.numpy())) if total.shape is not None else None
        target = nodes.tensor(f"{total.name}__transposed", total, shape=shape)
        graph.append(
            nodes.make("Transpose", [total], [target], domain="", like=node, attributes={"perm": (1, 0)}, meta=meta)
        )
    factor = _factor(graph, accumulate, meta)
    result = nodes.tensor(f"{total.name}__sparse", target)
    gradient, indices = node.inputs[0], node.inputs[1]
    graph.append(
        nodes.make("PopartSparseAccumulate", [target, gradient, factor, indices, table], [result], like=node, meta=meta)
    )
    for reader, index in readers:
        reader.replace_input_with(index, result)
    graph.remove(node, safe=True)


def _factor(graph: ir.Graph, accumulate: ir.Node, meta: dict[str, str]) -> ir.Value | None:
    """The factor of the rows: that of the dense gradient.

    For a running mean, which sparse rows can't follow, it is one over the number of micro-batches so far: a Div named
    mean_accumulate_inverse, shared by all.
    """
    counter = accumulate.inputs[2] if len(accumulate.inputs) > 2 else None
    if nodes.attribute(accumulate, "accumulationType", "Add") != "Mean":
        return counter
    existing = next((n for n in graph if n.name == "mean_accumulate_inverse"), None)
    if existing is not None:
        return existing.outputs[0]
    one = nodes.source("ConstValue___one", "const", ir.DataType.FLOAT, ())
    output = nodes.tensor("mean_accumulate_inverse", one)
    graph.append(
        nodes.make(
            "Div", [one, counter], [output], domain="", like=accumulate, name="mean_accumulate_inverse", meta=meta
        )
    )
    return output
