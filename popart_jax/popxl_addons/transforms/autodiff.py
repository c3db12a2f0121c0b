"""Gradient graphs with named arguments, and gradient accumulation inside them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from ... import popxl
from ...popxl import ops
from ...popxl.transforms.autodiff import ExpectedConnection, GradGraphInfo
from ...popxl.transforms.autodiff import autodiff as popxl_autodiff
from ..dot_tree import sanitise
from ..graph import GraphWithNamedArgs, above
from ..graph_common import CalledGraphsGradInfoLike, plain_grad_info
from ..named_replica_grouping import NamedReplicaGrouping
from ..named_tensors import NamedTensors
from ..variable_factory import NamedVariableFactories, VariableFactory, add_variable_input

COUNTER = "mean_accum_counter"


@above.enter("autodiff")
def autodiff(
    graph: GraphWithNamedArgs | popxl.Graph,
    grads_provided: Iterable[popxl.Tensor] | None = None,
    grads_required: Iterable[popxl.Tensor] | None = None,
    called_graphs_grad_info: CalledGraphsGradInfoLike | None = None,
) -> GraphWithNamedArgs:
    """The gradient graph, cleaned up, with its information in `grad_graph_info`.

    Parameters
    ----------
    graph : GraphWithNamedArgs or popxl.Graph
    grads_provided, grads_required : iterable of Tensor, optional
        Outputs whose gradients are inputs, and inputs whose gradients are outputs of the graph; default all.
    called_graphs_grad_info : mapping, optional
        Gradient graphs of called graphs, in addition to those that `graph` recorded.
    """
    recorded = graph.called_graphs_grad_info if isinstance(graph, GraphWithNamedArgs) else {}
    known = {**plain_grad_info(recorded), **plain_grad_info(called_graphs_grad_info)}
    plain = graph.graph if isinstance(graph, GraphWithNamedArgs) else graph
    every = popxl_autodiff(plain, grads_provided, grads_required, known, return_all_grad_graphs=True)
    assert isinstance(every, dict)
    for forward, info in every.items():
        if forward not in known:
            _clean_up(info.graph)
    return GraphWithNamedArgs.from_grad_graph(every[plain])


def _clean_up(graph: popxl.Graph) -> None:
    """Peephole patterns of the default level, then in-place forms where no reader is left."""
    owner = graph.ir._pb_ir
    owner.applyPreAliasPatterns(graph._pb_graph)
    owner.applyInplacePattern(graph._pb_graph)


def autodiff_with_accumulation(
    graph: GraphWithNamedArgs,
    tensors_to_accumulate_grads: Iterable[popxl.Tensor],
    grads_provided: Iterable[popxl.Tensor] | None = None,
    grads_required: Iterable[popxl.Tensor] | None = None,
    called_graphs_grad_info: CalledGraphsGradInfoLike | None = None,
    replica_groupings: NamedReplicaGrouping | None = None,
) -> tuple[NamedVariableFactories, GraphWithNamedArgs]:
    """A gradient graph that keeps running means of some gradients.

    Parameters
    ----------
    graph : GraphWithNamedArgs
        Forward graph.
    tensors_to_accumulate_grads : iterable of Tensor
        Forward inputs whose gradients are accumulated instead of returned.
    replica_groupings : NamedReplicaGrouping, optional
        Groupings of the accumulators, by the flat names of the forward inputs.

    Returns
    -------
    factories : NamedVariableFactories
        ``mean_accum_counter`` and ``accum.<flat name>``, all starting at 0.
    graph : GraphWithNamedArgs
        Gradient graph; returns the gradients of `grads_required` (default none) only.
    """
    accumulated, returned = list(tensors_to_accumulate_grads), list(grads_required or ())
    grad = autodiff(graph, grads_provided, [*returned, *accumulated], called_graphs_grad_info)
    names = {tensor: name for name, tensor in graph.args.to_dict().items()}
    groupings = {} if replica_groupings is None else replica_groupings.to_dict()
    factories: dict[str, VariableFactory] = {}
    inputs: dict[str, popxl.Tensor] = {}

    def add(key: str, shape: tuple[int, ...], dtype: popxl.dtype, grouping: Any) -> popxl.Tensor:
        zeros = partial(np.zeros, shape, dtype.as_numpy())
        inputs[key], factories[key] = add_variable_input(key, zeros, dtype, by_ref=True, replica_grouping=grouping)
        return inputs[key]

    bwd = grad.graph
    gradients = list(bwd.outputs)[len(returned) :]
    with bwd, popxl.in_sequence(False):
        counter = add(COUNTER, (), popxl.float32, None)
        places: list[popxl.Tensor] = []
        for tensor in accumulated:
            flat = names.get(tensor, sanitise(tensor.name))
            places.append(add(f"accum.{flat}", tensor.shape, tensor.dtype, groupings.get(flat)))
    with bwd, popxl.in_sequence(True):
        for place, gradient in zip(places, gradients, strict=True):
            ops.var_updates.accumulate_mean_(place, gradient, counter)
        ops.var_updates.accumulate_(counter, popxl.constant(1, popxl.float32))
    for _ in gradients:
        bwd._pb_graph.removeOutput(len(bwd.outputs) - 1)
    info = grad.grad_graph_info
    kept = GradGraphInfo._make(bwd, info.forward_graph, info.expected_inputs, info.expected_outputs[: len(returned)])
    return (
        NamedVariableFactories.from_dict(factories),
        GraphWithNamedArgs.from_grad_graph(kept, NamedTensors.from_dict(inputs)),
    )


def remap_grad_info(grad_info: GradGraphInfo, forward_graph: popxl.Graph, backward_graph: popxl.Graph) -> GradGraphInfo:
    """The same connections, by position, between two other graphs."""
    old = grad_info.forward_graph
    places = {t: (side, i) for side, ts in enumerate((old.outputs, old.inputs)) for i, t in enumerate(ts)}

    def moved(connection: ExpectedConnection) -> ExpectedConnection:
        side, i = places[connection.fwd_tensor]
        tensor = (forward_graph.outputs, forward_graph.inputs)[side][i]
        return ExpectedConnection._make(tensor, connection.connection_type)

    return GradGraphInfo._make(
        backward_graph,
        forward_graph,
        [moved(c) for c in grad_info.expected_inputs],
        [moved(c) for c in grad_info.expected_outputs],
    )
