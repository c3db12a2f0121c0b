"""Placement of a tensor: the IPU and tile set of its producer, else of its consumers."""

from __future__ import annotations

from typing import Any

from .enums import TileSet
from .operands import op_of


def placement(tensor: Any) -> tuple[int | None, TileSet]:
    """(IPU or None, tile set); the result of a copy is on its destination."""
    producer = tensor._value.producer()
    if producer is not None:
        op = op_of(producer)
        if "ipus" in op._options:
            return op._options["ipus"][tensor._value.index()], op._settings.tileSet
        return op._out_placement()
    for node, i in tensor._value.uses():
        op = node.meta.get("op")
        if op is not None and i in op._options.get("input_ipus", ()):
            return op._options["input_ipus"][i], op._settings.tileSet
        if op is not None and op._settings.vgraphId is not None:
            return op._in_placement(i)
    return None, TileSet.Undefined
