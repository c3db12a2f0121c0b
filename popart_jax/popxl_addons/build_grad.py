"""Gradient graphs that a module writes itself: saved values, gradients of variables, and their bookkeeping."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from .. import popxl
from ..popxl.transforms.autodiff import ExpectedConnection, ExpectedConnectionType, GradGraphInfo
from .graph import GraphWithNamedArgs


class Aux:
    """Values that `build` saves for `build_grad`.

    The gradient graph that needs them makes the tensors outputs of the forward graph, in storing order.
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._reading: dict[str, popxl.Tensor] | None = None

    def __setitem__(self, key: str, value: Any) -> None:
        self._values[key] = value

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __getitem__(self, key: str) -> Any:
        if self._reading is None:
            raise Exception(f"aux[{key!r}]: you can only get items within the `build_graph` method of gradients")
        value = self._values[key]
        if not isinstance(value, popxl.Tensor):
            return value
        if key not in self._reading:
            self._reading[key] = popxl.graph_input(value.shape, value.dtype, key, meta_shape=value.meta_shape)
        return self._reading[key]

    def add_outputs(self, graph: popxl.Graph) -> None:
        """Make the saved tensors outputs of the forward graph."""
        with graph:
            for value in self._values.values():
                if isinstance(value, popxl.Tensor):
                    popxl.graph_output(value)

    def copy(self) -> Aux:
        """A copy with the same values and an empty record of reads."""
        other = Aux()
        other._values = dict(self._values)
        return other

    def clear(self) -> None:
        """Forget everything."""
        self._values, self._reading = {}, None

    def take(self, other: Aux) -> None:
        """Take over the values of another `Aux`, ready for reading."""
        self._values, self._reading = other._values, {}

    @property
    def read_tensors(self) -> dict[popxl.Tensor, popxl.Tensor]:
        """Inputs of the gradient graph to the forward tensors they stand for, in order of first reading."""
        return {t: self._values[key] for key, t in (self._reading or {}).items()}


class VarGrad:
    """Gradients of variables by flat name, as `build_grad` assigns them."""

    def __init__(self, variables: Mapping[str, popxl.Tensor]) -> None:
        self._variables = dict(variables)
        self.tensors: dict[str, popxl.Tensor] = {}

    def __setitem__(self, key: str, value: popxl.Tensor) -> None:
        if not isinstance(value, popxl.Tensor):
            raise TypeError(f"Not a tensor: {value}")
        if key not in self._variables:
            raise KeyError(f"Not a variable: {key}. Possible inputs: {list(self._variables)}")
        expected = self._variables[key]
        if not _same_shape(value, expected):
            raise ValueError(
                "Shape or meta-shape of Tensor does not match variable. "
                f"Tensor {_shapes(value)}. Variable {key} {_shapes(expected)}"
            )
        self.tensors[key] = value

    def __getitem__(self, key: str) -> popxl.Tensor:
        return self.tensors[key]

    def __contains__(self, key: object) -> bool:
        return key in self.tensors


class NoVarGrad:
    """Stands in outside `build_grad`, where gradients are neither set nor read."""

    _TEXT = (
        "You can only use` var_grad` within the `build_graph` method which must be called via `create_grad_graph` or "
        "`autodiff`."
    )

    def __setitem__(self, key: str, value: Any) -> None:
        raise Exception(self._TEXT)

    def __getitem__(self, key: str) -> popxl.Tensor:
        raise Exception(self._TEXT)

    def __contains__(self, key: object) -> bool:
        return False


def _same_shape(a: popxl.Tensor, b: popxl.Tensor) -> bool:
    return tuple(a.shape) == tuple(b.shape) and tuple(a.meta_shape or ()) == tuple(b.meta_shape or ())


def _shapes(t: popxl.Tensor) -> str:
    return f"shape: {tuple(t.shape)}" + (f", meta-shape: {tuple(t.meta_shape)}" if t.meta_shape else "")


class Differentiable(Protocol):
    """A module that writes its own gradient graph."""

    aux: Aux
    var_grad: VarGrad | NoVarGrad

    def build_grad(self, *args: Any, **kwargs: Any) -> Any:
        """Build the gradient graph."""
        ...


