"""Floating point operations of graphs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from math import prod
from typing import Any, Literal

from .. import popxl

Format = Literal["K", "M", "G", "T", "nearest3"]
_POWERS = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12}


def elementwise_binary_flops(op: Any) -> int:
    """One operation per output element."""
    return prod(op.outTensor(0).info.shape())


def matmul_flops(op: Any) -> int:
    """2 K operations per output element."""
    return 2 * op.inTensor(0).info.shape()[-1] * prod(op.outTensor(0).info.shape())


def group_norm_flops(op: Any) -> int:
    """With E elements per statistic and S statistics: E + 2E + 2S + 4 per output element."""
    elements, statistics = prod(op.outTensor(0).info.shape()), prod(op.outTensor(1).info.shape())
    averaged = elements // statistics
    return averaged + 2 * averaged + 2 * statistics + 4 * elements


FLOPS_FNS: dict[str, Callable[[Any], int]] = {
    "Add": elementwise_binary_flops,
    "Sub": elementwise_binary_flops,
    "Div": elementwise_binary_flops,
    "Mul": elementwise_binary_flops,
    "MatMul": matmul_flops,
    "GroupNormalization": group_norm_flops,
}


def evaluate_FLOPs(graph: popxl.Graph) -> dict[str, int]:
    """Operations by operator ``<Type>_<id>``, called graphs expanded under their caller; "TOT" is the sum."""
    found: dict[str, int] = {}
    for op in graph._pb_graph.getOps():
        kind, key = op.opType(), f"{op.opType()}_{op.id}"
        if kind in ("Call", "Loop"):
            called = popxl.Graph._from_pb(op.getCalledGraph())
            trips = int(op.getTripCountValue()) if kind == "Loop" else 1
            key = f"{key}({_base(called.name)})"
            inner = evaluate_FLOPs(called)
            found.update({f"{key}.{name}": count * trips for name, count in inner.items() if name != "TOT"})
        elif kind in FLOPS_FNS:
            found[key] = FLOPS_FNS[kind](op)
    found["TOT"] = sum(found.values())
    return found


def evaluate_ir_FLOPs(ir: popxl.Ir) -> dict[str, int]:
    """Operations of the main graph on all replicas."""
    return {name: count * ir.replication_factor for name, count in evaluate_FLOPs(ir.main_graph).items()}


def total_FLOPs(ir: popxl.Ir) -> int:
    """Operations of the whole program."""
    return evaluate_ir_FLOPs(ir)["TOT"]


def format_flops_scientific(val: float, format: Format = "nearest3") -> str:
    """A count with three significant decimals and a unit of 10^3, 10^6, ..."""
    if format == "nearest3":
        format = max((u for u in _POWERS if val >= 10 ** _POWERS[u]), key=_POWERS.__getitem__, default="")  # pyright: ignore[reportAssignmentType]
    return f"{val / 10 ** _POWERS[format]:.3f} {format}FLOPs"


def print_FLOPs(
    flops_breakdown: dict[str, int], mode: Literal["type", "flat"] = "type", numerical_format: Format = "nearest3"
) -> None:
    """Print the breakdown: summed by type of operator, or one line for each.

    Raises
    ------
    ValueError
        Unknown `mode`.
    """
    if mode not in ("type", "flat"):
        raise ValueError(f"mode must be 'type' or 'flat', got {mode!r}")
    rows = dict(flops_breakdown)
    if mode == "type":
        summed: dict[str, int] = defaultdict(int)
        for name, count in flops_breakdown.items():
            summed[name.rpartition(".")[2].split("_")[0] if name != "TOT" else name] += count
        rows = dict(summed)
    for name, count in rows.items():
        print(f"{name}: {format_flops_scientific(count, numerical_format)}")  # noqa: T201 - as its name says


def _base(name: str) -> str:
    return re.sub(r"_subgraph\(\d+\)$", "", name)
