"""Gradient clipping: one norm per group of weights, one product per weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ...errors import popart_exception
from .. import nodes
from ..facts import ClipGroup
from .common import Update

STEP_OPS = ("SGD0VarUpdate", "SGD1VarUpdate", "SGD2VarUpdate")
FLOAT = ir.DataType.FLOAT
Point = tuple[ir.Value, list[tuple[ir.Node, int]]]


def clip(graph: ir.Graph, clips: Sequence[ClipGroup], updates: Mapping[str, Update]) -> None:
    """Insert the norms and products of every clip group; popart_exception if a weight's update can't be clipped."""
    points = _clip_points(graph)
    for i, group in enumerate(clips):
        _clip_group(updates, i, group, points)


def _clip_points(graph: ir.Graph) -> dict[str, Point]:
    """For each weight, the tensor to clip and the readers of the clipped one."""
    points: dict[str, Point] = {}
    for node in graph:
        value: ir.Value | None = None
        readers: list[tuple[ir.Node, int]] = []
        if node.op_type in STEP_OPS:
            value, readers = node.inputs[1], [(node, 1)]
        elif node.op_type == "AdamVarUpdate":
            updater = node.inputs[1]
            first = None if updater is None else updater.producer()
            moment = None if first is None or first.inputs[1] is None else first.inputs[1].producer()
            value = None if moment is None else moment.inputs[1]
            readers = (
                []
                if value is None
                else [(use.node, use.idx) for use in value.uses() if use.node.op_type == "Accumulate"]
            )
        weight = node.inputs[0] if value is not None else None
        if value is not None and weight is not None:
            points[weight.name or ""] = (value, readers)
    return points


def _clip_group(updates: Mapping[str, Update], index: int, group: ClipGroup, points: dict[str, Point]) -> None:
    names = list(points) if group.weights is None else list(group.weights)
    for name in names:
        if name not in points:
            raise popart_exception(f"Could not find a varupdate op for tensor {name}")
    first = updates[names[0]]
    squares: list[ir.Value] = []
    for name in names:
        output = nodes.tensor(f"GlobalNorm___{index}__square__{name}", dtype=FLOAT, shape=())
        squares.append(updates[name].emit("ReduceSumSquare", [points[name][0]], output, domain="", keepdims=0))
    scalars = [nodes.tensor(n, dtype=FLOAT, shape=()) for n in _names(index)]
    limit = nodes.constant(f"ConstValue___maxNorm_{index}", group.max_norm, np.float32)
    total, norm, largest, factor = scalars
    first.emit("Sum", squares, total, domain="")
    first.emit("Sqrt", [total], norm, domain="")
    first.emit("Max", [norm, limit], largest, domain="")
    first.emit("Div", [limit, largest], factor, domain="")
    for name in names:
        value, readers = points[name]
        output = nodes.tensor(f"{value.name}__clipped", value)
        clipped = updates[name].emit("Mul", [value, factor], output, domain="")
        for reader, position in readers:
            reader.replace_input_with(position, clipped)


def _names(index: int) -> tuple[str, str, str, str]:
    base = f"GlobalNorm___{index}"
    return f"{base}__sum", base, f"{base}__max", f"ClipFactor___{index}"
