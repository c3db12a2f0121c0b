"""Bounds of results whose size depends on data, so that they can be compiled: attributes of their nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import onnx_ir as ir

from ...errors import popart_exception
from ...model.checks.structure import every_node

SIZE, FILL = "__size", "__fill_value"


def how(names: Sequence[str]) -> str:
    """What to do about results of these names whose size depends on data."""
    asked = ", ".join(f"{name!r}: N" for name in names)
    return f"give each such result a bound: to_jax(model, bounds={{{asked}}}), or the node the attribute {SIZE} = N"


def in_want_of_bounds(node: ir.Node) -> list[str]:
    """Result of a node that needs a bound, and of the Range nodes of its graph that will ask for one next."""
    graph, found = node.graph, [node.outputs[0].name or ""]
    varying = set[Any]() if graph is None else {*graph.inputs}
    for other in graph or ():
        if other.op_type in ("Shape", "Size") or varying.isdisjoint(other.inputs):
            continue
        varying.update(other.outputs)
        if other.op_type == "Range" and SIZE not in other.attributes:
            found.append(other.outputs[0].name or "")
    return list(dict.fromkeys(found))


def set_bounds(graph: ir.Graph, bounds: Mapping[str, Any]) -> None:
    """Bound the results of the nodes that make these tensors, in subgraphs too; the nodes are marked in place.

    A bound is the size of the dimension that depends on data, maybe with the number that fills it up. Raises
    popart_exception where no node makes such a tensor, or a size is no whole number from 0 on.
    """
    makers = {v.name: n for n in every_node(graph) for v in n.outputs if v.name}
    for name, bound in bounds.items():
        size, *fill = cast("tuple[Any, ...]", bound) if isinstance(bound, tuple) else (bound,)
        if name not in makers:
            raise popart_exception(f"bounds: no node makes the tensor {name!r}")
        if isinstance(size, bool) or not isinstance(size, int) or size < 0 or len(fill) > 1:
            raise popart_exception(f"bounds: {name!r} takes a size from 0 on, or (size, fill value), got {bound!r}")
        node = makers[name]
        node.attributes[SIZE] = ir.AttrInt64(SIZE, size)
        if fill:
            exact = isinstance(fill[0], int)
            node.attributes[FILL] = ir.AttrInt64(FILL, fill[0]) if exact else ir.AttrFloat32(FILL, float(fill[0]))
