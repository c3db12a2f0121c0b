"""Gradient operators of one operator, as `Op.getGradOps` returns them, and what their inputs and outputs stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ...autodiff import Step, forward_places
from ...errors import popart_exception
from ...ops import Operator, facts
from .._building.bindings import above
from .classes import make_class
from .enums import GradOpInType
from .gradient_info import ExpectedConnection, ExpectedConnectionType, GradGraphInfo
from .operands import op_of
from .plan_gradients import is_forward, steps
from .values import GradientOf, GradInOutMapper

if TYPE_CHECKING:
    from ..graph import Graph
    from ..tensor import Tensor
    from .op import Op


Place = tuple[GradOpInType, int]


@above.enter("gradient_ops")
def gradient_ops(op: Op) -> list[Op]:
    """The gradient operators of an operator for all its inputs, not connected and in no graph.

    Raises popart_exception where the operator refuses to be differentiated, or calls a graph whose gradient graph is
    not known.
    """
    if op._facts.refused_gradient:
        raise popart_exception(op._facts.refused_gradient)
    if not op._has_translation:
        return []
    needed = [i for i in op._inputs() if op.opType() != "If" or i > 0]
    infos = op._called_gradients

    def info_of(graph: Graph) -> GradGraphInfo:
        if graph not in infos:
            raise popart_exception(
                f"{op.debugName()} calls graph {graph.id}, whose gradient graph it does not know.\n"
                "  fix: hand it over with setCalledSubgraphGradInfo first."
            )
        return infos[graph]

    return [_operator(op, step, infos) for step in steps(op._node, needed, info_of)]


def _operator(op: Op, step: Step, infos: Mapping[Graph, GradGraphInfo]) -> Op:
    row, places, outputs = _of_call(op, infos) if op._called() else _of_plain(op, step)
    node = ir.Node(op._node.domain, row.op_type, [], num_outputs=0)
    settings = op._settings.copy(f"{op._settings.name}_grad")
    made = make_class(row)._attach(node, op._graph, op._graph.ir._next_op_id(), row, settings, {})
    inputs = tuple(GradInOutMapper(i, index, kind) for i, (kind, index) in enumerate(places))
    made._gradient = GradientOf(inputs, outputs)
    return made


def _of_plain(op: Op, step: Step) -> tuple[Operator, list[Place], dict[int, int]]:
    assert step.gradient is not None
    own = op._options.get("gradient")
    row = facts(step.gradient.op_type) if own is None else own.row
    results = [0] if step.gradient.kernel else list(op._outputs())
    places: list[Place] = [(GradOpInType.GradOut, i) for i in results]
    if step.reads:
        read = zip(forward_places(op._node, step.gradient, step.of[0]), step.reads, strict=True)
        places += [(GradOpInType.Out if result else GradOpInType.In, i) for (result, i), v in read if v is not None]
    return row, places, dict(enumerate(step.of))


def _of_call(op: Op, infos: Mapping[Graph, GradGraphInfo]) -> tuple[Operator, list[Place], dict[int, int]]:
    """The call of a gradient graph, or the conditional over those of both branches."""
    conditional = op.opType() == "If"
    places: list[Place] = [(GradOpInType.In, 0)] if conditional else []
    targets: dict[int, None] = {}
    start = len(places)
    for graph in op._called():
        info = infos[graph]
        places += [_place_in_call(info, e, start) for e in info.expected_inputs]
        targets |= dict.fromkeys(graph.inputs.index(e.fwd_tensor) + start for e in info.expected_outputs)
        start += len(graph.inputs)
    return (
        facts("IfGrad" if conditional else "Call"),
        places,
        dict(enumerate(sorted(targets) if conditional else targets)),
    )


def _place_in_call(info: GradGraphInfo, connection: ExpectedConnection, start: int) -> Place:
    graph, t = info.forward_graph, connection.fwd_tensor
    if not is_forward(connection):
        return GradOpInType.GradOut, graph.outputs.index(t)
    if t in graph.inputs:
        return GradOpInType.In, graph.inputs.index(t) + start
    return GradOpInType.Out, graph.outputs.index(t)


@above.enter("gradient_infos")
def gradient_infos(op: Op, given: Mapping[Any, Any]) -> dict[Graph, GradGraphInfo]:
    """Gradient graphs by forward graph, from ``{graph id: BwdGraphInfo}``; those of graphs that `op` calls.

    Raises popart_exception where there is no graph, or no tensor in it, of an id.
    """
    graphs, called = op._graph.ir._graphs, op._called()
    found: dict[Graph, GradGraphInfo] = {}
    for graph_id, info in given.items():
        forward = graphs.get(str(graph_id))
        backward = graphs.get(str(info.bwdGraphId))
        if forward is None or backward is None:
            raise popart_exception(f"No graph with id {str(graph_id if forward is None else info.bwdGraphId)!r}")
        if forward in called:
            ends = (_connections(forward, ends) for ends in (info.expectedInputs, info.expectedOutputs))
            found[forward] = GradGraphInfo._make(backward, forward, *ends)
    return found


def _connections(forward: Graph, given: Sequence[Any]) -> list[ExpectedConnection]:
    make, kinds = ExpectedConnection._make, ExpectedConnectionType
    return [make(forward.get_tensor(e.fwdId), kinds[e.type.name]) for e in given]


def note(op: Op, pairs: Sequence[tuple[Tensor, Tensor]], forward: Mapping[str, Tensor], gradients: Any) -> None:
    """Let the operators that made contributions to gradients know what they stand for.

    `pairs` are inputs of the forward operator `op` and contributions to their gradients, `forward` the forward tensors
    by id, as the gradient graph has them, `gradients` those read so far.
    """
    places: dict[Any, Place] = {}
    for kind, tensors in ((GradOpInType.In, op._inputs()), (GradOpInType.Out, op._outputs())):
        for i, t in tensors.items():
            if t.id in forward:
                places.setdefault(forward[t.id]._value, (kind, i))
    for i, t in op._outputs().items():
        places[gradients.known(t._value)] = (GradOpInType.GradOut, i)
    by_node: dict[ir.Node, dict[int, int]] = {}
    for target, part in pairs:
        producer = part._value.producer()
        if producer is not None:
            by_node.setdefault(producer, {})[producer.outputs.index(part._value)] = op._node.inputs.index(target._value)
    for node, outputs in by_node.items():
        made = [(i, *places[v]) for i, v in enumerate(node.inputs) if v in places]
        op_of(node)._gradient = GradientOf(tuple(GradInOutMapper(i, at, kind) for i, kind, at in made), outputs)
