"""Graphs from Python functions: binding of arguments, graph inputs for tensors, graph outputs for returned tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, List, Tuple, cast  # noqa: UP035 - annotations of programs are compared with these

from ..graph import Graph
from ..ir import Ir
from ..module import Module
from ..tensor import Tensor, TensorByRef, TensorSpec, graph_output
from .bindings import above

_BY_REF_LISTS = (List[TensorByRef], Tuple[TensorByRef], list[TensorByRef], tuple[TensorByRef])  # noqa: UP006
_KINDS = inspect.Parameter


@above.enter("create_graph")
def create_graph(owner: Ir, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
    """See `Ir.create_graph`."""
    name, target = _name_and_target(fn)
    try:
        signature = inspect.signature(target)
        bound = signature.bind(*args, **kwargs)
    except TypeError as err:
        raise ValueError(
            f"The arguments, `args` and `kwargs`, do not match the signature of the function `fn`. {err}"
        ) from err
    bound.apply_defaults()
    graph = owner._new_graph(owner._subgraph_id(name.replace(".<locals>", "")))
    with graph:
        _make_inputs(graph, signature, bound)
        returned = fn(*bound.args, **bound.kwargs)
        for t in _returned_tensors(returned):
            graph_output(t)
    return graph


def _name_and_target(fn: Any) -> tuple[str, Callable[..., Any]]:
    if isinstance(fn, Module):
        return type(fn).__qualname__, fn.build
    name = getattr(fn, "__qualname__", None)
    if not callable(fn) or name is None:
        raise TypeError("Callable `fn` must be either a function or a class that extends popxl.Module")
    return name, fn


def _make_inputs(graph: Graph, signature: inspect.Signature, bound: inspect.BoundArguments) -> None:
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        annotation = parameter.annotation
        if parameter.kind is _KINDS.VAR_KEYWORD:
            if _all_tensors(value, list(value.values()), name):
                by_ref = annotation is TensorByRef
                bound.arguments[name] = {k: graph._add_input_like(v, by_ref, k) for k, v in value.items()}
        elif isinstance(value, (Tensor, TensorSpec)):
            bound.arguments[name] = graph._add_input_like(value, annotation is TensorByRef, name)
        elif isinstance(value, (list, tuple)) and _all_tensors(items := cast("Sequence[Any]", value), items, name):
            listed = annotation in _BY_REF_LISTS if annotation is not TensorByRef else True
            by_ref = listed and (annotation is not TensorByRef or parameter.kind is _KINDS.VAR_POSITIONAL)
            made = [graph._add_input_like(v, by_ref, f"{name}_{i}") for i, v in enumerate(items)]
            bound.arguments[name] = tuple(made) if parameter.kind is _KINDS.VAR_POSITIONAL else made


def _all_tensors(arg: Any, values: Iterable[Any], name: str) -> bool:
    """Whether there are tensors; TypeError when there are other things as well."""
    flags = [isinstance(v, (Tensor, TensorSpec)) for v in values]
    if any(flags) and not all(flags):
        raise TypeError(
            f"A {type(arg)} argument can't contain a mixture of Tensors and other types. Arg name: {name}. Value: {arg}"
        )
    return bool(flags) and all(flags)


def _returned_tensors(returned: Any) -> list[Tensor]:
    if returned is None:
        return []
    if isinstance(returned, Tensor):
        return [returned]
    try:
        tensors = list(returned)
    except TypeError:
        tensors = [returned]
    wrong = [t for t in tensors if not isinstance(t, Tensor)]
    if wrong:
        raise ValueError(
            "Output of subgraph must be None, a Tensor or an iterable of Tensors. "
            f"Output type: {type(returned)}. Value {returned}"
        )
    return tensors
