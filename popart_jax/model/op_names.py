"""Names of operators in messages and records: `domain.Type:version`, also with node name and tensors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import cache
from typing import Any

import onnx_ir as ir
from onnx import defs

from .checks.structure import bodies

ONNX = ("", "ai.onnx")


def identifier(node: ir.Node, opset: int) -> str:
    """Domain, type and the version of the op that a model of this opset uses."""
    domain = "ai.onnx" if node.domain in ONNX else node.domain
    return f"{domain}.{node.op_type}:{_version(domain, node.op_type, opset)}"


def part_names(node: ir.Node) -> list[str]:
    """Names for profiles and prices of the convolutions of a MultiConv, none for other nodes."""
    return [f"MultiConv:{v.name}" for v in node.outputs] if node.op_type == "MultiConv" else []


def listed(values: Iterable[Any]) -> str:
    """A shape or list as PopART prints it: ``[2 3]``."""
    return f"[{' '.join(map(str, values))}]"


def type_and_shape(kind: str, shape: Iterable[Any]) -> str:
    """A tensor's type and shape as PopART prints them: ``FLOAT   [2 3]``."""
    return f"{kind:<8}{listed(shape)}"


def describe(node: ir.Node, opset: int, scope: str = "") -> str:
    """An op as most messages name it, long: ``Op(name (domain.Type:version), inputs=[...], outputs=[...])``.

    `scope` stands before the names of tensors, ``subgraph/`` for one of a subgraph.
    """
    return long_name(node, node.name or "", identifier(node, opset), scope)


def op_names(node: ir.Node, opset: int, number: int | None = None) -> dict[str, str]:
    """All ways in which PopART's messages name an op, by the placeholder of `OpError`.

    ``opid``: `identifier`; ``op``, short: the op's number in its graph and `identifier`; ``Op``, long: `describe`;
    ``New``: an op that is just being made from its node; ``name``: the node's name. The number is `number`, or that of
    the nodes before it; `opset` is the version of its domain.
    """
    opid, name = identifier(node, opset), node.name or ""
    return {
        "opid": opid,
        "op": f"{_number(node) if number is None else number} ({opid})",
        "Op": describe(node, opset),
        "New": _long(node, f"{name}[{opid}]"),
        "name": name,
    }


def long_name(node: ir.Node, name: str, opid: str, scope: str = "") -> str:
    """``Op(<name> (<opid>), inputs=[...], outputs=[...])``; an op without a name has its identifier alone."""
    return _long(node, f"{name} ({opid})" if name else opid, scope)


def _long(node: ir.Node, head: str, scope: str = "") -> str:
    inputs = ", ".join(f"{scope}{v.name}" for v in node.inputs if v is not None)
    outputs = ", ".join(f"{scope}{v.name}" for v in node.outputs if v.name)
    graphs = ", ".join(_subgraph(graph) for _, graph in bodies(node))
    inner = f"subgraphs=[{graphs}], " if graphs else ""
    return f"Op({head}, {inner}inputs=[{inputs}], outputs=[{outputs}])"


def _subgraph(graph: ir.Graph) -> str:
    inputs, outputs = (", ".join(v.name or "" for v in values) for values in (graph.inputs, graph.outputs))
    return f"{graph.name or ''}({inputs}; {outputs})"


def _number(node: ir.Node) -> int:
    """Ops are numbered in the order of their nodes; constants are no ops."""
    graph = node.graph
    if graph is None:
        return 0
    before = itertools.takewhile(lambda other: other is not node, graph)
    return sum(other.op_type != "Constant" for other in before)


@cache
def _version(domain: str, op_type: str, opset: int) -> int:
    if domain != "ai.onnx":
        return 1
    try:
        return defs.get_schema(op_type, opset).since_version
    except defs.SchemaError:  # an op that exists only inside PopART's IR
        return 1
