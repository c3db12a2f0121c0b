"""Measured stencils on grids spread over tiles and IPUs: blur, heat equation, lattice Boltzmann."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from ipu_model.published.formula import FIXED, Formula, known
from ipu_model.published.hardware import system_size
from ipu_model.published.words import numbers, repeats
from ipu_model.target import Target

BLUR_STEPS = 200
WEAK_SIDE = 780.0  # pixels per side and IPU in the weak scaling runs, inferred from their times
MIDDLE_SIDE = 980.0  # side of the test image whose size is not published, inferred likewise
#: Vectors that hold the four channels of a pixel.
VECTORS = {"half4": 1, "float2": 2, "scalar float": 4}
# Instructions of a vertex that a compiler makes. For a vector of the blur: nine loads, the arithmetic that the source
# counts (52 operations for four channels), a store. For a cell of the heat equation, whose arithmetic goes beside its
# loads: those of its neighbours and of itself, a store. Each loop steps, compares and branches besides.
VECTOR_INSTRUCTIONS, PIXEL_INSTRUCTIONS = 9 + 13 + 1, 8
HEAT_INSTRUCTIONS = 4
BYTES = {"half4": 8, "float2": 16, "scalar float": 16}  # of one pixel of four channels
BLUR_FLOPS = 52  # per pixel: four channels, a symmetric 3x3 kernel
HEAT = {2: (6.0, 20.1), 3: (8.0, 29.1)}  # operations and bytes per cell that the source counts
COPY_CALL = 288.0  # cycles of a call that copies on a tile (measured on a C600)
VECTOR_BYTES = 8
LBM_BYTES, LBM_STEPS = 32, 1000
LBM_TRAFFIC = 2 * 9 * 4  # bytes that a cell reads and writes: nine speeds in fp32
FRACTIONS = r"share of (run )?time|(exchange|rearrangement|compute|arithmetic) share|roofline ceiling"
SYNCED = 16  # IPUs whose sync is the target's `external_sync_cycles`
LINKS_OF_NEIGHBOURS = 2  # up, down and across the ladder (PopLibs' command line tools)
IPU_GRID = {1: (1, 1), 2: (2, 1), 4: (2, 2), 8: (4, 2), 16: (4, 4)}


def formula(row: Mapping[str, Any], target: Target) -> Formula | None:
    """The formula of a stencil row, None when the row is something else."""
    config, what = row["config"], str(row["what"]).lower()
    count = system_size(str(row["hardware"]))
    if "equation" in config and ("grid" in config or "fits" in what):
        return _heat(config, what, str(row["unit"]), count, target)
    if "grid" in config and re.search(r"32 b per cell|\blbm\b|d2q9", f"{what} {config.get('app', '')}".lower()):
        return _lbm(numbers(config["grid"]), repeats(what, float(config.get("steps", LBM_STEPS))), count, target)
    data = str(row["precision"]).lower()
    usual = "scalar float" if "32" in data and "16" not in data else "half4"
    if re.search(FRACTIONS, what):
        return _step_fractions(config, what, usual, count, target)
    if "blur" in what and ("vector" in config or "convolution" not in what):
        _check_kernel(config, what)
        width, height, assumed = _image(config, count)
        vector = str(config.get("vector", usual)).lower()
        assumed += () if "vector" in config else (f"vectors: {vector}",)
        if "step:" in what and "total" not in what.split("step:")[1]:
            part = what.split("step:")[1]
            return Formula((_blur_step(part, vector, width, height, count, target),), assumed=assumed)
        times = 1.0 if "step:" in what else repeats(what, float(config.get("steps", BLUR_STEPS)))
        made = _blur(vector, width, height, times, count, target)
        return dataclasses.replace(made, assumed=assumed)
    return None


def _check_kernel(config: Mapping[str, Any], what: str) -> None:
    """Refuse a blur of other neighbours or channels than the measured vertex has.

    Raises ValueError where the row names them.
    """
    said = re.search(r"\b(\d{1,2}) ?x ?(\d{1,2})\b", what)
    kernel = numbers(config.get("kernel", said[0] if said else "3x3"))
    named = re.search(r"(\d+)[- ]channels?", what)
    channels = numbers(config.get("channels", named[1] if named else 4))
    if set(kernel) != {3.0} or channels != [4.0]:
        raise ValueError(
            f"{what!r}: kernel {kernel}, channels {channels}; blurs of 3 x 3 on 4 channels are priced, others as "
            "'convolution'"
        )


def _image(config: Mapping[str, Any], count: int) -> tuple[float, float, tuple[str, ...]]:
    """Width and height of an image, and what is assumed where they are not given."""
    sides = numbers(config.get("image", ""))
    if len(sides) == 2:
        return sides[0], sides[1], ()
    side = WEAK_SIDE * math.sqrt(count) if config.get("scaling") == "weak" else MIDDLE_SIDE
    return side, side, (f"an image of {side:,.0f} x {side:,.0f} pixels",)


def _hops(count: int) -> float:
    """Links that a sync of `count` IPUs passes on the ladder."""
    return 1.0 + count // 2 // 2


def sync_between(count: int, target: Target) -> float:
    """Cycles of a sync of `count` IPUs."""
    return target.external_sync_cycles * _hops(count) / _hops(SYNCED)


def sent_between(moved: float, target: Target) -> dict[str, float]:
    """What it takes to send `moved` bytes to a neighbouring IPU: start-up, and the bytes at the rate of one link."""
    return {"stencil.global_base": 1.0, FIXED: moved / _link(target)}


def _link(target: Target) -> float:
    """Bytes per cycle of one link in one direction."""
    return target.link_rate / target.links_per_ipu / target.clock_hz


def _share(cells: float, count: int, target: Target) -> float:
    return cells / count / target.tiles


def _cut(width: float, height: float, count: int) -> float:
    """Cells along the borders of one IPU that it sends to its neighbours."""
    columns, rows = IPU_GRID.get(count, (count, 1))
    return (width / rows if columns > 1 else 0.0) + (height / columns if rows > 1 else 0.0)


def _blur_instructions(vector: str) -> int:
    """Instructions for a pixel of four channels."""
    return VECTOR_INSTRUCTIONS * VECTORS.get(vector, 4) + PIXEL_INSTRUCTIONS


def _blur(vector: str, width: float, height: float, times: float, count: int, target: Target) -> Formula:
    """Formula of a blur: the steps in turn, and on several IPUs the copies of the borders between them."""
    quantities: dict[str, float] = {}
    for part in ("compute", "pre-exchange", "post-exchange", "sync", "exchange", *(("global",) if count > 1 else ())):
        for name, value in _blur_step(part, vector, width, height, count, target).items():
            quantities[name] = quantities.get(name, 0.0) + times * value
    if count > 1:
        quantities["stencil.cut_pixel"] = times * _cut(width, height, count)
    cells = width * height * times
    work = {"cell": cells, "step": times, "flop": BLUR_FLOPS * cells}
    return Formula((quantities,), work=work)


def _blur_step(part: str, vector: str, width: float, height: float, count: int, target: Target) -> dict[str, float]:
    pixels, size = _share(width * height, count, target), BYTES.get(vector, 16)
    border = 4 * math.sqrt(pixels)
    if "global" in part:
        return sent_between(_cut(width, height, count) * size, target)
    if "sync" in part:
        return {FIXED: sync_between(count, target) if count > 1 else target.sync_cycles}
    if "pre-exchange" in part:
        # each pixel of a border is a piece of its own, of which one worker loads and stores a vector in a turn
        return {"stencil.pack_pixel": border, FIXED: COPY_CALL + target.workers * border * size / VECTOR_BYTES}
    if "post-exchange" in part:
        # the picture and its borders are brought together in one tensor
        return {FIXED: pixels * size / target.memcpy_bytes_per_cycle, "stencil.unpack_pixel": border}
    if "compute" in part:
        return {"stencil.compute": pixels * _blur_instructions(vector), "stencil.compute_base": 1.0}
    return {"stencil.exchange": target.exchange_setup_cycles + border * size / target.exchange_bytes_per_cycle}


def _heat(config: Mapping[str, Any], what: str, unit: str, count: int, target: Target) -> Formula:
    extents = numbers(config.get("grid", "1x1x1" if "3d" in str(config["equation"]).lower() else "1x1"))
    order = len(extents)
    if "fits" in what or "outcome" in unit:
        # the largest grid whose cells fit; several IPUs keep buffers for their borders
        kind = "stencil.cell_bytes" if count == 1 else f"stencil.cell_bytes_{order}d"
        cells = count * target.memory / target.fitted.get(kind, 16.0)
        if "outcome" in unit:
            return known(math.prod(extents) <= cells)
        return known(cells if "cells" in unit and "side" not in unit else cells ** (1 / order))
    cells = math.prod(extents)
    instructions = 2 * order + 1 + HEAT_INSTRUCTIONS
    quantities = {"stencil.heat": _share(cells, count, target) * instructions}
    if count > 1:
        # slabs: an IPU sends a face to each neighbour, both at once
        quantities["stencil.heat_links"] = 1.0
        quantities[FIXED] = 4 * math.prod(extents[:-1]) / (LINKS_OF_NEIGHBOURS * _link(target))
    operations, traffic = HEAT.get(order, HEAT[3])
    steps = repeats(what, float(config.get("steps", 1000)))
    work = {"flop": operations * cells * steps, "byte": traffic * cells * steps, "cell": cells * steps, "step": steps}
    said = "steps" in config or repeats(what, 0.0) > 0
    assumed = (() if said else (f"{steps:,.0f} steps",)) + (
        () if "heat" in str(config["equation"]).lower() else (f"a step of {config['equation']} as one of heat",)
    )
    return Formula(({k: v * steps for k, v in quantities.items()},), work=work, assumed=assumed)


def _lbm_quantities(extents: list[float], count: int, target: Target) -> dict[str, float]:
    cells = _share(math.prod(extents), count, target)
    quantities = {"stencil.lbm_cell": cells, "stencil.lbm_halo": 4 * math.sqrt(cells) * LBM_BYTES}
    if count > 1:
        quantities["stencil.lbm_links"] = 1.0
    return quantities


def _lbm(extents: list[float], times: float, count: int, target: Target) -> Formula:
    quantities = _lbm_quantities(extents, count, target)
    cells = times * math.prod(extents)
    work = {"cell": cells, "step": times, "byte": LBM_TRAFFIC * cells}
    return Formula(({k: times * v for k, v in quantities.items()},), work=work)


def _step_fractions(config: Mapping[str, Any], what: str, vector: str, count: int, target: Target) -> Formula:
    """Fractions of a step that are not arithmetic, and of the arithmetic ceiling, on the largest published grid."""
    largest = (2200.0, 1122.0)
    fitted = target.fitted
    if "lbm" in what:
        quantities = _lbm_quantities(list(largest), count, target)
        total = sum(v * fitted.get(k, 1.0) for k, v in quantities.items())
        halo = quantities["stencil.lbm_halo"] * fitted.get("stencil.lbm_halo", 1.0) / total
        return known(1 - halo if re.search(r"in (compute|arithmetic)", what) else halo)
    pixels = _share(math.prod(largest), count, target)
    compute = pixels * _blur_instructions(vector) * fitted.get("stencil.compute", 1.0)
    total = compute
    for part in ("pre-exchange", "post-exchange", "exchange", "sync"):
        total += Formula((_blur_step(part, vector, *largest, count, target),))(target)
    if "share" in what:
        return known(compute / total if re.search(r"in (compute|arithmetic)", what) else 1 - compute / total)
    rate = BLUR_FLOPS * math.prod(largest) / count / (total / target.clock_hz)
    return known(rate / float(config.get("ceiling_tflops", 1.0)) / 1e12)
