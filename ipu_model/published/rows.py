"""From a row of the published table to the formula that predicts it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from ipu_model import target as targets
from ipu_model.published import fallback, kernels, names, programs, stencil, throughput, units, words
from ipu_model.published.formula import Formula
from ipu_model.published.hardware import chip_name, is_other, system_size
from ipu_model.target import Target

Row = Mapping[str, Any]
FAMILIES = ("conv", "ctc", "embedding", "exchange", "gemm", "inference", "max_problem_size", "memory_bound", "pooling",
            "reduce", "rnn", "solver", "training")  # fmt: skip


def target_of(row: Row) -> Target:
    """The chip that a row names in its ``hardware``, a Mk2 where it names none.

    Raises ValueError for machines that are no IPU.
    """
    hardware = str(row.get("hardware") or "")
    name = chip_name(hardware)
    if is_other(hardware):
        raise ValueError(f"hardware is {hardware!r}; figures of IPUs are predicted")
    name = name or "mk2"
    target = targets.get(name)
    used = re.search(r"([\d,]+) tiles\b", hardware)
    return target.replace(tiles=int(used[1].replace(",", ""))) if used else target


def complete(row: Row) -> dict[str, Any]:
    """The row with every key, without empty entries of its configuration, numbers written as text made numbers."""
    texts = {name: str(row.get(name) or "") for name in ("family", "what", "unit", "hardware")}
    texts["precision"] = names.precision(str(row.get("precision") or ""))
    config = words.plain(row.get("config") or {})
    op = config.get("op") or names.program_of(texts["family"], texts["what"], config)
    return {**row, **texts, "config": {**config, "op": op} if op else names.entries(config)}


def data_type(row: Row) -> str:
    """``"float"`` for rows in fp32, else ``"half"``."""
    return "float" if names.precision(str(row.get("precision") or "")).startswith("fp32") else "half"


def model(row: Row, target: Target | None = None) -> Formula:
    """The formula of a row; evaluate it on a target, or differentiate it.

    A row of a known family that none of its rules knows is answered by the chip's own rates
    (`ipu_model.published.fallback`). Raises ValueError where the family is not known, a size is a range or negative, or
    a row asks for what its program has not; see `programs.figure`, `units.asked`.
    """
    target = target or target_of(row)
    row = complete(row)
    op = row["config"].get("op")
    if names.program(str(op))[0] not in programs.OPS and row["family"] not in FAMILIES:
        raise ValueError(f"no predictor for family {row['family']!r}, {row['what']!r}; known: {FAMILIES}")
    if op is not None:
        found = programs.figure(row, data_type(row), target)
    else:
        words.check_signs(row["config"])
        found = _ruled(row, target)
    asked = units.asked(found, row["what"], row["unit"], system_size(row["hardware"]), float(target.power_watts))
    each = target.tiles if _of_one_tile(row) else 1  # rates are those of all tiles
    assumed = (
        asked.assumed if chip_name(row["hardware"]) else (*asked.assumed, f"{target.name} for {row['hardware']!r}")
    )
    return dataclasses.replace(asked, unit=asked.unit * each, assumed=assumed)


def _ruled(row: Row, target: Target) -> Formula:
    """The formula of the first rule that knows a row, else that of the chip's own rates."""
    ruled = (source.formula(row, target) for source in (throughput, stencil, kernels))
    try:
        return next((formula for formula in ruled if formula is not None), None) or fallback.formula(row, target)
    except TypeError:  # of an entry that is read; ranges in others, as of releases, are no matter
        words.check_ranges(row["config"])
        raise


def _of_one_tile(row: Row) -> bool:
    """Whether a rate is asked for by tile; rows that say on how many tiles they ran are of those."""
    rate = units.parse(row["unit"]).sort.endswith("/s")
    return rate and "tiles" not in row["config"] and bool(re.search(r"\bper tile\b", row["what"].lower()))


def parts(row: Row) -> dict[str, float]:
    """Cycles of a row of inference or training by what they go into; see `ipu_model.published.throughput.parts`."""
    return throughput.parts(complete(row), target_of(row))


def group_of(row: Row) -> str:
    """The operation of a benchmark row, else the family; times per batch are a group of their own."""
    op = row["config"].get("op")
    if row["family"] == "inference" and units.parse(str(row["unit"])).sort == "time":
        return "latency"
    # measured products and convolutions are predicted with the constants of the benchmark table
    return (
        names.program(op)[0] if op else ("measured " if row["family"] in ("gemm", "conv") else "") + str(row["family"])
    )


def quantity(row: Row) -> str:
    """Short name of what a row reports."""
    what = str(row["what"])
    for start, name in (("total cycles", "cycles"), ("total memory", "total memory"), ("max tile", "max tile memory")):
        if what.startswith(start):
            return name
    return str(row["unit"])
