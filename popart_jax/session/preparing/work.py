"""Check that something is left to compute, in the main graph and in each subgraph."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from ...errors import popart_exception
from ...execution import Program
from ...lowering.interpreter import names
from ...lowering.loop_count import ancestors
from ...lowering.resolve import has_effect
from ...model.checks.structure import bodies, every_node
from .anchoring import GRADIENT, source_of


def check_work(program: Program, anchors: Collection[str]) -> None:
    """Raise when no anchor or weight update needs any operator of the model; popart_exception in PopART's words."""
    training = program.training
    known = names(program.graph)
    backward = [a for a in anchors if a.startswith(GRADIENT) and a not in known]
    if training is not None and (training.rules or any(a != GRADIENT + training.loss for a in backward)):
        return
    shown = {source_of(a, known) for a in anchors} | set(program.copies.values())
    makers = [known[n].producer() for n in shown if n in known]
    works = any(node is not None and node.op_type != "Constant" for node in makers)
    if not works and not any(has_effect(node) for node in program.graph):
        raise popart_exception("All operations in the main graph were pruned, nothing to compute")


def check_subgraphs(graph: ir.Graph) -> None:
    """Raise for a subgraph that has operators, none of which leads to an output or has an effect.

    Raises popart_exception in PopART's words.
    """
    for node in every_node(graph):
        for name, body in bodies(node):
            operators = [n for n in body if n.op_type != "Constant"]
            read = ancestors({v for v in body.outputs if v.graph is body})
            if operators and not any(has_effect(n) or not read.isdisjoint(n.outputs) for n in operators):
                raise popart_exception(f"All operations in graph {body.name or name} were pruned, nothing to compute")
