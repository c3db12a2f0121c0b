"""From a row of the published table to the formula that predicts it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ipu_model import target as targets
from ipu_model.published import fallback, kernels, layers, octave, pools, reductions, stencil, tables, throughput, words
from ipu_model.published.benchmark import Benchmark
from ipu_model.published.formula import FIXED, Formula
from ipu_model.target import Target

Row = Mapping[str, Any]
Op = Callable[[dict[str, Any], str, Target], Benchmark]
OPS: dict[str, Op] = {
    **layers.OPS,
    **tables.OPS,
    "oct_conv": octave.octave,
    "reduction": reductions.reduction,
    "pooling": pools.pooling,
}

FAMILIES = ("conv", "ctc", "embedding", "exchange", "gemm", "inference", "max_problem_size", "memory_bound", "pooling",
            "reduce", "rnn", "solver", "training")  # fmt: skip

# The library that produced the benchmark table used 8 convolution units wherever partial results are fp32; devices have
# sixteen for fp32 operands, and later libraries use them.
TABLE_UNITS = 8

HALVES = ("half", "fp16", "float16", "short", "unsigned short")
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")

CHIPS = (("bow", "bow"), ("c600", "c600"), (r"gc200|mk2|m2000|pod", "mk2"), (r"gc2\b|mk1", "mk1"))


def target_of(row: Row) -> Target:
    """The chip that a row names in its ``hardware``."""
    hardware = str(row.get("hardware") or "")
    name = next((name for pattern, name in CHIPS if re.search(pattern, hardware.lower())), "mk2")
    target = targets.get(name)
    used = re.search(r"(\d+) tiles used", hardware)
    return target.replace(tiles=int(used.group(1))) if used else target


def complete(row: Row) -> dict[str, Any]:
    """The row with every key, without empty entries of its configuration, numbers written as text made numbers."""
    texts = {name: str(row.get(name) or "") for name in ("family", "what", "unit", "hardware", "precision")}
    return {**row, **texts, "config": _plain(row.get("config") or {})}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, str) and NUMBER.fullmatch(value.strip()):
        number = float(value)
        return int(number) if number.is_integer() else number
    return value


def data_type(row: Row) -> str:
    """``"float"`` for rows in fp32, else ``"half"``."""
    return "float" if str(row.get("precision") or "").startswith("fp32") else "half"


def model(row: Row, target: Target | None = None) -> Formula:
    """The formula of a row; evaluate it on a target, or differentiate it.

    A row of a known family that none of its rules knows is answered by the chip's own rates
    (`ipu_model.published.fallback`).

    Raises
    ------
    ValueError
        When the family is not known, or a row of the benchmark table asks for none of its three figures or its
        operation lacks a size.
    """
    target = target or target_of(row)
    row = complete(row)
    config = row["config"]
    op = config.get("op")
    if op in OPS and "params" in config:
        params = config["params"]
        named = str(params.get("data-type", params.get("type", data_type(row))))
        data = "half" if named in HALVES else "float"  # four-byte integers are moved as floats are
        if op != "matrix_solver":  # whose products agree with the plans of the chip's own units
            target = target.replace(units_float=TABLE_UNITS)
        if params.get("tiles-per-ipu"):
            target = target.replace(tiles=int(params["tiles-per-ipu"]))
        return _benchmark(op, params, data, row, target)
    for source in (throughput, stencil, kernels):
        found = source.formula(row, target)
        if found is not None:
            return found
    if row["family"] not in FAMILIES:
        raise ValueError(f"no predictor for family {row['family']!r}, op {op!r}, {row['what']!r}; known: {FAMILIES}")
    return fallback.formula(row, target)


def _benchmark(op: str, params: dict[str, Any], data: str, row: Row, target: Target) -> Formula:
    """A row of the benchmark table: one of the three figures of its program, of some of its passes, or a size."""
    what = row["what"]
    # what decides what runs but is recorded beside the parameters; layers run all passes whatever a row calls them,
    # unless its figure is that of one
    params = {**params, "pass": row["config"].get("pass", ""), "part": what}
    try:
        size = words.size_asked_for(what)
        if size is not None:
            return Formula(({FIXED: float(words.largest_that_fits(size, params, data, target, OPS[op]))},))
        return OPS[op](params, data, target).figure(what)
    except KeyError as missing:
        raise ValueError(f"{op} needs {missing.args[0]!r} in its params; got {sorted(params)}") from missing


def parts(row: Row) -> dict[str, float]:
    """Cycles of a row of inference or training by what they go into; see `ipu_model.published.throughput.parts`."""
    return throughput.parts(complete(row), target_of(row))


def group_of(row: Row) -> str:
    """The operation of a benchmark row, else the family; times per batch are a group of their own."""
    op = row["config"].get("op")
    if row["family"] == "inference" and row["unit"] == "ms":
        return "latency"
    # measured products and convolutions are predicted with the constants of the benchmark table
    return op or ("measured " if row["family"] in ("gemm", "conv") else "") + str(row["family"])


def quantity(row: Row) -> str:
    """Short name of what a row reports."""
    what = str(row["what"])
    for start, name in (("total cycles", "cycles"), ("total memory", "total memory"), ("max tile", "max tile memory")):
        if what.startswith(start):
            return name
    return str(row["unit"])
