"""Plan of a PopXL gradient graph: the gradient operators that it needs, and the forward tensors that they read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ...autodiff import Step, steps_of, tokens
from ...errors import popart_exception
from ...ops import Gradient, Trait, facts
from .gradient_info import GradGraphInfo
from .operands import op_of, tensor_of

if TYPE_CHECKING:
    from ..graph import Graph
    from ..tensor import Tensor
    from .op import Op

InfoOf = Callable[["Graph"], GradGraphInfo]
"""The gradient graph of a called graph."""


@dataclass
class Plan:
    """Gradient operators in order, provided and required gradients; `recompute`: only graph inputs are read."""

    graph: Graph
    provided: list[Tensor]
    required: list[Tensor]
    steps: list[Step]
    info_of: InfoOf
    recompute: bool = False

    @property
    def reads(self) -> list[Tensor]:
        """Forward tensors in the order of the gradient graph's inputs: by id."""
        found = {v.name or "": tensor_of(v) for s in self.steps for v in s.reads if v is not None}
        return [found[name] for name in sorted(found)]


MADE_BY_HAND = ("PrintTensor", "AllReduce", "ReplicatedAllGather", "ReplicatedReduceScatter")
"""Operators whose gradient is an operator of the same kind, with other attributes."""


def steps(node: ir.Node, needed: list[int], info_of: InfoOf) -> list[Step]:
    """The gradient operators of a node for the inputs at some positions."""
    op: Op = op_of(node)
    kind = op.opType()
    if not needed:
        return []
    if kind == "Call":
        return _call_steps(op, needed, info_of)
    if kind == "If":
        return _if_steps(op, needed, info_of)
    if "no_gradient" in op._options:
        raise popart_exception(op._options["no_gradient"])
    if _is_scaled(op) and op._facts.has(Trait.PRODUCT):
        what = "matmul" if kind == "MatMul" else "convolution"
        raise popart_exception(f"Using a scaled {what} in a backwards pass is currently not supported.")
    if kind in MADE_BY_HAND or "gradient" in op._options:
        return [Step(node, op._facts.gradient_operators[0], tuple(needed))]
    return steps_of(node, _gradients(op), needed)


def _gradients(op: Op) -> tuple[Gradient, ...]:
    """Gradient operators of a forward operator; none where it has no gradient, or none for what it computes."""
    row = op._facts
    if row.forward and row.gradients is None:
        row = facts(row.forward)
    entries = row.gradients or ()
    refused = row.has(Trait.NOT_DIFFERENTIABLE | Trait.REFUSES_GRADIENT)
    return (
        () if refused or _is_scaled(op) or _is_cast_of_whole_numbers(op) or not _has_results(op, entries) else entries
    )


def _is_cast_of_whole_numbers(op: Op) -> bool:
    """A Cast is the only operator whose gradient depends on a type (supplement 5.2)."""
    source = op._node.inputs[0] if op.opType() == "Cast" else None
    return source is not None and source.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def _is_scaled(op: Op) -> bool:
    """Whether an operator computes with float8 numbers and a scale."""
    return facts(op._translation[1]).has(Trait.SCALED_FLOAT8)


def _has_results(op: Op, entries: tuple[Gradient, ...]) -> bool:
    """Whether the operator has the results that its gradients read: an inference form may lack them."""
    return all(
        op.hasOutput(int(token[1:])) for entry in entries for token in tokens(op._node, entry) if token[0] == "y"
    )


def _call_steps(op: Op, needed: list[int], info_of: InfoOf) -> list[Step]:
    info = info_of(op._called()[0])
    inputs = op._called()[0].inputs
    given = {e.fwd_tensor.id for e in info.expected_outputs}
    of = tuple(i for i in needed if inputs[i].id in given)
    return [Step(op._node, None, of, _forward_values(op, info, 0))] if of else []


def _forward_values(op: Op, info: GradGraphInfo, offset: int) -> list[ir.Value | None]:
    """Parent tensors of the forward tensors that a gradient graph reads."""
    read = [e.fwd_tensor for e in info.expected_inputs if is_forward(e)]
    return [parent_of(op, info.forward_graph, t, offset)._value for t in read]


def is_forward(connection: Any) -> bool:
    """Whether a connection is a forward value."""
    return connection.connection_type.name == "Fwd"


def parent_of(op: Op, graph: Graph, tensor: Tensor, offset: int) -> Tensor:
    """The parent tensor of an input or output of a called graph at a call."""
    if tensor in graph.inputs:
        return op._in(graph.inputs.index(tensor) + offset)
    return op._out(graph.outputs.index(tensor))


def _if_steps(op: Op, needed: list[int], info_of: InfoOf) -> list[Step]:
    of, reads, start = list[int](), [op._in(0)._value], 1
    for graph in op._called():
        info = info_of(graph)
        reads += _forward_values(op, info, start)
        given = {e.fwd_tensor.id for e in info.expected_outputs}
        of += [start + k for k, t in enumerate(graph.inputs) if t.id in given and start + k in needed]
        start += len(graph.inputs)
    return [Step(op._node, None, tuple(of), reads)] if of else []
