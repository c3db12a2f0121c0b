"""Checks of model-local functions and of the nodes that call them, before calls are replaced by bodies."""

from __future__ import annotations

import itertools

import onnx_ir as ir

from ...errors import popart_exception
from .structure import bodies, every_node


def check_functions(model: ir.Model) -> None:
    """Check functions and calls; what the inliner needs of them is added.

    Raises popart_exception where a call has more inputs or outputs than its function, or a function reads what it
    neither takes nor makes.
    """
    for function in model.functions.values():
        _check_reads(function)
        _pass_on(function)
    _check_calls(model)


def _check_reads(function: ir.Function) -> None:
    """Check that nodes of a function read nothing from outside: unlike a subgraph, it sees its inputs alone."""
    known = set(function.inputs)
    for node in every_node(function):
        for value in node.inputs:
            if value is not None and value not in known:
                raise popart_exception(
                    f"Function '{function.name}' of the domain '{function.domain}' reads '{value.name}' in node "
                    f"'{node.name or node.op_type}'; it takes {[v.name for v in function.inputs]}, and no node before "
                    "makes it.\n  fix: make it an input of the function, and pass it where the function is called."
                )
        known.update(node.outputs)
        for _, graph in bodies(node):
            known |= {*graph.inputs, *graph.initializers.values()}


def _pass_on(function: ir.Function) -> None:
    """Outputs that are inputs too become copies: the inliner would give the caller's value the name of the result."""
    for at, value in enumerate(function.outputs):
        if value in function.inputs:
            copy = ir.node("Identity", [value])
            function.append(copy)
            function.outputs[at] = copy.outputs[0]


def _check_calls(model: ir.Model) -> None:
    """Check that calls fit their functions; trailing outputs that a call omits are added."""
    unused = (f"unused/{number}" for number in itertools.count())
    for nodes in (model.graph, *model.functions.values()):
        for node in every_node(nodes):
            called = model.functions.get(node.op_identifier())
            if called is None:
                continue
            for what, there, most in (
                ("inputs", len(node.inputs), len(called.inputs)),
                ("outputs", len(node.outputs), len(called.outputs)),
            ):
                if there > most:
                    raise popart_exception(
                        f"Node '{node.name or node.op_type}' calls the function '{node.op_type}' with {there} {what}; "
                        f"it has {most}."
                    )
            node.resize_outputs(len(called.outputs))  # the inliner needs all of them
            for value in node.outputs:
                value.name = value.name or next(unused)
