"""Uncertainty of predictions: their errors on published figures that the fit had not seen, by sort of figure."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESIDUALS = Path(__file__).parent / "targets" / "residuals.json"
ELSE = "memory_bound/s"  # the sort of primitives without a planner: measured kernels bound by memory
# The published sort that a JAX primitive is most like. Those not listed are bound by memory.
SORTS: Mapping[str, str] = {
    "conv_general_dilated": "conv", "dot_general": "gemm", "ragged_dot": "gemm", "gather": "embedding",
    "scatter": "embedding", "scatter-add": "embedding", "dynamic_slice": "embedding",
    "dynamic_update_slice": "embedding", "cholesky": "matrix_solver", "triangular_solve": "matrix_solver",
    "select_and_scatter_add": "pooling", "select_and_gather_add": "pooling", "reduce_precision": "",
    **dict.fromkeys(("psum", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant", "reduce_scatter",
                     "all_to_all", "ppermute"), "exchange"),
}  # fmt: skip


@dataclass(frozen=True)
class Uncertainty:
    """Relative errors of predictions of the same sort on published figures: median, 90th percentile, how many."""

    median: float
    p90: float
    rows: int

    def __str__(self) -> str:
        return f"within {self.median:.1%} (median) and {self.p90:.1%} (90 %)"


def of_sort(sort: str) -> Uncertainty | None:
    """Errors of a sort, ``"operation/quantity"`` (``"conv/cycles"``); None where no figure was published."""
    found = residuals().get(sort)
    return Uncertainty(**found) if found else None


@functools.cache
def residuals() -> dict[str, dict[str, Any]]:
    """Errors by sort as stored: median, 90th percentile and number of rows."""
    return json.loads(RESIDUALS.read_text())["errors"]


def sort_of(primitive: str) -> str:
    """The published operation that a JAX primitive is most like; empty for those bound by memory."""
    if primitive.startswith("reduce_window"):
        return "pooling"
    return SORTS.get(primitive, "reduction" if primitive.startswith(("reduce_", "arg")) else "")


def of_program(steps: Iterable[tuple[str, float]], quantity: str = "cycles") -> Uncertainty | None:
    """Errors to expect of a program: those of its operations, weighted by the cycles of its steps; None without any.

    Operations of a sort are off together, so their errors add up in proportion and do not cancel. Sorts without such a
    figure take part only in cycles, as kernels bound by memory; `rows` are the figures that the answer rests on.
    """
    weights: dict[str, float] = {}
    for primitive, cycles in steps:
        sort = sort_of(primitive)
        weights[sort] = weights.get(sort, 0.0) + float(cycles)
    found = {
        sort: of_sort(f"{sort}/{quantity}") or (of_sort(ELSE) if quantity == "cycles" else None) for sort in weights
    }
    known = [(weights[sort], error) for sort, error in found.items() if error is not None and weights[sort] > 0]
    whole = sum(weight for weight, _ in known)
    if not whole:
        return None
    median, p90 = (sum(w * getattr(error, name) for w, error in known) / whole for name in ("median", "p90"))
    return Uncertainty(median, p90, sum({id(error): error.rows for _, error in known}.values()))
