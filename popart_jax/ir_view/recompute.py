"""Which forward ops are computed again in the backward pass, and (explicit form) their copies."""

from __future__ import annotations

import onnx_ir as ir

from . import nodes
from .facts import IrFacts
from .placement import STAGE, number

ANNOTATION = "__recompute_output_in_backward_pass"
CHECKPOINT, RECOMPUTE, RECOMPUTED = "Checkpoint", "Recompute", "Recomputed"
_KINDS = {0: "Undefined", 1: CHECKPOINT, 2: RECOMPUTE, 3: RECOMPUTED}
NORMS = frozenset({"BatchNormalization", "GroupNormalization", "InstanceNormalization"})
NON_LINEAR = frozenset({"Relu", "Gelu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Swish"})
HEAVY = frozenset({"Conv", "MatMul", "MultiConv", "LSTM", "GRU", "RNN"})
SUFFIX = "__re"


def annotate(graph: ir.Graph, facts: IrFacts) -> None:
    """Set the recompute type of every op, and copy the recomputed ones when recomputation is explicit."""
    last = max((number(n, STAGE) or 0 for n in graph if n.meta.get(nodes.PASS) == nodes.FORWARD), default=0)
    for node in graph:
        node.meta[nodes.RECOMPUTE_TYPE] = _kind(node, facts, last) if facts.training else CHECKPOINT
    if facts.training and facts.options.explicit_recomputation:
        _make_explicit(graph)


def _kind(node: ir.Node, facts: IrFacts, last: int) -> str:
    if node.meta.get(nodes.PASS) != nodes.FORWARD or facts.loss in (o.name for o in node.outputs):
        return CHECKPOINT
    given = nodes.attribute(node, ANNOTATION)
    if given is not None:
        return _KINDS.get(int(given[0] if isinstance(given, (list, tuple)) else given), CHECKPOINT)
    if facts.options.recomputation == "Pipeline":  # whole forward stages, but not the last
        return RECOMPUTE if (number(node, STAGE) or 0) < last else CHECKPOINT
    return RECOMPUTE if _automatic(node, facts.options.recomputation) else CHECKPOINT


def _automatic(node: ir.Node, mode: str) -> bool:
    """RecomputeAll: every op. NormOnly: norms and what follows them. Standard: all but the expensive ops."""
    if mode == "RecomputeAll":
        return True
    if mode == "Standard":
        return node.op_type not in HEAVY
    if mode == "NormOnly":
        return node.op_type in NORMS or (node.op_type in NON_LINEAR and _after_norm(node))
    return False


def _after_norm(node: ir.Node) -> bool:
    source = node.inputs[0]
    producer = None if source is None else source.producer()
    return producer is not None and producer.op_type in NORMS


def _make_explicit(graph: ir.Graph) -> None:
    """Backward readers of a recomputed tensor read a copy whose name ends in `__re`; the originals stay."""
    copies: dict[ir.Value, ir.Value] = {}
    for node in list(graph):
        if node.meta.get(nodes.PASS) != nodes.BACKWARD:
            continue
        for position, value in enumerate(node.inputs):
            if value is not None and _is_recomputed(value):
                node.replace_input_with(position, _copy(graph, value, copies, node))


def _is_recomputed(value: ir.Value) -> bool:
    producer = value.producer()
    return producer is not None and producer.meta.get(nodes.RECOMPUTE_TYPE) == RECOMPUTE


def _copy(graph: ir.Graph, value: ir.Value, copies: dict[ir.Value, ir.Value], before: ir.Node) -> ir.Value:
    """The copy of a recomputed tensor; a loop, because chains of recomputed ops can be long."""
    pending = [value]
    while pending:
        current = pending[-1]
        node = current.producer()
        assert node is not None
        missing = [v for v in node.inputs if v is not None and _is_recomputed(v) and v not in copies]
        if current in copies or not missing:
            pending.pop()
            if current not in copies:
                _copy_node(graph, node, copies, before)
        else:
            pending.extend(missing)
    return copies[value]


def _copy_node(graph: ir.Graph, node: ir.Node, copies: dict[ir.Value, ir.Value], before: ir.Node) -> None:
    outputs = [nodes.tensor(f"{o.name}{SUFFIX}", o) for o in node.outputs]
    inputs = [v if v is None else copies.get(v, v) for v in node.inputs]
    meta = {**node.meta, nodes.PASS: nodes.BACKWARD, nodes.RECOMPUTE_TYPE: RECOMPUTED}
    made = nodes.make(
        node.op_type, inputs, outputs, domain=node.domain, like=node, attributes=dict(node.attributes), meta=meta
    )
    graph.insert_before(before, made)
    copies.update(zip(node.outputs, outputs, strict=True))
