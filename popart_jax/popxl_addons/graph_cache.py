"""Cache of graphs: equal functions with equal argument specs share one graph."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np

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
    return hash(argument_key(t))


@dataclass(frozen=True)
class _Held:
    """An object that counts by its hash, kept alive so that no other one gets its address and with it its hash."""

    hashed: int
    value: Any = field(compare=False, repr=False)


def argument_key(arg: Any) -> Hashable:
    """What makes an argument equal to another one.

    Tensors count by spec, sequences and mappings element by element, numbers by type and value, groupings by their
    groups, graphs by identity, anything else by `hash`. Raises TypeError where an argument is not hashable.
    """
    if isinstance(arg, (popxl.Tensor, popxl.TensorSpec)):
        return (tuple(arg.shape), arg.dtype, tuple(arg.meta_shape or ()))
    if isinstance(arg, (str, bytes)):
        return arg
    if isinstance(arg, (int, float, complex, np.generic)):
        number = cast("object", arg)
        return type(number), repr(number)  # -1 and -2 have one hash, 0.0 equals -0.0, and no NaN equals itself
    if isinstance(arg, popxl.Graph):
        return _Held(id(arg), arg)
    if isinstance(arg, popxl.ReplicaGrouping):
        return tuple(arg.assignment)
    if isinstance(arg, Mapping):
        return tuple((key, argument_key(value)) for key, value in cast("Mapping[Any, Any]", arg).items())
    if isinstance(arg, Sequence):
        values = cast("Sequence[Any]", arg)
        return type(values), tuple(map(argument_key, values))
    return _Held(hash(arg), arg)


def argument_hash(arg: Any) -> int:
    """Hash of an argument's `argument_key`."""
    return hash(argument_key(arg))


def function_key(fn: Any, *args: Any, **kwargs: Any) -> Hashable:
    """What makes a call equal to another one: the function, its arguments, and where its operators would be placed."""
    bound = bound_arguments(fn, *args, **kwargs)
    context = get_current_context()
    return _Held(hash(fn), fn), context.ipu_id, context.io_tile_set, argument_key(dict(bound.arguments))


def get_function_hash(fn: Any, *args: Any, **kwargs: Any) -> int:
    """Hash of a call's `function_key`."""
    return hash(function_key(fn, *args, **kwargs))


class GraphCache:
    """Graphs by function, placement and argument specs; an entry lives as long as its graph is used elsewhere."""

    def create_graph(self, fn: Any, *args: Any, **kwargs: Any) -> popxl.Graph:
        """`Ir.create_graph`, or the graph that an equal call made before in this Ir."""
        ir = popxl.gcg().ir
        known = ir._graph_caches.setdefault(self, WeakValueDictionary())
        key = function_key(fn, *args, **kwargs)
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
