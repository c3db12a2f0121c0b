"""Gradient graphs that recompute the activations that they need."""

from __future__ import annotations

from ... import popxl
from ...ops.popxl import GRADIENTS, STARTS
from ...popxl import ops
from ...popxl.ops.call import CallSiteInfo
from ...popxl.transforms.autodiff import ExpectedConnection, ExpectedConnectionType, GradGraphInfo
from ..graph import GraphWithNamedArgs
from ..named_tensors import NamedTensors
from ..utils import suffix_graph_name

_FWD, _GRAD = ExpectedConnectionType.Fwd, ExpectedConnectionType.FwdGrad
Inputs = dict[popxl.Tensor, popxl.Tensor]


def add_recompute_inputs(grad_info: GradGraphInfo) -> tuple[list[ExpectedConnection], Inputs, Inputs]:
    """Make the inputs of a recomputing graph in the current graph.

    Returns
    -------
    (expected, forward, gradient)
        Connections of the inputs, and the tensors that feed the inputs of the forward and of the gradient graph,
        without activations.
    """
    forward_graph, grad_graph = grad_info.forward_graph, grad_info.graph
    expected: list[ExpectedConnection] = []
    forward: Inputs = {}
    gradient: Inputs = {}
    connected = list(zip(grad_graph.inputs, grad_info.expected_inputs, strict=False))
    for tensor, connection in connected:
        source = connection.fwd_tensor
        if connection.connection_type is _GRAD:
            gradient[tensor] = _like(tensor, tensor in grad_graph._by_ref_inputs)
            expected.append(connection)
        elif source in forward_graph.inputs:
            gradient[tensor] = forward[source] = _like(source, source in forward_graph._by_ref_inputs)
            expected.append(connection)
    rest = [t for t in forward_graph.inputs if t not in forward]
    for source in sorted(rest, key=lambda t: t.name):
        forward[source] = _like(source, source in forward_graph._by_ref_inputs)
        expected.append(ExpectedConnection._make(source, _FWD))
    known = {tensor for tensor, _ in connected}
    for tensor in sorted((t for t in grad_graph.inputs if t not in known), key=lambda t: t.name):
        gradient[tensor] = _like(tensor, tensor in grad_graph._by_ref_inputs)
    return expected, forward, gradient


def _like(t: popxl.Tensor, by_ref: bool) -> popxl.Tensor:
    return popxl.graph_input(t.shape, t.dtype, t.name, by_ref=by_ref, meta_shape=t.meta_shape)


def recompute_graph(grad_graph: GraphWithNamedArgs) -> GraphWithNamedArgs:
    """A gradient graph that calls the forward graph on its inputs first, so that only those need to be kept.

    Parameters
    ----------
    grad_graph : GraphWithNamedArgs
        Gradient graph with its information.
    """
    info = grad_graph.grad_graph_info
    owner = info.graph.ir
    graph = owner._new_graph(owner._subgraph_id(suffix_graph_name(info.forward_graph.name, "recomp")))
    with graph, popxl.in_sequence(True):
        expected, forward, gradient = add_recompute_inputs(info)
        site = ops.call_with_info(info.forward_graph, inputs_dict=forward)
        _wait(site, info, gradient, grad_graph.args)
        for tensor, connection in zip(info.graph.inputs, info.expected_inputs, strict=False):
            if tensor not in gradient:
                gradient[tensor] = site.graph_to_parent(connection.fwd_tensor)
        for output in ops.call(info.graph, inputs_dict=gradient):
            popxl.graph_output(output)
    args = NamedTensors.from_dict({name: gradient[t] for name, t in grad_graph.args.to_dict().items()})
    remade = GradGraphInfo._make(graph, info.forward_graph, expected, info.expected_outputs)
    return GraphWithNamedArgs.from_grad_graph(remade, args)


def _wait(site: CallSiteInfo, info: GradGraphInfo, inputs: Inputs, args: NamedTensors) -> None:
    """Let a call of the forward graph start when the gradients have arrived, from its inputs without a name.

    Else XLA would compute both passes at once, and keep the activations between them.
    """
    pairs = zip(info.graph.inputs, info.expected_inputs, strict=False)
    slopes = {inputs[t]: None for t, connection in pairs if connection.connection_type is _GRAD}
    named = [inputs[t] for t in args.to_dict().values() if t in inputs]
    starts = [i for i, t in site._op._inputs().items() if t not in named]
    places = [i for i, t in enumerate(site._op._graph.inputs) if t in slopes]
    notes = site._op._node.metadata_props
    notes[STARTS], notes[GRADIENTS] = (" ".join(map(str, numbers)) for numbers in (starts, places))
