"""Debug records of the IR: one per op and one per tensor, in the layer `popart`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, cast

import onnx_ir as ir

from patterns import static_shape

from ...ir_view import IrFacts, build, nodes
from ...ir_view.outline import REPLACED
from ...ir_view.serialise import MAIN, graph_names, op_attributes
from ...ir_view.sharing import all_graphs
from ...model.debug import DebugInfo, record, recording
from ...model.op_names import identifier

_LAYER = "popart"
_TYPES = {"variable": "Variable", "stream": "Stream", "const": "Const"}


def record_ir(facts: IrFacts) -> None:
    """Write the records of a session's IR, if a debug file is open."""
    if not recording():
        return
    graph = build(facts).graph
    names = graph_names(graph)
    numbers = count()
    inner: dict[ir.Node, DebugInfo | None] = {}
    kept: list[DebugInfo | None] = []  # records are written when they die: children first, then these
    opset = facts.graph.opset_imports.get("", 11)
    for each in reversed(all_graphs(graph)):
        for node in each:
            attributes = op_attributes(node, names, each is graph, facts.options.fully_connected_pass)
            extra = _outlined(node, inner, numbers) if REPLACED in node.meta else {}
            known: dict[str, object] = {
                "opid": identifier(node, opset),
                "graphId": names[id(each)],
                "attributes": attributes,
                **extra,
            }
            info = _record_op(node, next(numbers), known)
            inner[node] = info
            kept.append(info)
    for value in _tensors(graph):
        shape = static_shape(value)
        record(
            value.name or "",
            _LAYER,
            category="tensor",
            tensorId=value.name,
            shape=None if shape is None else f"[{' '.join(map(str, shape))}]",
            elementType=None if value.dtype is None else value.dtype.name,
            type=_TYPES.get(str(nodes.note(value, nodes.KIND)), "ActGrad"),
        )


def _record_op(node: ir.Node, number: int, known: dict[str, object]) -> DebugInfo | None:
    return record(
        node.name or "",
        _LAYER,
        category="op",
        instanceId=number,
        inputs=[v.name for v in node.inputs if v is not None],
        outputs=[v.name for v in node.outputs],
        discard=0,
        **known,
    )


def _outlined(node: ir.Node, inner: dict[ir.Node, DebugInfo | None], numbers: count[int]) -> dict[str, str]:
    """The ops that a Call replaced get records of their own, paired with those of their copies in the subgraph."""
    pairs: list[tuple[int, int]] = []
    for old in cast("Sequence[Any]", node.meta[REPLACED]):
        replaced = record(
            old.name, _LAYER, category="op", instanceId=next(numbers), opid=old.opid, inputs=old.inputs,
            outputs=old.outputs, graphId=MAIN, discard=1,
        )  # fmt: skip
        copy = inner.get(old.copy)
        if replaced and copy:
            pairs.append((replaced.getId(), copy.getId()))
    return {
        "replacedDebugContextIds": f"[{','.join(str(old) for old, _ in pairs)}]",
        "outlinedDebugContextIds": f"[{','.join(str(copy) for _, copy in pairs)}]",
    }


def _tensors(graph: ir.Graph) -> list[ir.Value]:
    values = [v for node in graph for v in (*node.inputs, *node.outputs) if v is not None]
    return list(dict.fromkeys(values))
