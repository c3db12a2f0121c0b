"""Loops with a fixed number of passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...errors import popart_exception
from .. import dtypes
from .._building.checks import check_own
from .._building.create import create, like
from .._building.spec import whole_number
from ..context import _apart, get_current_context
from ..graph import Graph
from ..tensor import Tensor
from .call import CallSiteInfo, check_types, prepare_inputs


def repeat(
    graph: Graph,
    repeat_count: int,
    *inputs: Tensor | Iterable[Tensor],
    inputs_dict: Mapping[Tensor, Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Run a graph `repeat_count` times; its N outputs feed its first N inputs at the next pass.

    Raises
    ------
    ValueError
        A negative count, fewer inputs than outputs, or wrong inputs (see `call`).
    """
    return repeat_with_info(graph, repeat_count, *inputs, inputs_dict=inputs_dict).outputs


def repeat_with_info(
    graph: Graph,
    repeat_count: int,
    *inputs: Tensor | Iterable[Tensor],
    inputs_dict: Mapping[Tensor, Tensor] | None = None,
    check_inputs: bool = True,
) -> CallSiteInfo:
    """As `repeat`, returning the site; its graph is a wrapper with two more inputs and one more output."""
    check_own(Graph, graph=graph)
    repeat_count = whole_number("repeat_count", repeat_count)
    if repeat_count < 0:
        raise ValueError(f"Repeat count must be >= 0. Repeat count: {repeat_count}. Graph: {graph!r}")
    if len(graph.inputs) < len(graph.outputs):
        raise ValueError(
            f"To repeat the subgraph ({graph.id}) the number of inputs must be greater than or equal to the number of "
            f"outputs. {len(graph.inputs)} < {len(graph.outputs)}"
        )
    values = prepare_inputs(graph, inputs, inputs_dict, check_inputs, "called")
    check_types(graph, values)
    for i, (out, carried) in enumerate(zip(graph.outputs, graph.inputs, strict=False)):
        if (out.shape, out.dtype) != (carried.shape, carried.dtype):
            raise popart_exception(f"repeat: output {i} {out!r} can't feed input {carried!r} of {graph!r}")
    wrapper = _wrapper(graph)
    ordered: list[Tensor | None] = [values.get(i) for i in range(len(graph.inputs))]
    outs = [like(t, t.name) for t in graph.outputs]
    here = get_current_context().graph
    ids = [here.ir._suffixed(f"{here.id}/{o.name}" if here.id else o.name) for o in outs]
    by_ref = [i + 2 for i, t in enumerate(graph.inputs) if t in graph._by_ref_inputs and i in values]
    writes = [(i, len(outs) + k) for k, i in enumerate(by_ref)]
    attributes = {"body": wrapper, "trip_count": int(repeat_count)}
    return CallSiteInfo(create("Loop", [None, None, *ordered], outs, attributes, writes=writes, output_ids=ids))


def _wrapper(graph: Graph) -> Graph:
    """A graph (iterator, condition, inputs...) -> (condition, outputs...) that calls `graph` once."""
    owner = graph.ir
    wrapper = owner._new_graph(owner._subgraph_id(f"{graph.id}__loop_wrapper"))
    with _apart(), wrapper:
        wrapper._add_input((), dtypes.int32, "Iterator___", False, ())
        condition = wrapper._add_input((), dtypes.bool, "LoopCond___", False, ())
        made = [wrapper._add_input_like(t, t in graph._by_ref_inputs) for t in graph.inputs]
        outs = [like(t, t.name) for t in graph.outputs]
        ids = [owner._suffixed(f"{wrapper.id}/{o.name}") for o in outs]
        by_ref = [i for i, t in enumerate(graph.inputs) if t in graph._by_ref_inputs]
        writes = [(i, len(outs) + k) for k, i in enumerate(by_ref)]
        op = create("Call", made, outs, {"callee": graph}, writes=writes, output_ids=ids)
    wrapper._graph.outputs.extend([condition._value, *op._node.outputs])
    return wrapper
