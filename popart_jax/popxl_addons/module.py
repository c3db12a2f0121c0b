"""Modules: objects that build graphs with named state."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from .. import popxl
from ..popxl import ReplicaGrouping, dtypes
from ..popxl.transforms.autodiff import GradGraphInfo
from .build_grad import Aux, NoVarGrad, VarGrad, create_grad_graph
from .build_grad import create_grad_graph_info as create_grad_graph_info
from .graph import GraphWithNamedArgs
from .graph_cache import function_key
from .graph_common import plain_grad_info
from .named_tensors import NamedTensors
from .utils import overrides
from .variable_factory import (
    DataIter,
    NamedVariableFactories,
    VariableFactory,
    add_replica_sharded_variable_input,
    add_variable_input,
)

Returned = None | popxl.Tensor | Iterable[popxl.Tensor]
_ON_INLINING = ("error", "warning", "none")


class NameScopeMeta(type):
    """Makes `build` of a registered submodule run under the name of its attribute when it is inlined."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> type:
        """Wrap the `build` of the new class."""
        build = namespace.get("build")
        if build is not None:
            namespace["build"] = _scoped(build)
        return super().__new__(mcs, name, bases, namespace, **kwargs)


def _scoped(build: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(build)
    def scoped(self: Module, *args: Any, **kwargs: Any) -> Any:
        name = self.__dict__.get("_name_scope")
        if name is None or self.__dict__.get("_scope_open", False):
            return build(self, *args, **kwargs)
        self._scope_open = True
        try:
            with popxl.name_scope(name):
                return build(self, *args, **kwargs)
        finally:
            self._scope_open = False

    return scoped


class Module(popxl.Module, metaclass=NameScopeMeta):
    """Base of layers and models; subclasses implement `build`, and may implement `build_grad`.

    Parameters
    ----------
    cache : bool, GraphCache or None
        Share the graphs that `create_graph` makes from equal argument specs.
    grad_inlining_error : {"error", "warning", "none"}
        What to do when a module with `build_grad` is inlined, where that gradient is not used.

    Raises
    ------
    ValueError
        Another word, or a cached module with `build_grad`.
    """

    def __init__(self, cache: Any = False, grad_inlining_error: Literal["error", "warning", "none"] = "error") -> None:
        if grad_inlining_error not in _ON_INLINING:
            raise ValueError(f"grad_inlining_error should be one of {_ON_INLINING}, got {grad_inlining_error!r}")
        self._variable_factories = NamedVariableFactories()
        self._named_inputs = NamedTensors()
        self._submodules: list[Module] = []
        self._called_graphs_grad_info: dict[popxl.Graph, GradGraphInfo] = {}
        self._name_scope = None
        self._grad_inlining_error = grad_inlining_error
        self._outlining = False
        cached = cache is not None and cache is not False
        self._cached: dict[Any, tuple[NamedVariableFactories, GraphWithNamedArgs]] | None = {} if cached else None
        self.aux = Aux()
        self.var_grad: VarGrad | NoVarGrad = NoVarGrad()
        if self._cached is not None and self.implements_grad_graph:
            raise ValueError(
                f"You cannot use graph caching if you have implemented `build_grad`, as {type(self).__name__} has; "
                "pass cache=False"
            )

    def __setattr__(self, key: str, value: Any) -> None:
        if isinstance(value, Module) and not key.startswith("_"):
            self._register(key, value)
        super().__setattr__(key, value)

    def _register(self, key: str, module: Module) -> None:
        if "_variable_factories" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__}: call super().__init__() before modules are assigned.")
        self._variable_factories.insert(key, module._variable_factories)
        self._named_inputs.insert(key, module._named_inputs)
        self._submodules.append(module)
        module.set_name_scope(key)

    def set_name_scope(self, name: str) -> None:
        """Name under which tensors of an inlined `build` are made."""
        self._name_scope = name

    @property
    def implements_grad_graph(self) -> bool:
        """Whether the class has its own `build_grad`."""
        return overrides(type(self), Module, "build_grad")

    def __call__(self, *args: Any, **kwargs: Any) -> Returned:
        """Inline the module: call `build` in the current graph."""
        if not self.__dict__.get("_outlining", False):
            self._check_inlining()
        return self.build(*args, **kwargs)

    def _check_inlining(self) -> None:
        how = self.__dict__.get("_grad_inlining_error", "none")
        if how == "none" or not self.implements_grad_graph:
            return
        text = (
            f"`build_grad` has been implemented by {type(self).__name__}, and is not used where the module is inlined. "
            "Call it through call_module, or pass grad_inlining_error='none'."
        )
        if how == "error":
            raise Exception(text)
        warnings.warn(text, UserWarning, stacklevel=3)

    def build_grad(self, *args: Any, **kwargs: Any) -> Returned:
        """Build the gradient graph from provided gradients, `self.aux` and into `self.var_grad`; optional."""
        raise NotImplementedError(f"{type(self).__name__} does not implement build_grad")

    def create_graph(self, *args: Any, **kwargs: Any) -> tuple[NamedVariableFactories, GraphWithNamedArgs]:
        """Build a graph of this module.

        Parameters
        ----------
        *args, **kwargs
            Tensors or TensorSpecs for the tensor parameters of `build`, anything else as it is.

        Returns
        -------
        factories : NamedVariableFactories
            One factory for each variable input.
        graph : GraphWithNamedArgs
        """
        if self._cached is None:
            return self._create_graph(*args, **kwargs)
        key = (popxl.gcg().ir, function_key(self, *args, **kwargs))
        if key not in self._cached:
            self._cached[key] = self._create_graph(*args, **kwargs)
        factories, graph = self._cached[key]
        return factories.copy(), graph.copy()

    def _create_graph(self, *args: Any, **kwargs: Any) -> tuple[NamedVariableFactories, GraphWithNamedArgs]:
        self._outlining = True
        try:
            graph = popxl.gcg().ir.create_graph(self, *args, **kwargs)
            graph._can_autodiff = not self.implements_grad_graph
            result = GraphWithNamedArgs(
                graph,
                self._named_inputs.copy(),
                from_module=self,
                aux=self.aux.copy(),
                called_graphs_grad_info=cast(Any, self._collected_grad_info()),
            )
            return self._variable_factories.copy(), result
        finally:
            self._outlining = False
            self._reset()

    def _collected_grad_info(self) -> dict[popxl.Graph, GradGraphInfo]:
        collected = dict(self._called_graphs_grad_info)
        for module in self._submodules:
            collected |= module._collected_grad_info()
        return collected

    def _reset(self) -> None:
        """Clear the state of the last graph, here and in submodules."""
        self._variable_factories._clear()
        self._named_inputs._clear()
        self._drop_unlinked()
        self._called_graphs_grad_info.clear()
        self.aux.clear()
        for module in self._submodules:
            module._reset()

    def _drop_unlinked(self) -> None:
        """Remove trees that `build` added; those of registered submodules stay, by reference."""
        linked = {id(m._variable_factories) for m in self._submodules} | {id(m._named_inputs) for m in self._submodules}
        for tree in (self._variable_factories, self._named_inputs):
            for key in [k for k, v in zip(tree.keys(), tree.values(), strict=True) if id(v) not in linked]:
                tree.pop(key)

    def create_grad_graph(
        self,
        fwd_graph: GraphWithNamedArgs,
        grads_provided: Iterable[popxl.Tensor] | None = None,
        grads_required: Iterable[popxl.Tensor] | None = None,
    ) -> GraphWithNamedArgs:
        """The gradient graph that `build_grad` describes."""
        return create_grad_graph(self, fwd_graph, grads_provided, grads_required)

    def add_variable_factory(self, variable_f: VariableFactory, name: str | None = None) -> popxl.Tensor:
        """Add a graph input for an existing factory."""
        key = name or variable_f.name
        if key is None:
            raise ValueError("the factory has no name; pass one")
        return self._add(key, variable_f.create_input(), variable_f, False)

    def _add(self, name: str, tensor: popxl.Tensor, factory: VariableFactory, overwrite: bool) -> popxl.Tensor:
        self._variable_factories.insert(name, factory, overwrite)
        self._named_inputs.insert(name, tensor, overwrite)
        return tensor

    def add_variable_input(
        self,
        name: str,
        data_iter: DataIter,
        dtype: dtypes.dtype | None = None,
        by_ref: bool = False,
        replica_grouping: ReplicaGrouping | None = None,
        overwrite: bool = False,
    ) -> popxl.Tensor:
        """Add a graph input whose variable is made later from `data_iter`.

        Raises
        ------
        ValueError
            The name is taken, or `data_iter` is unusable.
        """
        tensor, factory = add_variable_input(name, data_iter, dtype, by_ref, replica_grouping)
        return self._add(name, tensor, factory, overwrite)

    def add_replica_sharded_variable_input(
        self,
        name: str,
        data_iter: DataIter,
        dtype: dtypes.dtype | None = None,
        by_ref: bool = False,
        replica_grouping: ReplicaGrouping | None = None,
        shard_over: int | None = None,
    ) -> popxl.Tensor:
        """As `add_variable_input`, for a variable of which each replica holds a part."""
        tensor, factory = add_replica_sharded_variable_input(
            name, data_iter, dtype, by_ref, replica_grouping, shard_over
        )
        return self._add(name, tensor, factory, False)

    def add_variable_inputs(
        self, name: str | int, variable_f: NamedVariableFactories, overwrite: bool = False
    ) -> NamedTensors:
        """Add inputs for a whole tree of factories under `name`; returns the inputs under the same keys.

        Raises
        ------
        ValueError
            A negative number as name, or a name that is taken.
        """
        if isinstance(name, int) and name < 0:
            raise ValueError(f"Name of int type must be positive. Value: {name}")
        inputs = NamedTensors.from_dict({k: f.create_input() for k, f in variable_f.to_dict().items()})
        self._variable_factories.insert(name, variable_f.copy(), overwrite)
        self._named_inputs.insert(name, inputs, overwrite)
        return inputs

    @classmethod
    def from_list(cls, sub_modules: list[Module]) -> Module:
        """A container whose submodules are named "0", "1", ..."""
        container = Module()
        container._listed = list(sub_modules)
        for i, module in enumerate(sub_modules):
            container._register(str(i), module)
        return container

    @classmethod
    def from_variable_factories(cls, inputs: list[VariableFactory]) -> Module:
        """A module with an input for each factory."""
        container = Module()
        for factory in inputs:
            container.add_variable_factory(factory)
        return container

    def get(self, key: str | int) -> Module:
        """A submodule by position or by name (dotted names descend)."""
        first, _, rest = str(key).partition(".")
        listed = self.__dict__.get("_listed")
        found = listed[int(first)] if listed is not None else getattr(self, first)
        return found.get(rest) if rest else found

    def __getitem__(self, item: str | int) -> Module:
        return self.get(item)

    def __iter__(self) -> Iterator[Module]:
        if "_listed" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} is no list of modules; make one with Module.from_list")
        return iter(self.__dict__["_listed"])

    def call_module(
        self,
        module: Module,
        name: str | None = None,
        autodiff: Literal["auto", "build_grad", "autodiff", "none"] = "auto",
        grads_provided: Callable[[GraphWithNamedArgs], Iterable[popxl.Tensor]] | None = None,
        grads_required: Callable[[GraphWithNamedArgs], Iterable[popxl.Tensor]] | None = None,
    ) -> ModuleCall:
        """An object that, called, outlines `module`, adds its variables under `name` and calls the graph.

        With `autodiff` other than "none" the graph is differentiated as well ("auto": only by its own build_grad), and
        the result is remembered for the autodiff of this module's graph.
        """
        return ModuleCall(self, module, name or type(module).__name__, autodiff, grads_provided, grads_required)


