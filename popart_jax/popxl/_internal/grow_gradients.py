"""Growing a gradient graph: which gradient operators are needed, then making them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...autodiff import forward_reads, tokens
from ...errors import popart_exception
from ...lowering.effects import effect_of
from ...ops import Gradient, Trait, facts, gradient
from ..context import get_current_context
from .enums import ExecutionContext

if TYPE_CHECKING:
    from ..graph import Graph
    from ..tensor import Tensor
    from ..transforms.autodiff import GradGraphInfo
    from .op import Op

Infos = dict[Any, Any]
_CALL_GRADIENT, _IF_GRADIENT = gradient("CallGrad"), gradient("IfGrad")


@dataclass
class Step:
    """One gradient operator to be: of which forward operator, by which entry, for which of its inputs."""

    op: Op
    gradient: Gradient
    of: tuple[int, ...]
    reads: list[Tensor] = field(default_factory=list)
    infos: tuple[GradGraphInfo, ...] = ()


@dataclass
class Plan:
    """All steps in order, and the forward tensors they read."""

    graph: Graph
    provided: list[Tensor]
    required: list[Tensor]
    steps: list[Step] = field(default_factory=list)

    @property
    def reads(self) -> list[Tensor]:
        """Forward tensors in the order of the gradient graph's inputs: by id."""
        found = {t.id: t for s in self.steps for t in s.reads}
        return [found[i] for i in sorted(found)]


def differentiate(
    graph: Graph,
    provided: Sequence[Tensor] | None,
    required: Sequence[Tensor] | None,
    infos: Infos,
    lenient: bool = False,
) -> GradGraphInfo:
    """See `transforms.autodiff`; with `lenient` only gradients that can be had are required."""
    from .build_gradients import build

    _check_forward(graph)
    outputs = list(graph.outputs) if provided is None else list(provided)
    wanted = list(graph.inputs) if required is None else list(required)
    for t in outputs:
        if t not in graph.outputs:
            raise popart_exception(f"Gradient provided for {t!r}, which is not an output of {graph!r}")
    for t in wanted:
        if t not in graph:
            raise popart_exception(f"Gradient required for {t!r}, which is not in {graph!r}")
    plan, reached = _plan(graph, outputs, wanted, infos)
    missing = [t for t in wanted if t.id not in reached]
    if missing and not lenient:
        raise popart_exception(
            f"Unable to provide required gradient output for {missing[0]!r} of {graph!r}: no gradient reaches it.\n"
            "  fix: leave it out of `grads_required`."
        )
    plan.required = [t for t in wanted if t.id in reached]
    context = get_current_context()
    saved = context._sequencer, context._name_scopes, context._execution_context
    context._sequencer, context._name_scopes = type(saved[0])(), []
    context._execution_context = ExecutionContext.Normal
    try:
        return build(plan)
    finally:
        context._sequencer, context._name_scopes, context._execution_context = saved


def _check_forward(graph: Graph) -> None:
    for op in graph._ops.values():
        effect = effect_of(op._node)
        if effect is not None and effect.writes:
            raise popart_exception(f"{graph!r} can't be differentiated: {op.debugName()} changes a tensor in place")


def _plan(graph: Graph, provided: list[Tensor], required: list[Tensor], infos: Infos) -> tuple[Plan, set[str]]:
    """Steps in reverse order of the forward operators; also which tensors get a gradient."""
    leads = _leading_to(graph, required)
    plan = Plan(graph, provided, required)
    reached = {t.id for t in provided}
    for op in sorted(graph._ops.values(), key=lambda o: o.id, reverse=True):
        outputs = op._outputs()
        if not any(t.id in reached for t in outputs.values()):
            continue
        needed = [i for i, t in op._inputs().items() if t.id in leads and t.dtype.is_floating_point]
        if not needed:
            continue
        for step in _steps_of(op, needed, reached, infos):
            plan.steps.append(step)
            reached.update(op._in(i).id for i in step.of)
    return plan, reached


def _leading_to(graph: Graph, required: list[Tensor]) -> set[str]:
    """Ids of tensors that some required tensor influences."""
    found = {t.id for t in required}
    for op in sorted(graph._ops.values(), key=lambda o: o.id):
        if any(t.id in found for t in op._inputs().values()):
            found.update(t.id for t in op._outputs().values())
    return found


