"""The gradient graph of a graph of PopXL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...autodiff import plan
from ...errors import popart_exception
from ...logs import module_logger
from ...lowering.effects import effect_of
from ..context import _apart, _execution_context
from .build_gradients import build
from .enums import ExecutionContext
from .gradient_info import GradGraphInfo
from .plan_gradients import Plan, steps
from .recursion import refuse_recursion

if TYPE_CHECKING:
    from ..graph import Graph
    from ..tensor import Tensor

Infos = dict["Graph", GradGraphInfo]
"""Gradient graphs by forward graph: those that the caller gave, and those made here."""


def differentiate(
    graph: Graph,
    provided: Sequence[Tensor] | None,
    required: Sequence[Tensor] | None,
    infos: Infos,
    recompute: bool = False,
) -> GradGraphInfo:
    """See `transforms.autodiff`; `infos` gains the gradient graphs of called graphs, which are made first.

    With `recompute` the gradient graph reads only inputs of the forward graph and recomputes activations.
    """
    _check_named(graph, (*(provided or ()), *(required or ())), required)
    refuse_recursion(graph)
    _check_forward(graph, infos)
    outputs = list(graph.outputs) if provided is None else list(provided)
    wanted = list(graph.inputs) if required is None else list(required)
    for t in outputs:
        if t not in graph.outputs:
            text = "autodiff of %s: a gradient is provided for %s, which is no output"
            module_logger("popart").warning(text, graph.id, t.id)
    found, reached = _plan(graph, outputs, wanted, infos)
    missing = [t for t in wanted if t._value not in reached]
    if missing:
        raise popart_exception(
            f"[Autodiff] Unable to provide required gradient output for fwd id '{missing[0].id}' in bwd graph "
            f"{graph.id}_bwd"
        )
    return _build_graph(Plan(graph, outputs, wanted, found, infos.__getitem__, recompute))


def _plan(graph: Graph, outputs: Sequence[Tensor], wanted: Sequence[Tensor], infos: Infos) -> tuple[Any, Any]:
    ops = sorted(graph._ops.values(), key=lambda op: op.id)
    given, required = [t._value for t in outputs], [t._value for t in wanted]
    return plan([op._node for op in ops], given, partial(steps, info_of=infos.__getitem__), required, bool)


def _differentiate_called(graph: Graph, infos: Infos) -> None:
    """Differentiate a called graph: all inputs that have a gradient, from the output gradients that these need."""
    if not graph._can_autodiff:
        raise popart_exception(
            f"The graph contains a call to another graph {graph.id} which has been marked as unsafe to autodiff. "
            "Please provide a gradient graph via `called_graphs_grad_info` in PopXL or `FwdGraphToBwdGraphInfo` in C++."
        )
    _check_forward(graph, infos)
    found, reached = _plan(graph, graph.outputs, graph.inputs, infos)
    wanted = [t for t in graph.inputs if t._value in reached]
    used = {v for step in found for v in step.node.outputs} | {t._value for t in wanted}
    infos[graph] = _build_graph(
        Plan(graph, [t for t in dict.fromkeys(graph.outputs) if t._value in used], wanted, found, infos.__getitem__)
    )


def _build_graph(whole: Plan) -> GradGraphInfo:
    with _apart(), _execution_context(ExecutionContext.Normal):
        return build(whole)


def _check_named(graph: Graph, tensors: Iterable[Tensor], required: Sequence[Tensor] | None) -> None:
    if required is not None and not required:
        raise popart_exception(
            f"[Autodiff] In call to Autodiff on forward graph `{graph.id}`, with defined but empty vector "
            "`gradsRequiredForFwdId`. You must either specify the tensors whose gradients are required, or nothing."
        )
    for t in tensors:
        if t not in graph:
            raise popart_exception(
                f"[Autodiff] In call to Autodiff on forward graph `{graph.id}`, you have passed a tensor with id "
                f"`{t.id}` to parameter `gradsRequired`, but this tensor is not in the forward graph"
            )


def _check_forward(graph: Graph, infos: Infos) -> None:
    """Differentiate the graphs that this one calls, and check that none of its operators writes in place."""
    for called in graph.called_graphs:
        if called not in infos:
            _differentiate_called(called, infos)
    for op in sorted(graph._ops.values(), key=lambda op: op.id):
        effect = effect_of(op._node)
        if effect is not None and effect.writes:
            raise popart_exception(
                f"The graph {graph.id} contains a modifying op: {op.debugName()}. Autodiff cannot be used on graphs "
                "with inplace modifying ops."
            )
