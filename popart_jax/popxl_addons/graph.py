"""Graphs with named inputs, and graphs with some inputs bound to tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

from .. import popxl
from ..popxl import ops
from ..popxl._building.bindings import Bindings
from ..popxl._internal.schedule import print_schedule
from ..popxl.ops.call import CallSiteInfo
from ..popxl.transforms.autodiff import GradGraphInfo
from .named_tensors import NamedTensors, TensorMap

above = Bindings()
"""Late-bound functions of layers above graphs that methods of graphs call."""


class WritesGradients(Protocol):
    """The members of a module that a graph built by it uses."""

    @property
    def implements_grad_graph(self) -> bool:
        """Whether the class has its own `build_grad`."""
        ...

    def create_grad_graph(
        self,
        fwd_graph: GraphWithNamedArgs,
        grads_provided: Iterable[popxl.Tensor] | None,
        grads_required: Iterable[popxl.Tensor] | None,
    ) -> GraphWithNamedArgs:
        """The gradient graph that `build_grad` writes."""
        ...


class BoundGraph:
    """A graph whose inputs are partly connected to tensors of the calling graph.

    Parameters
    ----------
    graph : popxl.Graph
    args : mapping of Tensor to Tensor, optional
        Graph input to parent tensor.
    """

    def __init__(self, graph: popxl.Graph, args: TensorMap | None = None) -> None:
        self.graph = graph
        self.args: dict[popxl.Tensor, popxl.Tensor] = dict(args or {})

    def call(self, *targs: Any, args: TensorMap | None = None) -> tuple[popxl.Tensor, ...]:
        """Call the graph; `targs` fill inputs from the first on, `args` add to or override what is bound."""
        return tuple(self.call_with_info(*targs, args=args).outputs)

    def call_with_info(self, *targs: Any, args: TensorMap | None = None) -> CallSiteInfo:
        """As `call`, and return the call site."""
        return ops.call_with_info(self.graph, *targs, inputs_dict={**self.args, **(args or {})})

    def bind(self, args: TensorMap) -> BoundGraph:
        """A new bound graph with more, or other, inputs connected."""
        return BoundGraph(self.graph, {**self.args, **args})

    def subgraph_io_map(
        self, *targs: popxl.Tensor, args: TensorMap | None = None, outs: Iterable[popxl.Tensor] | None = None
    ) -> dict[popxl.Tensor, popxl.Tensor]:
        """Graph inputs and outputs to parent tensors, as a call with these arguments connects them."""
        joined = dict(zip(self.graph.inputs, targs, strict=False))
        joined |= {**self.args, **(args or {})}
        return joined | dict(zip(self.graph.outputs, outs or (), strict=False))


class GraphWithNamedArgs:
    """A graph together with names for its inputs and, after autodiff, its gradient information."""

    def __init__(
        self,
        graph: popxl.Graph,
        args: NamedTensors | None = None,
        grad_graph_info: GradGraphInfo | None = None,
        from_module: WritesGradients | None = None,
        aux: Any = None,
        called_graphs_grad_info: Mapping[GraphLike, GradGraphInfoLike] | None = None,
    ) -> None:
        self.graph = graph
        self.args = NamedTensors() if args is None else args
        self._grad_graph_info = grad_graph_info
        self._from_module = from_module
        self._aux = aux
        self.called_graphs_grad_info: dict[Any, Any] = dict(called_graphs_grad_info or {})
        self.autodiff_applied = False

    @classmethod
    def from_grad_graph(cls, grad_graph_info: GradGraphInfo, args: NamedTensors | None = None) -> GraphWithNamedArgs:
        """The gradient graph that autodiff made, with its information."""
        return cls(grad_graph_info.graph, args, grad_graph_info)

    @property
    def grad_graph_info(self) -> GradGraphInfo:
        """Gradient information of a gradient graph, from autodiff.

        Raises
        ------
        AttributeError
            This is no gradient graph.
        """
        if self._grad_graph_info is None:
            raise AttributeError(f"graph {self.graph.id!r} has no grad_graph_info; it was not made by autodiff")
        return self._grad_graph_info

    @grad_graph_info.setter
    def grad_graph_info(self, grad_graph_info: GradGraphInfo) -> None:
        self._grad_graph_info = grad_graph_info

    def bind(self, args: NamedTensors | None = None) -> BoundGraph:
        """Connect the named inputs to the tensors of the same names; names that only one side has are left out."""
        return BoundGraph(self.graph, {} if args is None else self.args.to_mapping(args))

    def call(self, *targs: Any, args: TensorMap | None = None) -> tuple[popxl.Tensor, ...]:
        """Call the graph; `args` maps graph inputs to parent tensors."""
        return self.bind().call(*targs, args=args)

    def call_with_info(self, *targs: Any, args: TensorMap | None = None) -> CallSiteInfo:
        """As `call`, and return the call site."""
        return self.bind().call_with_info(*targs, args=args)

    def autodiff(
        self,
        grads_provided: Iterable[popxl.Tensor] | None = None,
        grads_required: Iterable[popxl.Tensor] | None = None,
        called_graphs_grad_info: Mapping[GraphLike, GradGraphInfoLike] | None = None,
        method: Literal["auto", "build_grad", "autodiff"] = "auto",
        force: bool = False,
    ) -> GraphWithNamedArgs:
        """The gradient graph: by the module's own build_grad where it has one, else by autodiff.

        Raises
        ------
        Exception
            Already differentiated (pass `force`), or `method` is "build_grad" and the module has none.
        ValueError
            Unknown `method`.
        """
        if method not in ("auto", "build_grad", "autodiff"):
            raise ValueError(f"`method` should be one of 'auto', 'build_grad' or 'autodiff'. Not: {method}")
        if self.autodiff_applied and not force:
            raise Exception(
                "Autodiff has already been applied to the graph, as autodiff modifies the forward graph in-place, "
                "it should be applied once. Pass `force=True` to apply it again."
            )
        module = self._from_module
        has_build_grad = module is not None and module.implements_grad_graph
        if method == "build_grad" and not has_build_grad:
            raise Exception(
                f"method 'build_grad' can be used only if `from_module` is specified and that module implements "
                f"build_grad; graph {self.graph.id!r} has no such module"
            )
        if module is not None and has_build_grad and method != "autodiff":
            made = module.create_grad_graph(self, grads_provided, grads_required)
        else:
            made = above.autodiff(self, grads_provided, grads_required, called_graphs_grad_info)
        self.autodiff_applied = True
        return made

    def copy(self) -> GraphWithNamedArgs:
        """The same graph with a copy of the names; the module and what it saved are not copied."""
        return GraphWithNamedArgs(self.graph, self.args.copy(), self._grad_graph_info)

    def print_schedule(self) -> str:
        """The operators in schedule order as text; named inputs carry their names."""
        return print_schedule(self.graph, {tensor: name for name, tensor in self.args.to_dict().items()})


GraphLike = popxl.Graph | GraphWithNamedArgs | BoundGraph
"""A graph as it is, with named arguments, or with values bound to these."""
GradGraphInfoLike = GradGraphInfo | GraphWithNamedArgs
"""Gradient information, or a gradient graph that carries it."""