MADE_BY_HAND = ("PrintTensor", "AllReduce", "ReplicatedAllGather", "ReplicatedReduceScatter")
"""Operators whose gradient is an operator of the same kind, with other attributes."""


def _steps_of(op: Op, needed: list[int], reached: set[str], infos: Infos) -> list[Step]:
    kind = op.opType()
    if kind == "Call":
        return _call_steps(op, needed, infos)
    if kind == "If":
        return _if_steps(op, needed, infos)
    if kind in MADE_BY_HAND:
        return [Step(op, op._facts.gradient_operators[0], tuple(needed))]
    steps = []
    for entry in _gradients(op):
        groups = [(i,) for i in needed] if entry.of is None else [tuple(i for i in entry.of if i in needed)]
        steps += [Step(op, entry, of, _read(op, entry, of[0])) for of in groups if of]
    return steps


def _gradients(op: Op) -> tuple[Gradient, ...]:
    """Gradient operators of a forward operator.

    Raises
    ------
    popart_exception
        It has none: PopART has no gradient for it, or for what it computes.
    """
    row = op._facts
    if row.forward and row.gradients is None:
        row = facts(row.forward)
    refused = row.gradients is None or row.has(Trait.NOT_DIFFERENTIABLE | Trait.REFUSES_GRADIENT)
    if refused or facts(op._node.op_type).has(Trait.SCALED_FLOAT8) or not _has_results(op, row.gradients or ()):
        raise popart_exception(f"{op.debugName()} has no gradient definition, but a gradient must flow through it")
    return row.gradients or ()


def _has_results(op: Op, entries: tuple[Gradient, ...]) -> bool:
    """Whether the operator has the results that its gradients read: an inference form may lack them."""
    return all(
        op.hasOutput(int(token[1:])) for entry in entries for token in tokens(op._node, entry) if token[0] == "y"
    )


def _read(op: Op, entry: Gradient, operand: int) -> list[Tensor]:
    """The forward tensors that a gradient operator reads."""
    return [v.meta["tensor"] for v in forward_reads(op._node, entry, operand) if v is not None]


def info_for(called: Graph, infos: Infos) -> GradGraphInfo:
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


def _call_steps(op: Op, needed: list[int], infos: Infos) -> list[Step]:
    info = info_for(op._called()[0], infos)
    inputs = op._called()[0].inputs
    given = {e.fwd_tensor.id for e in info.expected_outputs}
    of = tuple(i for i in needed if inputs[i].id in given)
    if not of:
        return []
    return [Step(op, _CALL_GRADIENT, of, _forward_values(op, info, 0), (info,))]


def _forward_values(op: Op, info: GradGraphInfo, offset: int) -> list[Tensor]:
    """Parent tensors of the forward tensors that a gradient graph reads."""
    return [parent_of(op, info.forward_graph, e.fwd_tensor, offset) for e in info.expected_inputs if is_forward(e)]


def is_forward(connection: Any) -> bool:
    """Whether a connection is a forward value."""
    return connection.connection_type.name == "Fwd"


def parent_of(op: Op, graph: Graph, tensor: Tensor, offset: int) -> Tensor:
    """The parent tensor of an input or output of a called graph at a call."""
    if tensor in graph.inputs:
        return op._in(graph.inputs.index(tensor) + offset)
    return op._out(graph.outputs.index(tensor))


def _if_steps(op: Op, needed: list[int], infos: Infos) -> list[Step]:
    then, other = op._called()
    pair = (info_for(then, infos), info_for(other, infos))
    reads = [op._in(0), *_forward_values(op, pair[0], 1), *_forward_values(op, pair[1], 1 + len(then.inputs))]
    of = []
    for i in needed:
        first = i <= len(then.inputs)
        info = pair[0 if first else 1]
        graph_input = info.forward_graph.inputs[i - 1 - (0 if first else len(then.inputs))]
        if graph_input.id in {e.fwd_tensor.id for e in info.expected_outputs}:
            of.append(i)
    return [Step(op, _IF_GRADIENT, tuple(of), reads, pair)] if of else []
