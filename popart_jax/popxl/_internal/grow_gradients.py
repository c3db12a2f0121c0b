"""The gradient graph of a graph of PopXL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...autodiff import plan
from ...errors import popart_exception
from ...lowering.effects import effect_of
from ..context import get_current_context
from .build_gradients import build
from .enums import ExecutionContext
from .gradient_info import GradGraphInfo
from .plan_gradients import Plan, steps

if TYPE_CHECKING:
    from ..graph import Graph
    from ..tensor import Tensor

Infos = dict["Graph", GradGraphInfo]
"""Gradient graphs by forward graph: those given, and those made on the way."""


def differentiate(
    graph: Graph,
    provided: Sequence[Tensor] | None,
    required: Sequence[Tensor] | None,
    infos: Infos,
    lenient: bool = False,
) -> GradGraphInfo:
    """See `transforms.autodiff`; with `lenient` only gradients that can be had are required."""
    _check_forward(graph)
    outputs = list(graph.outputs) if provided is None else list(provided)
    wanted = list(graph.inputs) if required is None else list(required)
    for t in outputs:
        if t not in graph.outputs:
            raise popart_exception(f"Gradient provided for {t!r}, which is not an output of {graph!r}")
    for t in wanted:
        if t not in graph:
            raise popart_exception(f"Gradient required for {t!r}, which is not in {graph!r}")
    ops = sorted(graph._ops.values(), key=lambda op: op.id)
    info_of = partial(_info_of, infos=infos)
    found, reached = plan(
        [op._node for op in ops],
        [t._value for t in outputs],
        partial(steps, info_of=info_of),
        [t._value for t in wanted],
    )
    missing = [t for t in wanted if t._value not in reached]
    if missing and not lenient:
        raise popart_exception(
            f"Unable to provide required gradient output for {missing[0]!r} of {graph!r}: no gradient reaches it.\n"
            "  fix: leave it out of `grads_required`."
        )
    whole = Plan(graph, outputs, [t for t in wanted if t._value in reached], found, info_of)
    context = get_current_context()
    saved = context._sequencer, context._name_scopes, context._execution_context
    context._sequencer, context._name_scopes = type(saved[0])(), []
    context._execution_context = ExecutionContext.Normal
    try:
        return build(whole)
    finally:
        context._sequencer, context._name_scopes, context._execution_context = saved


def _check_forward(graph: Graph) -> None:
    for op in graph._ops.values():
        effect = effect_of(op._node)
        if effect is not None and effect.writes:
            raise popart_exception(f"{graph!r} can't be differentiated: {op.debugName()} changes a tensor in place")


def _info_of(called: Graph, infos: Infos) -> GradGraphInfo:
    """The gradient graph of a called graph, made now unless it was given."""
    if called not in infos:
        if not called._can_autodiff:
            raise popart_exception(
                f"The graph {called.id!r} is marked as unsafe to autodiff recursively; pass its gradient graph in "
                "`called_graphs_grad_info`."
            )
        floating = [t for t in called.outputs if t.dtype.is_floating_point]
        infos[called] = differentiate(called, floating, list(called.inputs), infos, lenient=True)
    return infos[called]
