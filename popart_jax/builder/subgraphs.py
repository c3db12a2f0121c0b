"""Adding operators that hold graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from ..errors import popart_exception
from ..model.checks.structure import bodies
from ..model.debug import DebugContext, path_of
from ..model.node_parts import BodyTypes, SubgraphNode
from .attributes import node_of
from .core import _BuilderCore
from .description import UNKNOWN, describe_value
from .infer import infer, known, set_type
from .method import Method


def core_of(builder: Any) -> _BuilderCore:
    """The core of a subgraph builder, given the Python builder or the core itself; TypeError for anything else."""
    if not isinstance(builder, _BuilderCore):
        raise TypeError(f"a subgraph is given as a Builder, got {type(builder).__name__}")
    return builder


def bind_types(body: ir.Graph, arguments: Sequence[tuple[Any, Any]], opsets: dict[str, int]) -> None:
    """Give a body's inputs the types of the arguments where they have none, and infer its nodes anew if needed."""
    changed = False
    for value, (dtype, shape) in zip(body.inputs, arguments, strict=False):
        if dtype is not None and (value.dtype is None or value.shape is None):
            set_type(value, dtype, shape)
            changed = True
    if changed:
        for node in body:
            if node.domain in ("", "ai.graphcore") and not any(bodies(node)):
                infer(node, opsets.get(node.domain, 1))


def add(
    core: _BuilderCore,
    method: Method,
    rule: BodyTypes,
    values: dict[str, Any],
    context: DebugContext | str,
    version: int,
) -> list[str]:
    """Add an operator that holds graphs; returns the names of its outputs.

    Raises popart_exception for an unknown tensor, or a graph with other numbers of inputs or outputs than the operator
    takes.
    """
    builders = {p.name: core_of(values.pop(p.name)) for p in method.parameters if p.kind == "builder"}
    parts = node_of(method, values)
    inputs = [describe_value(core._value(n)) if n else None for n in parts.inputs]
    arguments = [UNKNOWN if x is None else x.type for x in inputs]
    first = inputs[0].array() if inputs and inputs[0] is not None else None
    node = SubgraphNode(path_of(context), arguments, first, parts.attributes, parts.outputs)
    for name, builder in builders.items():
        body = builder._graph
        wrong = rule.complaint(node, name, len(body.inputs), len(body.outputs))
        if wrong:
            raise popart_exception(wrong)
        bind_types(body, rule.passed(node), dict(core._model.opset_imports))
    names = core._add_node(
        method.op,
        parts.inputs,
        {**parts.attributes, **{name: builder._frozen() for name, builder in builders.items()}},
        parts.outputs,
        context,
        domain="" if method.domain == "ai.onnx" else method.domain,
        version=version,
        inferred=False,
        api=method.name,
    )
    *_, last = builders.values()
    results = rule.returned(node, [known(v) for v in last._graph.outputs])
    for name, (dtype, shape) in zip(names, results, strict=False):
        set_type(core._values[name], dtype, shape)
    return names
