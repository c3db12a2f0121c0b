"""Floating point operations of graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, Literal, cast

from .. import popxl
from ..popxl.utils import table_to_string
from .utils import plain_graph_name

Format = Literal["K", "M", "G", "T", "nearest3"]
_POWERS = {"K": 3, "M": 6, "G": 9, "T": 12}


def elementwise_binary_flops(op: Any) -> int:
    """One operation per output element."""
    return prod(op.outTensor(0).info.shape())


def matmul_flops(op: Any) -> int:
    """2 K operations per output element; a product of two vectors has one."""
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


Breakdown = dict[str, Any]
"""Operations by type of operator, then by operator, then those of called graphs by caller; "TOT" is the sum."""


def evaluate_FLOPs(graph: popxl.Graph) -> Breakdown:
    """Operations of a graph.

    Returns
    -------
    dict
        ``{type: {id: operations}, "TOT": sum}``. What a called graph has of a type stands there under
        ``<Call or Loop>_<id>(<graph>)``, times the trips of a loop.
    """
    found: Breakdown = {}
    for op in graph._pb_graph.getOps():
        kind = op.opType()
        if kind in ("Call", "Loop"):
            called = popxl.Graph._from_pb(op.getCalledGraph())
            trips = int(op.getTripCountValue()) if kind == "Loop" else 1
            for inner, counts in _times(evaluate_FLOPs(called), trips).items():
                if inner != "TOT":
                    found.setdefault(inner, {})[f"{kind}_{op.id}({plain_graph_name(called.name)})"] = counts
        elif kind in FLOPS_FNS:
            found.setdefault(kind, {})[op.id] = FLOPS_FNS[kind](op)
    found["TOT"] = sum(count for _, count in _flat(found))
    return found


def _times(counts: Breakdown, factor: int) -> Breakdown:
    return {
        key: _times(cast("Breakdown", value), factor) if isinstance(value, dict) else value * factor
        for key, value in counts.items()
    }


def _flat(counts: Breakdown, prefix: str = "") -> Iterator[tuple[str, int]]:
    """(dotted name, operations) of every leaf."""
    for key, value in counts.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(cast("Breakdown", value), f"{name}.")
        else:
            yield name, value


def evaluate_ir_FLOPs(ir: popxl.Ir) -> Breakdown:
    """Operations of the main graph on all replicas."""
    return _times(evaluate_FLOPs(ir.main_graph), ir.replication_factor)


def total_FLOPs(ir: popxl.Ir) -> int:
    """Operations of the whole program."""
    return evaluate_ir_FLOPs(ir)["TOT"]


def format_flops_scientific(val: float, format: Format = "nearest3") -> str:
    """A count as mantissa with three decimals and an exponent of ten that is a multiple of three.

    Parameters
    ----------
    format : {"nearest3", "K", "M", "G", "T"}
        The multiple nearest to the exponent, or 3, 6, 9, 12.

    Raises
    ------
    ValueError
        Another word.
    """
    if format == "nearest3":
        exponent = int(f"{val:e}".partition("e")[2])
        power = 3 * ((exponent + 1) // 3)
    elif format in _POWERS:
        power = _POWERS[format]
    else:
        raise ValueError("unknown format specified")
    return f"{val / 10.0**power:.3f}E{power:+03d}"


def print_FLOPs(
    flops_breakdown: Breakdown, mode: Literal["type", "flat"] = "type", numerical_format: Format = "nearest3"
) -> None:
    """Print the breakdown as a table: summed by type of operator in descending order, or one line for each operator.

    Raises
    ------
    ValueError
        Unknown `mode`.
    """
    if mode == "type":
        rows = _by_type(flops_breakdown, numerical_format)
    elif mode == "flat":
        names = ((*name.partition(".")[::2], n) for name, n in _flat(flops_breakdown))
        shown = ((kind, format_flops_scientific(n, numerical_format), name) for kind, name, n in names)
        rows = [("Op Type", "FLOPs", "Op Name"), *shown]
    else:
        raise ValueError("Unknown mode specified. Please use `type` or `flat`.")
    print(table_to_string(rows))  # noqa: T201 - as its name says


def _by_type(breakdown: Breakdown, numerical_format: Format) -> list[tuple[str, ...]]:
    sums = {kind: sum(n for _, n in _flat(counts)) for kind, counts in breakdown.items() if kind != "TOT"}
    total = sum(sums.values()) or 1
    ordered = sorted(sums.items(), key=lambda pair: pair[1], reverse=True)
    lines = [(kind, format_flops_scientific(n, numerical_format), f"{100 * n / total:.1f}") for kind, n in ordered]
    return [("Op Type", "FLOPs", "%"), *lines]
