"""The gradient of a conditional: a conditional over the branches' gradient graphs."""

from __future__ import annotations

from typing import Any


def emit(b: Any, step: Any) -> None:
    """Append an IfGrad operator: each branch calls its gradient graph and gives zeros for the other branch's inputs."""
    op = step.op
    then, other = op._called()
    of = list(step.of)
    sizes = (1, 1 + len(then.inputs))
    branches, operands = [], []
    for info, start, graph in zip(step.infos, sizes, (then, other), strict=True):
        branch, inputs = _branch(b, op, info, start, graph, of)
        branches.append(branch)
        operands.append(inputs)
    from .._create import Out, create, result

    targets = [op._in(i) for i in of]
    outs = [Out(f"Gradient___{t.name}", t.shape, t.dtype, t.meta_shape) for t in targets]
    attributes = {"then_branch": branches[0], "else_branch": branches[1], "then_inputs": len(operands[0])}
    condition = b.forward[op._in(0).id]
    settings = op._settings.copy(f"{op._settings.name}_grad")
    made = create("IfGrad", [condition, *operands[0], *operands[1]], outs, attributes, graph=b.graph,
                  settings=settings, runs=("popxl", "If", 1))  # fmt: skip
    for k, t in enumerate(targets):
        b.add(t, result(made, k))


def _branch(b: Any, op: Any, info: Any, start: int, forward: Any, of: list[int]) -> tuple[Any, list[Any]]:
    """A graph that calls one gradient graph, with outputs for every wanted input of both branches; and its operands."""
    from .._create import Out, create, result
    from .grow_gradients import is_forward, parent_of

    owner = forward.ir
    graph = owner._new_graph(owner._subgraph_id(f"{info.graph.id}_branch"))
    operands, inputs = [], []
    with graph:
        for t, e in zip(info.graph.inputs, info.expected_inputs, strict=True):
            inputs.append(graph._add_input(t.shape, t.dtype, t.name, False, t.meta_shape))
            if is_forward(e):
                operands.append(b.forward[parent_of(op, info.forward_graph, e.fwd_tensor, start).id])
            else:
                operands.append(b.given(op._out(forward.outputs.index(e.fwd_tensor))))
        outs = [Out(t.name, t.shape, t.dtype, t.meta_shape) for t in info.graph.outputs]
        call = create("Call", inputs, outs, {"callee": info.graph}, graph=graph)
        given = {
            forward.inputs.index(e.fwd_tensor) + start: result(call, k) for k, e in enumerate(info.expected_outputs)
        }
        for i in of:
            t = op._in(i)
            if i in given:
                graph._graph.outputs.append(given[i]._value)
            else:
                out = Out(f"Gradient___{t.name}", t.shape, t.dtype)
                zero = create("Init", [], [out], {"shape": t.shape, "dtype": t.dtype}, graph=graph)
                graph._graph.outputs.append(result(zero)._value)
    return graph, operands
