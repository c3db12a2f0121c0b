"""The gradient of a conditional: a conditional over the branches' gradient graphs."""

from __future__ import annotations

from typing import Any

from .._building.create import create, like, result


def emit(b: Any, step: Any, op: Any) -> list[tuple[Any, Any]]:
    """Append an IfGrad operator: a branch calls its gradient graph and returns zeros for the other branch's inputs."""
    branches, operands, start = list[Any](), list[list[Any]](), 1
    for graph in op._called():
        branch, inputs = _branch(b, op, b.plan.info_of(graph), start, step.of)
        branches.append(branch)
        operands.append(inputs)
        start += len(graph.inputs)
    targets = [op._in(i) for i in step.of]
    attributes = {"then_branch": branches[0], "else_branch": branches[1], "then_inputs": len(operands[0])}
    condition = b.forward[op._in(0).id]
    outs = [like(t, f"Gradient___{t.name}") for t in targets]
    made = b.create(op, "IfGrad", [condition, *operands[0], *operands[1]], outs, attributes)
    return list(zip(targets, made, strict=True))


def _branch(b: Any, op: Any, info: Any, start: int, of: tuple[int, ...]) -> tuple[Any, list[Any]]:
    """A graph that calls one gradient graph, with outputs for the wanted inputs of both branches; and its operands."""
    forward = info.forward_graph
    owner = forward.ir
    graph = owner._new_graph(owner._subgraph_id(f"{info.graph.id}_branch"))
    operands = b.operands_for(op, info, start)
    with graph:
        inputs = [graph._add_input_like(t) for t in info.graph.inputs]
        outs = [like(t, t.name) for t in info.graph.outputs]
        call = create("Call", inputs, outs, {"callee": info.graph}, graph=graph)
        given = {
            forward.inputs.index(e.fwd_tensor) + start: result(call, k) for k, e in enumerate(info.expected_outputs)
        }
        for i in of:
            graph._graph.outputs.append((given[i] if i in given else _zero(op._in(i), graph))._value)
    return graph, operands


def _zero(t: Any, graph: Any) -> Any:
    out = like(t, f"Gradient___{t.name}")
    return result(create("Init", [], [out], {"shape": t.shape, "dtype": t.dtype}, graph=graph))
