"""Checks that every operator makes on its operands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._internal.enums import TileSet
from .._internal.placement import placement
from ..graph import Graph
from .context import get_current_context
from .tensor import TILE_SET_MAP, Tensor


def check_kind(kind: type, **arguments: Any) -> None:
    """Raise TypeError, with the parameter's name, where an argument is not of a class of PopXL's."""
    for name, value in arguments.items():
        if not isinstance(value, kind):
            raise TypeError(f"`{name}` must be a popxl.{kind.__name__}, got {value!r} of type {type(value).__name__}.")


def check_own(kind: type, **arguments: Any) -> None:
    """`check_kind` of graphs, streams and buffers, which must be of the current Ir (ValueError)."""
    check_kind(kind, **arguments)
    current = get_current_context().ir
    for name, value in arguments.items():
        if value._ir != current:
            raise ValueError(f"`{name}` {value!r} belongs to {value._ir!r}, but the current one is {current!r}.")


def check_tensors(**operands: Any) -> None:
    """Raise TypeError, with the parameter's name, where an operand is no tensor."""
    for name, t in operands.items():
        if not isinstance(t, Tensor):
            raise TypeError(f"The input `{name}` is not a Tensor. Type: {type(t)}. Value: {t}.")


def check_in_graph(graph: Graph, *args: Any, **tensors: Any) -> None:
    """Check that every operand is a tensor of the graph.

    Raises TypeError where an operand is no tensor (the parameter is named), ValueError where it belongs to another
    graph.
    """
    for name, t in [*((f"argument {i}", a) for i, a in enumerate(args)), *tensors.items()]:
        check_tensors(**{name: t})
        if t not in graph:
            raise ValueError(f"The input tensor `{name}` is not in the current Graph {graph.name}.")


def check_tensor_ipu_and_tile_set(*args: Any, **tensors: Any) -> None:
    """Raise ValueError, with both parameters' names, where operands whose placement is known are in two places."""
    named = [*((f"argument {i}", a) for i, a in enumerate(args)), *tensors.items()]
    _same("IPUs", [(n, placement(t)[0]) for n, t in named])
    sets = [(n, placement(t)[1]) for n, t in named]
    _same("tile sets", [(n, TILE_SET_MAP[p]) for n, p in sets if p is not TileSet.Undefined])


def _same(what: str, found: Iterable[tuple[str, Any]]) -> None:
    known = [(n, p) for n, p in found if p is not None]
    for name, place in known[1:]:
        if place != known[0][1]:
            raise ValueError(
                f"The input tensors `{known[0][0]}` and `{name}` are located on different {what}: "
                f"{known[0][1]} != {place}."
            )
