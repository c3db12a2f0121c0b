"""Gradient graphs: for each operator of a graph one or more gradient operators, grown in reverse order.

A gradient operator reads the gradients of its forward operator's outputs and the forward tensors that the table
of operators lists; its value is `jax.vjp` of the forward node, or a formula of its own where only the output is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .._building.checks import check_kind
from .._internal.gradient_info import ExpectedConnection as ExpectedConnection
from .._internal.gradient_info import ExpectedConnectionType as ExpectedConnectionType
from .._internal.gradient_info import GradGraphInfo as GradGraphInfo
from .._internal.grow_gradients import differentiate
from ..graph import Graph
from ..tensor import Tensor

__all__ = ["ExpectedConnection", "ExpectedConnectionType", "GradGraphInfo", "autodiff"]


def autodiff(
    graph: Graph,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: Mapping[Graph, GradGraphInfo] | None = None,
    return_all_grad_graphs: bool = False,
) -> GradGraphInfo | dict[Graph, GradGraphInfo]:
    """The gradient graph of a graph.

    Forward tensors that it needs and that the graph does not give out yet become outputs of the graph: differentiate
    before calling.

    Parameters
    ----------
    graph : Graph
        Forward graph.
    grads_provided : iterable of Tensor, optional
        Outputs whose gradients will be given; default all.
    grads_required : iterable of Tensor, optional
        Inputs whose gradients are wanted; default all.
    called_graphs_grad_info : mapping, optional
        Gradient graphs of graphs that this one calls; the others are differentiated as well.
    return_all_grad_graphs : bool
        Return the gradient graphs of all graphs.

    Raises
    ------
    popart_exception
        A required gradient can't be had; the graph changes tensors in place; a called graph must not be differentiated.
    """
    check_kind(Graph, graph=graph)
    infos = dict(called_graphs_grad_info or {})
    for called, info in infos.items():
        check_kind(Graph, called_graphs_grad_info=called)
        check_kind(GradGraphInfo, called_graphs_grad_info=info)
    provided = None if grads_provided is None else list(grads_provided)
    required = None if grads_required is None else list(grads_required)
    info = differentiate(graph, provided, required, infos)
    if not return_all_grad_graphs:
        return info
    return {**infos, graph: info}
