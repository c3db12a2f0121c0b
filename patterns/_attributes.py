"""Node attributes from plain Python values, without onnx_ir's protocol checks (they dominate at 100,000 nodes)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import onnx_ir as ir

EXCLUDE = "__exclude_patterns"


def make_attributes(values: Mapping[str, Any]) -> list[ir.Attr]:
    """One attribute per item; values may be attributes already."""
    return [make_attribute(name, value) for name, value in values.items()]


def make_attribute(name: str, value: Any) -> ir.Attr:
    """An attribute of the kind its value suggests; TypeError where there is no such kind."""
    if type(value) is ir.Attr:
        return value
    if isinstance(value, (bool, int)):
        return ir.AttrInt64(name, int(value))
    if isinstance(value, float):
        return ir.AttrFloat32(name, value)
    if isinstance(value, str):
        return ir.AttrString(name, value)
    if isinstance(value, ir.Graph):
        return ir.AttrGraph(name, value)
    if isinstance(value, ir.Tensor):
        return ir.AttrTensor(name, cast("ir.TensorProtocol", value))
    if isinstance(value, Iterable):
        items = list(cast("Iterable[Any]", value))
        if all(isinstance(i, int) for i in items):
            return ir.AttrInt64s(name, items)
        if all(isinstance(i, (int, float)) for i in items):
            return ir.AttrFloat32s(name, [float(i) for i in items])
    # strings, tensors and graphs in lists; onnx_ir raises for other types
    return ir.convenience.convert_attribute(name, cast("Any", value))


def make_node(
    op_type: str,
    inputs: Iterable[ir.Value | None],
    outputs: Iterable[ir.Value],
    attributes: Mapping[str, Any],
    domain: str = "",
) -> ir.Node:
    """A node that is in no graph yet."""
    return ir.Node(domain, op_type, list(inputs), make_attributes(attributes), outputs=list(outputs))


def excluded_patterns(node: ir.Node) -> Sequence[str]:
    """Names of the patterns that must leave a node alone (`excludePatterns`)."""
    attribute = node.attributes.get(EXCLUDE)
    return () if attribute is None else attribute.as_strings()
