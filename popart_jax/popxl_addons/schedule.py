"""Text of a graph's schedule: numbered tensors, one line for each operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import popxl


class _Numbers:
    """Numbers of tensors in order of first mention, from 1."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def __call__(self, tensor_id: str) -> str:
        return f"%{self._known.setdefault(tensor_id, len(self._known) + 1)}"


def schedule_text(graph: popxl.Graph, names: Mapping[popxl.Tensor, str]) -> str:
    """``Graph : <name>``, its inputs and outputs, and its operators in schedule order."""
    number = _Numbers()
    inputs = [f"{names[t]}={number(t.id)}" if t in names else number(t.id) for t in graph.inputs]
    lines = [_line(op, number) for op in graph._pb_graph.getOpSchedule(True)]
    outputs = [number(t.id) for t in graph.outputs]
    body = "\n".join(f"    {line}" for line in lines or [""])
    return f"Graph : {graph.name}\n  ({', '.join(inputs)}) -> ({', '.join(outputs)}) {{\n{body}\n  }}"


def _line(op: Any, number: _Numbers) -> str:
    called = f"({op.getCalledGraph().id})" if op.opType() in ("Call", "Loop") else ""
    operands = ", ".join(_operand(t, number) for t in op.getInputTensors())
    results = ", ".join(_operand(t, number) for t in op.getOutputTensors())
    return f"{op.opType()}.{op.id}{called} ({operands}) -> ({results})"


def _operand(pb_tensor: Any, number: _Numbers) -> str:
    tensor = popxl.Tensor._from_pb_tensor(pb_tensor)
    return f"{number(tensor.id)} [{tuple(tensor.shape)} {tensor.dtype.name}]"
