"""Checks of Calls: a subgraph needs a name, and all its calls the same argument types, since they share its ops."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ...errors import noted, popart_exception
from ...execution import Type
from ...model.op_names import describe
from ...ops.arrays import info


def check_calls(graph: ir.Graph, types: Mapping[str, Type], opset: int) -> None:
    """Raise popart_exception for the first call whose arguments differ in type or shape from those of an earlier one.

    A call of a subgraph without a name is refused too.
    """
    first: dict[str, list[Type | None]] = {}
    for node in graph:
        if (node.domain, node.op_type) != ("ai.graphcore", "Call"):
            continue
        callee = node.attributes["callee"].as_graph()
        if not callee.name:
            error = popart_exception("CallOp subgraph must be named, so that it can be identified for re-use.")
            raise noted(error, describe(node, opset))
        given = [None if v is None else types.get(v.name or "") for v in node.inputs]
        wanted = first.setdefault(callee.name, given)
        pairs = zip(node.inputs, given, wanted, callee.inputs, strict=False)
        for i, (value, has, takes, inner) in enumerate(pairs):
            if has != takes and has is not None and takes is not None:
                outer = value.name if value is not None else ""
                raise popart_exception(
                    f"CallOp input (@{i}) does not match callee input tensor (@{i}):\n"
                    f" {outer} -> {callee.name}/{inner.name}\n"
                    f" {info(has)} vs {info(takes)}"
                )