@dataclass
class ModuleCall:
    """Result of `Module.call_module`: a callable that, after a call, holds the graph that it made."""

    parent: Module
    module: Module
    name: str
    method: Literal["auto", "build_grad", "autodiff", "none"]
    grads_provided: Callable[[GraphWithNamedArgs], Iterable[popxl.Tensor]] | None
    grads_required: Callable[[GraphWithNamedArgs], Iterable[popxl.Tensor]] | None
    var_factories: NamedVariableFactories = field(init=False)
    graph: GraphWithNamedArgs = field(init=False)
    # outputs of the graph before it was differentiated: those that the call returns
    n_outputs_pre_autodiff: int = field(init=False)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[popxl.Tensor, ...]:
        """Make the graph from the arguments and call it with them."""
        self.var_factories, self.graph = self.module.create_graph(*args, **kwargs)
        inputs = self.parent.add_variable_inputs(self.name, self.var_factories)
        self.n_outputs_pre_autodiff = len(self.graph.graph.outputs)
        known = self.parent._called_graphs_grad_info
        if self.method in ("build_grad", "autodiff") or (self.method == "auto" and self.module.implements_grad_graph):
            known[self.graph.graph] = self._differentiated(self.graph, self.method).grad_graph_info
        known.update(plain_grad_info(self.graph.called_graphs_grad_info))
        tensors = [t for t in kwargs.values() if isinstance(t, popxl.Tensor)]
        return self.graph.bind(inputs).call(*args, *tensors)[: self.n_outputs_pre_autodiff]

    def _differentiated(
        self, graph: GraphWithNamedArgs, method: Literal["auto", "build_grad", "autodiff"]
    ) -> GraphWithNamedArgs:
        provided = None if self.grads_provided is None else self.grads_provided(graph)
        required = None if self.grads_required is None else self.grads_required(graph)
        return graph.autodiff(provided, required, method=method)
