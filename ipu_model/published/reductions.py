"""Benchmark rows of reductions: one program that reduces a linearly mapped tensor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from ipu_model.planner.reduction import Reduction, plan_reduction
from ipu_model.planner.reduction.held import linear_starts
from ipu_model.planner.steps import short_pointers
from ipu_model.published.benchmark import Benchmark
from ipu_model.published.formula import FIXED, Formula, of_plans
from ipu_model.published.words import whole_program
from ipu_model.target import Target

MESSAGE = 9  # bytes of exchange code for a message between two tiles, both ends together
BESIDE_DATA = 100  # bytes of the fullest tile beside data and vertices; 56 to 124 in the table
END = 24  # bytes after the last variable of a tile
OPERATIONS = ("ADD", "SQUARE_ADD", "MUL", "MIN", "MAX", "AND", "OR", "LOG_ADD")
SPELLINGS = {"LOGICAL_AND": "AND", "LOGICAL_OR": "OR", "SUM": "ADD", "PROD": "MUL", "PRODUCT": "MUL",
             "SUM_SQUARE": "SQUARE_ADD", "LOGSUMEXP": "LOG_ADD"}  # fmt: skip


def reduction(p: Mapping[str, Any], data: str, target: Target) -> Benchmark:
    """One reduction of a linearly mapped tensor; ValueError where the operation is none of the library's."""
    whole_program("reduction", p, (0,))
    shape, dims = (tuple(cast("list[Any]", p[n])) if isinstance(p[n], list) else (p[n],) for n in ("shape", "dims"))
    dims = tuple(d + len(shape) if isinstance(d, int) and -len(shape) <= d < 0 else d for d in dims)
    operation = str(p.get("operation", "ADD")).upper().replace("-", "_")
    operation = SPELLINGS.get(operation, operation)
    if operation not in OPERATIONS:
        raise ValueError(f"reduction: operation is {operation!r}; known are {OPERATIONS}")
    plan = plan_reduction(shape, dims, target, data, operation, as_table=True)
    total, highest = memory(plan.detail, math.prod(shape), data, target)
    return Benchmark(of_plans([plan]), _fixed(total), _fixed(highest))


def _fixed(value: float) -> Formula:
    return Formula(({FIXED: float(value)},))


def memory(found: Reduction, elements: int, data: str, target: Target) -> tuple[float, float]:
    """Total bytes, and the highest address used on a tile.

    Inputs and vertices always live; of the stages of a tile only the largest counts. No code: this benchmark compiles
    none. Columns that are brought into order need source and destination in different memory elements.
    """
    machine = target.machine
    starts = linear_starts(elements, data, machine.tiles)
    data_bytes = np.zeros(machine.tiles)
    data_bytes[: len(starts) - 1] = [(b - a) * (2 if data == "half" else 4) for a, b in itertools.pairwise(starts)]
    state = (12 if short_pointers(machine) else 16) * sum(s.state for s in found.stages)
    held = np.max([s.held for s in found.stages], axis=0)
    total = float(np.sum(data_bytes + state + held)) + MESSAGE * sum(s.messages for s in found.stages)
    highest = float(np.max(data_bytes + state + held)) + BESIDE_DATA
    if found.rotated:
        highest = max(highest, machine.memory_element + 32.0 + END)
    return total, highest
