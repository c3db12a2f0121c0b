"""``inspect``: what is in a model."""

from __future__ import annotations

import argparse
from collections import Counter

import onnx_ir as ir
from rich.table import Table

from . import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--tree", action="store_true", help="list every node, by the scopes in its name")


def run(options: argparse.Namespace) -> int:
    """Show inputs, outputs, weights and operators; the exit status is 1 if an operator has no translation."""
    from ..lowering.resolve import find
    from ..model.files.load import load
    from . import tree

    model = load(options.model)
    graph, console = model.graph, shown.console()
    console.print(f"{graph.name}: IR version {model.ir_version}, opsets {dict(model.opset_imports)}")
    ends = Table("", "name", "type", "shape")
    for what, values in (("input", graph.inputs), ("output", graph.outputs)):
        for value in values:
            if value.name not in graph.initializers:
                ends.add_row(what, value.name, str(value.dtype), str(value.shape))
    console.print(ends)
    sizes = [v.const_value.nbytes for v in graph.initializers.values() if v.const_value is not None]
    console.print(f"{len(sizes)} initializers, {sum(sizes) / 1e6:.3f} MB")
    nodes = list(ir.traversal.RecursiveGraphIterator(graph))
    missing = {_identifier(n) for n in nodes if find(n, model.opset_imports) is None}
    operators = Table("operator", "count", "translation")
    for operator, count in Counter(_identifier(n) for n in nodes).most_common():
        operators.add_row(operator, str(count), "missing" if operator in missing else "yes")
    console.print(operators)
    if options.tree:
        console.print(tree.tree_of(graph))
    return 1 if missing else 0


def _identifier(node: ir.Node) -> str:
    return f"{node.domain or 'ai.onnx'}.{node.op_type}"
