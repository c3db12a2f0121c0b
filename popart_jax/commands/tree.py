"""Every node of a model, by scope."""

from __future__ import annotations

import ast
import contextlib
from dataclasses import dataclass, field

import onnx_ir as ir
from rich.text import Text
from rich.tree import Tree

from ..lowering.resolve import bodies, label


@dataclass
class _Scope:
    """The part of a model under one name: its nodes in order, and the scopes inside it."""

    nodes: list[ir.Node] = field(default_factory=list[ir.Node])
    inner: dict[str, _Scope] = field(default_factory=dict[str, "_Scope"])

    def count(self) -> int:
        return len(self.nodes) + sum(scope.count() for scope in self.inner.values())


def tree_of(graph: ir.Graph) -> Tree:
    """Nodes by the scopes that exporters write into their names, with ``/`` or ``.``; bodies under their node."""
    root = Tree(Text(graph.name or "graph"))
    top = _Scope()
    for node in graph:
        at = top
        for part in _scopes(node):
            at = at.inner.setdefault(part, _Scope())
        at.nodes.append(node)
    _grow(root, top)
    return root


def _scopes(node: ir.Node) -> list[str]:
    """Scopes of a node: PyTorch's newer exporter stores them as metadata, the older one in the node's name."""
    noted = node.metadata_props.get("pkg.torch.onnx.name_scopes")
    if noted is not None:
        with contextlib.suppress(ValueError, SyntaxError):
            return [str(part).rpartition(".")[2] for part in ast.literal_eval(noted)[:-1] if part]
    return [part for part in (node.name or "").split("/")[:-1] if part]


def _grow(tree: Tree, scope: _Scope) -> None:
    for node in scope.nodes:
        ends = ", ".join(f"{v.name}: {v.type or '?'}{v.shape or ''}" for v in node.outputs if v.name)
        branch = tree.add(Text(f"{label(node)} -> {ends}"))
        for name, body in bodies(node):
            inside = branch.add(Text(name))
            _grow(inside, _Scope(list(body)))
    for name, inner in scope.inner.items():
        _grow(tree.add(Text(f"{name} ({inner.count()} nodes)")), inner)
