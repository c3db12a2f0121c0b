"""Comparison of the result of a case with the expected one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from .build import EITHER, ERROR, JUDGE, VALUE, Case
from .ways import BESIDE


@dataclass(frozen=True)
class Came:
    """Result of a case: values, or an error with its text and whether its class is one that programs expect."""

    values: Mapping[str, Any] | None = None
    kind: str = ""
    text: str = ""
    ours: bool = False


def verdict(case: Case, came: Came, judged: Came | None, way: str) -> str:
    """Empty for a correct result, else a description of the fault."""
    if way in BESIDE:
        return _foreign(came) or ("" if came.values is not None or came.text.strip() else "an error without words")
    expect, want = case.expect, dict(case.want)
    own = case.by.get(way)
    if own is not None:
        expect, want = (own, {}) if isinstance(own, str) else (VALUE, dict(own))
    elif expect == JUDGE:
        if judged is None:
            expect = EITHER
        elif judged.values is None:
            expect = ERROR
        else:
            expect, want = VALUE, dict(judged.values)
    if came.values is None:
        return _of_error(case, came, expect, way)
    if expect == ERROR:
        return f"accepted: {_shown(came.values)}" + (f"; the judge: {judged.text[:150]}" if judged else "")
    return _differences(want, came.values, case.tolerance, way)


def _of_error(case: Case, came: Came, expect: str, way: str) -> str:
    if foreign := _foreign(came):
        return foreign
    text = f"{came.kind}: {came.text[:300]}"
    if expect == VALUE and way != "session":
        return f"refused: {text}"
    if case.says:
        return "" if re.search(case.says, came.text) else f"the error does not say {case.says!r}: {text}"
    named = any(name in came.text for name in _names(case.model))
    return "" if named or not isinstance(case.model, onnx.ModelProto) else f"the error names nothing: {text}"


def _foreign(came: Came) -> str:
    return "" if came.values is not None or came.ours else f"a foreign error: {came.kind}: {came.text[:300]}"


def _names(model: Any) -> Iterator[str]:
    if isinstance(model, onnx.ModelProto):
        yield from _names_of(model.graph)
        for function in model.functions:
            yield function.name
            yield from (node.op_type for node in function.node)
            yield from (f"'{name}'" for name in (*function.input, *function.output))


def _names_of(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from (n for n in (node.name, node.op_type, *node.output) if n)
        for attribute in node.attribute:
            yield from _names_of(attribute.g)
    for value in (*graph.input, *graph.output, *graph.initializer):
        if value.name:
            yield from (f"'{value.name}'", f"`{value.name}'", f"tensor {value.name} ")
    yield from (f"'{s.values.name}'" for s in graph.sparse_initializer)


def _differences(want: Mapping[str, Any], got: Mapping[str, Any], tolerance: float, way: str) -> str:
    for name, right in want.items():
        if name not in got:
            return f"no output {name!r}"
        wrong = _difference(right, got[name], tolerance, way)
        if wrong:
            return f"{name}: {wrong}"
    return ""


def _difference(right: Any, mine: Any, tolerance: float, way: str) -> str:
    if isinstance(right, list):
        return (
            ""
            if len(right) == len(mine)
            and not any(_difference(r, m, tolerance, way) for r, m in zip(right, mine, strict=True))
            else "another list"
        )
    right, mine = np.asarray(right), np.asarray(mine)
    if way == "session":  # 32 bits are PopART's rule; scalars may have a dimension
        mine = mine.reshape(right.shape) if mine.size == right.size else mine
    elif way == "run" and mine.dtype.kind == "V" and mine.dtype.itemsize == right.dtype.itemsize:
        mine = mine.view(right.dtype)  # NumPy's files have no names for these types
    if way != "session" and right.dtype != mine.dtype and not (right.dtype.kind in "OUS" and mine.dtype.kind in "OUST"):
        return f"type {mine.dtype}, expected {right.dtype}"
    if right.shape != mine.shape:
        return f"shape {mine.shape}, expected {right.shape}"
    if right.dtype.kind in "OUSb":
        return (
            ""
            if np.array_equal(right.astype(mine.dtype), mine)
            else f"{mine.tolist()}, expected {right.tolist()}"[:300]
        )
    if right.dtype.kind in "iu":
        return "" if np.array_equal(right, mine) else f"{mine.tolist()}, expected {right.tolist()}"[:300]
    kind = np.complex128 if right.dtype.kind == "c" else np.float64
    near = np.isclose(mine.astype(kind), right.astype(kind), rtol=tolerance, atol=tolerance * 1e-2, equal_nan=True)
    return "" if near.all() else f"{mine[~near].tolist()[:8]}, expected {right[~near].tolist()[:8]}"


def _shown(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{n} {np.asarray(v).dtype}{list(np.shape(v))}" if not isinstance(v, (list, Path)) else n
        for n, v in values.items()
    )[:200]
