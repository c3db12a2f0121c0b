"""Cache of graphs: equal functions with equal argument specs share one graph."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from .. import popxl
from ..popxl import ops
from ..popxl.context import get_current_context


def bound_arguments(fn: Any, *args: Any, **kwargs: Any) -> inspect.BoundArguments:
    """Arguments bound to the signature of `fn` (of `build` for a module), defaults applied."""
    target = fn.build if isinstance(fn, popxl.Module) else fn
    bound = inspect.signature(target).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound


def tensor_hash(t: popxl.Tensor | popxl.TensorSpec) -> int:
    """Hash that is equal for tensors of equal shape, dtype and meta shape."""
    return hash((tuple(t.shape), t.dtype, tuple(t.meta_shape or ())))


def argument_hash(arg: Any) -> int:
    """Hash of an argument.

    Tensors count by spec, sequences and mappings element by element, graphs by identity, groupings by their groups,
    anything else by `hash`.

    Raises
    ------
    TypeError
        An argument is not hashable.
    """
    if isinstance(arg, (popxl.Tensor, popxl.TensorSpec)):
        return tensor_hash(arg)
    if isinstance(arg, popxl.Graph):
        return hash(id(arg))
    if isinstance(arg, popxl.ReplicaGrouping):
        return hash(tuple(arg.assignment))
    if isinstance(arg, Mapping):
        return hash(tuple((key, argument_hash(value)) for key, value in cast("Mapping[Any, Any]", arg).items()))
    if isinstance(arg, Sequence) and not isinstance(arg, (str, bytes)):
        values = cast("Sequence[Any]", arg)
        return hash((type(values), tuple(map(argument_hash, values))))
    return hash(arg)


def get_function_hash(fn: Any, *args: Any, **kwargs: Any) -> int:
    """Hash of a function, its arguments, and where its operators would be placed."""
    bound = bound_arguments(fn, *args, **kwargs)
    context = get_current_context()
    return hash((fn, context.ipu_id, context.io_tile_set, argument_hash(dict(bound.arguments))))


class GraphCache:
    """Graphs by function, placement and argument specs; an entry lives as long as its graph is used elsewhere."""

    def __init__(self) -> None:
        self._graphs: WeakKeyDictionary[Any, WeakValueDictionary[int, popxl.Graph]] = WeakKeyDictionary()

    def create_graph(self, fn: Any, *args: Any, **kwargs: Any) -> popxl.Graph:
        """`Ir.create_graph`, or the graph that an equal call made before in this Ir."""
        ir = popxl.gcg().ir
        known = self._graphs.setdefault(ir, WeakValueDictionary())
        key = get_function_hash(fn, *args, **kwargs)
        graph = known.get(key)
        if graph is None:
            graph = known[key] = ir.create_graph(fn, *args, **kwargs)
        return graph


def function(fn: Callable[..., Any]) -> Callable[..., tuple[popxl.Tensor, ...]]:
    """Decorator: each call of `fn` becomes a call of its graph, shared by calls with equal specs."""
    cache = GraphCache()

    @functools.wraps(fn)
    def outlined(*args: Any, **kwargs: Any) -> tuple[popxl.Tensor, ...]:
        graph = cache.create_graph(fn, *args, **kwargs)
        bound = bound_arguments(fn, *args, **kwargs)
        return ops.call(graph, *_tensors(bound.arguments.values()))

    return outlined


def _tensors(values: Iterable[Any]) -> list[popxl.Tensor]:
    """Tensor arguments in the order in which `Ir.create_graph` makes inputs of them."""
    found: list[popxl.Tensor] = []
    for value in values:
        if isinstance(value, popxl.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(v for v in cast("Sequence[Any]", value) if isinstance(v, popxl.Tensor))
        elif isinstance(value, Mapping):
            found.extend(v for v in cast("Mapping[Any, Any]", value).values() if isinstance(v, popxl.Tensor))
    return found
