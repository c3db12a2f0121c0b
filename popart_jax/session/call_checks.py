"""Calls of one subgraph: named, and with arguments of the same types each time, since they share its ops."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ..errors import popart_exception
from ..execution import Type
from ..model.dtypes import BY_NUMPY
from ..model.op_names import describe


def check_calls(graph: ir.Graph, types: Mapping[str, Type], opset: int) -> None:
    """Refuse a later call whose arguments differ in type or shape from those of the first.

    Raises
    ------
    popart_exception
        The first such Call, or one of a subgraph without a name.
    """
    first: dict[str, list[Type | None]] = {}
    for node in graph:
        if (node.domain, node.op_type) != ("ai.graphcore", "Call"):
            continue
        callee = node.attributes["callee"].as_graph()
        if not callee.name:
            raise popart_exception(f"{describe(node, opset)}: CallOp subgraph must be named")
        given = [None if v is None else types.get(v.name or "") for v in node.inputs]
        wanted = first.setdefault(callee.name, given)
        for value, has, takes, inner in zip(node.inputs, given, wanted, callee.inputs, strict=False):
            if has != takes and has is not None and takes is not None:
                raise popart_exception(
                    f"{describe(node, opset)}: input '{value.name if value else ''}' ({_shown(has)}) does not match "
                    f"callee input tensor '{callee.name}/{inner.name}' ({_shown(takes)}), which the first call settled"
                )


def _shown(kind: Type) -> str:
    return f"{BY_NUMPY[kind.dtype].name} [{' '.join(map(str, kind.shape))}]"