def create_grad_graph(
    module: Differentiable,
    fwd: GraphWithNamedArgs,
    grads_provided: Iterable[popxl.Tensor] | None,
    grads_required: Iterable[popxl.Tensor] | None,
) -> GraphWithNamedArgs:
    """The gradient graph of a module's graph, made by its `build_grad`.

    Raises
    ------
    TypeError
        `build_grad` has parameters other than fixed positional ones.
    ValueError
        A tensor of `grads_provided` or `grads_required` is not of the graph, or a gradient has another shape.
    Exception
        Too many or too few gradients, or the gradient of a required variable is missing.
    """
    _check_parameters(module)
    graph, aux = fwd.graph, fwd._aux
    provided = list(graph.outputs) if grads_provided is None else list(grads_provided)
    named = fwd.args.to_dict()
    variables = set(named.values())
    required = list(graph.inputs) if grads_required is None else list(grads_required)
    _check_of_graph(graph, provided, required)
    wanted_inputs = [t for t in required if t not in variables]
    names = {t: name for name, t in named.items()}
    wanted_variables = [names[t] for t in required if t in variables]

    module.aux.take(aux)
    module.var_grad = var_grad = VarGrad(named)
    try:
        grad_graph = graph.ir.create_graph(module.build_grad, *(t.spec for t in provided))
        read = module.aux.read_tensors
        _check_outputs(grad_graph, wanted_inputs, wanted_variables, var_grad)
        with grad_graph:
            for name in wanted_variables:
                popxl.graph_output(var_grad.tensors[name])
        aux.add_outputs(graph)
    finally:
        module.aux.clear()
        module.var_grad = NoVarGrad()
    incoming = dict(zip(grad_graph.inputs, provided, strict=False))
    results = [*wanted_inputs, *(named[n] for n in wanted_variables)]
    outgoing = dict(zip(grad_graph.outputs, results, strict=True))
    info = create_grad_graph_info(graph.ir, graph, grad_graph, incoming, outgoing, set(read.values()), read)
    return GraphWithNamedArgs.from_grad_graph(info)


def _check_of_graph(graph: popxl.Graph, provided: list[popxl.Tensor], required: list[popxl.Tensor]) -> None:
    for word, kind, given, known in (
        ("grads_provided", "output", provided, graph.outputs),
        ("grads_required", "input", required, graph.inputs),
    ):
        foreign = [t for t in given if t not in known]
        if foreign:
            raise ValueError(f"A Tensor specified in `{word}` is not a {kind} of `fwd_graph` {graph.id}: {foreign}")
        if len(set(given)) != len(given):
            raise ValueError(f"A Tensor has been specified more than once in `{word}`. Tensors: {given}")


def _check_parameters(module: Differentiable) -> None:
    fixed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    odd = [p.name for p in inspect.signature(module.build_grad).parameters.values() if p.kind not in fixed]
    if odd:
        raise TypeError(
            "The `build_grad` method signature must only have a fixed number of positional parameters as inputs. "
            f"Not a positional parameter: {odd[0]}"
        )


def _check_outputs(
    grad_graph: popxl.Graph, inputs: list[popxl.Tensor], variables: list[str], var_grad: VarGrad
) -> None:
    missing = {n for n in variables if n not in var_grad}
    if missing:
        raise Exception(
            f"Not all variable gradients have been specified in self.var_grad. Variables missing gradients: {missing}"
        )
    given = len(grad_graph.outputs)
    if given > len(inputs):
        raise Exception(
            f"Too many outputs in the grad graph. `grads_required` has {len(inputs)} non-variable outputs. "
            f"`build_grad` returned {given}"
        )
    if given < len(inputs):
        raise Exception(
            "Not all forward graph inputs have been specified as outputs in the grad graph. "
            f"`build_grad` returned {given} gradients for {[t.name for t in inputs]}"
        )
    for i, (got, forward) in enumerate(zip(grad_graph.outputs, inputs, strict=True)):
        if not _same_shape(got, forward):
            raise ValueError(
                f"Shape or meta-shape of output Tensor at position {i} does not match the input {forward.name!r}: "
                f"expected {_shapes(forward)}, got {_shapes(got)}"
            )


def create_grad_graph_info(
    ir: popxl.Ir,
    fwd_graph: popxl.Graph,
    grad_graph: popxl.Graph,
    grad_input_to_fwd_output: Mapping[popxl.Tensor, popxl.Tensor],
    grad_output_to_fwd_input: Mapping[popxl.Tensor, popxl.Tensor],
    fwd_tensors: set[popxl.Tensor],
    saved: Mapping[popxl.Tensor, popxl.Tensor] | None = None,
) -> GradGraphInfo:
    """Gradient information of a graph that was written by hand.

    Parameters
    ----------
    grad_input_to_fwd_output, grad_output_to_fwd_input : mapping
        Which forward tensor's gradient each input and output of the gradient graph is.
    fwd_tensors : set of Tensor
        Forward tensors whose values are inputs of the gradient graph.
    saved : mapping, optional
        Those inputs by gradient graph input; by default inputs of the same name.
    """
    by_name = {t.name: t for t in fwd_tensors}
    values = saved if saved is not None else {t: by_name[t.name] for t in grad_graph.inputs if t.name in by_name}
    gradient, value = ExpectedConnectionType.FwdGrad, ExpectedConnectionType.Fwd
    inputs: list[ExpectedConnection] = []
    for tensor in grad_graph.inputs:
        if tensor in grad_input_to_fwd_output:
            inputs.append(ExpectedConnection._make(grad_input_to_fwd_output[tensor], gradient))
        elif tensor in values:
            inputs.append(ExpectedConnection._make(values[tensor], value))
    outputs = [ExpectedConnection._make(grad_output_to_fwd_input[t], gradient) for t in grad_graph.outputs]
    return GradGraphInfo._make(grad_graph, fwd_graph, inputs, outputs)
