"""Names with and without the scope of their graph."""

from __future__ import annotations

from typing import Any


def removeScope(graph: Any, tensor_id: str) -> str:
    """The name in the graph."""
    return tensor_id.removeprefix(f"{graph.id}/") if graph.id else tensor_id


def addScope(graph: Any, name: str) -> str:
    """The full id."""
    return f"{graph.id}/{name}" if graph.id else name
