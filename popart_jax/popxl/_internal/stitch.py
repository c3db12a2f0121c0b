"""How a gradient graph gets the forward tensors that it reads: as inputs, or by recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ..graph import Graph
    from ..tensor import Tensor
    from .op import Op
    from .plan_gradients import Plan


def provide(plan: Plan, builder: Any) -> list[Tensor]:
    """Enter every forward tensor that the plan reads into ``builder.forward``; returns those that became inputs.

    Tensors that are neither inputs nor outputs of the forward graph become outputs of it, and of all its calls. If the
    graph is the body of a loop or a branch, or the plan asks for it, they are recomputed instead.
    """
    forward = plan.graph
    reads = plan.reads
    sites = call_sites(forward)
    if plan.recompute or any(op.opType() != "Call" for op in sites):
        return _recompute(plan, builder)
    bound = {t.id for t in (*forward.inputs, *forward.outputs)}
    for t in reads:
        builder.forward[t.id] = builder.graph._add_input_like(t)
    for t in reads:
        if t.id not in bound:
            forward._graph.outputs.append(t._value)
            bound.add(t.id)
            for op in sites:
                _extend(op, t)
    return reads


def call_sites(graph: Graph) -> list[Op]:
    """Operators of the whole Ir that call a graph."""
    return [op for g in graph.ir._graphs.values() for op in g._ops.values() if graph in op._called()]


def _extend(op: Op, t: Tensor) -> None:
    """Add an output to a call; the final values of modified inputs move one position further."""
    from ..tensor import Tensor as TensorClass
    from .modified import modified_inputs, set_modified

    modified = modified_inputs(op)
    n = len(op._node.outputs)
    op._node.resize_outputs(n + 1)
    value = op._node.outputs[n]
    parent = op._graph
    value.name = parent.ir._suffixed(f"{parent.id}/autodiff_output" if parent.id else "autodiff_output")
    value.shape, value.type = t._value.shape, t._value.type
    TensorClass._make(parent, value, t.meta_shape)
    set_modified(op, modified)


def _recompute(plan: Plan, builder: Any) -> list[Tensor]:
    """Copies of the forward operators that the read tensors depend on; only graph inputs are read."""
    forward = plan.graph
    needed: set[str] = {t.id for t in plan.reads}
    again: list[Any] = []
    for op in sorted(forward._ops.values(), key=lambda o: o.id, reverse=True):
        if any(t.id in needed for t in op._outputs().values()):
            again.append(op)
            needed.update(t.id for t in op._inputs().values())
    inputs = sorted((t for t in forward.inputs if t.id in needed), key=lambda t: t.id)
    for t in inputs:
        builder.forward[t.id] = builder.graph._add_input_like(t)
    for t in forward.constants:
        if t.id in needed:
            from ..tensor import constant

            builder.forward[t.id] = constant(t._host, t.dtype, t.name)
    for op in reversed(again):
        copy_op(op, builder.graph, builder.forward)
    return inputs


def copy_op(op: Op, graph: Graph, tensors: dict[str, Tensor]) -> None:
    """Copy an operator into another graph; `tensors` maps its operands to tensors there, and gains its outputs."""
    from .._building.create import create, like, result

    operands = [None if v is None else tensors[v.name or ""] for v in op._node.inputs]
    outs = [like(t, t.name) for t in op._outputs().values()]
    settings, runs = op._settings.copy(), op._translation
    made = create(op._facts, operands, outs, graph=graph, settings=settings, options=op._options, runs=runs)
    for name, attr in op._node.attributes.items():
        made._node.attributes[name] = attr
    made._node.meta.update({k: v for k, v in cast("dict[str, Any]", op._node.meta).items() if k not in made._node.meta})
    for i, t in enumerate(op._outputs().values()):
        tensors[t.id] = result(made, i)
