"""Gather (multiSlice) and scatter-add (multiUpdateAdd) on a large table; the plan minimises memory, not time."""

from __future__ import annotations

import functools

import numpy as np

from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.conv_search import useful_splits
from ipu_model.planner.plan import Plan
from ipu_model.target import Machine, Target

SIZES = {"half": 2, "float": 4}
INDICES_PER_TILE = 32
EXACT = frozenset({"slice", "second_stage", "update", "copied_table", "added_copies"})
STEP = 190.0  # cycles of an exchange's set-up and a sync


def plan_embedding(
    rows: int, columns: int, indices: int, target: Target, data: str = "half", update: bool = True
) -> Plan:
    """Plan `indices` look-ups in a ``[rows, columns]`` table, and as many added updates when `update`."""
    return _plan(rows, columns, indices, target.machine, data, update)


@functools.lru_cache(maxsize=256)
def _plan(rows: int, columns: int, indices: int, machine: Machine, data: str, update: bool) -> Plan:
    grain = machine.atomic_store_bytes // SIZES[data]
    lists = [
        useful_splits(cdiv(columns, grain), machine.tiles),
        useful_splits(rows, min(machine.tiles, max(1, rows // 2))),
        useful_splits(indices, machine.tiles),
    ]
    grids = np.meshgrid(*[np.arange(a.shape[1]) for a in lists], indexing="ij")
    (e, ge), (s, de), (k, lp) = (a[:, g.ravel()] for a, g in zip(lists, grids, strict=True))
    keep = e * s * k <= machine.tiles
    e, ge, s, de, k, lp = (x[keep] for x in (e, ge, s, de, k, lp))
    base, peak = _memory(s, k, ge, de, lp, indices, machine, grain, data, update)
    best = int(np.lexsort((base + peak, 10 * base + peak))[0])
    elements = int(ge[best] * grain)
    lookups, second = int(lp[best]), int(cdiv(int(lp[best]), int(s[best])))
    quantities = {"slice": slice_cycles(lookups, elements, machine, data), "fixed": 1.0, "indices": float(lookups)}
    if s[best] > 1:
        quantities["second_stage"] = slice_cycles(second, elements, machine, data)
    if update:
        quantities["update"] = update_cycles(lookups, elements, machine, data)
    if k[best] > 1:
        held, copies = int(ge[best] * de[best]) * grain, int(k[best])
        quantities["copied_table"] = STEP + held * (copies - 1) / copies * SIZES[data] / machine.exchange_bytes
        if update:
            quantities["added_copies"] = added_copies_cycles(held, copies, machine, data)
    return Plan(
        "embedding",
        quantities,
        exact=EXACT,
        method="multiSlice",
        tiles=int(e[best] * s[best] * k[best]),
        temporary_bytes=float(peak[best]),
        tile_bytes={
            "table": float(ge[best] * de[best] * 4),
            "lookups": float(lookups * elements * SIZES[data]),
            "update": _update_bytes(int(s[best]), int(k[best]), int(ge[best]), int(de[best]), lookups, grain, data),
        },
        detail={"columns": int(e[best]), "rows": int(s[best]), "lookups": int(k[best])},
    )


def _memory(s, k, ge, de, lp, indices: int, machine: Machine, grain: int, data: str, update: bool):
    """Always-live and temporary bytes per tile of each split."""
    sec = -(-lp // s)
    many_rows, many_lookups = s > 1, k > 1
    index_bytes = 4 * max(min(indices, INDICES_PER_TILE), cdiv(indices, machine.tiles))
    received = -(-lp // INDICES_PER_TILE)
    code = 4 * (many_lookups * k + many_rows * s + 2 * received)
    if update:
        code = code + 4 * received + 4 * many_lookups * k
    base = -(-ge * de // k) * 4 + sec * ge * 4 + index_bytes + code
    table = many_lookups * ge * de * 4
    temp = np.maximum(
        table + many_rows * lp * ge * 4 + 4 * lp,
        many_rows * lp * ge * 4 + many_rows * s * sec * ge * 4 + 4 * sec,
    )
    if update:
        cast = (sec * ge * 4) if data == "half" else 0
        multicast = many_rows * lp * ge * grain * 4
        wide = many_lookups * de * ge * grain * 4
        temp = np.maximum.reduce([temp, cast + multicast, multicast + wide + 4 * lp, 2 * wide])
    return base, temp


def _update_bytes(s: int, k: int, ge: int, de: int, lookups: int, grain: int, data: str) -> float:
    """Bytes per tile of the deltas on their way into the table, and of the code that exchanges them."""
    second, received = cdiv(lookups, s), cdiv(lookups, INDICES_PER_TILE)
    cast = second * ge * 4 if data == "half" else 0
    multicast = lookups * ge * grain * 4 if s > 1 else 0
    wide = de * ge * grain * 4 if k > 1 else 0
    code = 4 * ((s if s > 1 else 0) + (2 * k if k > 1 else 0) + 3 * received)
    return float(cast + multicast + wide + code)


def slice_cycles(lookups: int, elements: int, machine: Machine, data: str) -> float:
    """Tile cycles of copying `lookups` rows of `elements` elements, dealt to the workers."""
    vector = machine.vector_bytes // SIZES[data]
    return 6.0 * (16 + cdiv(lookups, machine.workers) * (19 + 3 * cdiv(elements, vector)))


def added_copies_cycles(held: int, copies: int, machine: Machine, data: str) -> float:
    """Tile cycles of an update that `copies` groups of tiles gather in fp32 tables of `held` elements of their own.

    The tables are zeroed, sent and added up, a share of the elements on each tile, and the sum is brought into the
    table: cast up, scaled add, cast back.
    """
    workers, share = machine.workers, cdiv(held, copies)
    zeroed = workers * (23 + held / (2 * workers))
    sent = held * (copies - 1) / copies * 4 / machine.exchange_bytes
    added = workers * (32 + (3 * copies + 7) * cdiv(share, 4) / workers)
    casts = 2 * workers * (42 + share / (2 * workers)) if data == "half" else 0.0
    stored = 46 + workers * (23 + 3 * share / (2 * workers))
    return 2 * STEP + zeroed + sent + added + casts + stored


def update_cycles(lookups: int, elements: int, machine: Machine, data: str) -> float:
    """Tile cycles of adding `lookups` rows, which one worker does alone."""
    half = data == "half"
    words = elements // (machine.atomic_store_bytes // SIZES[data])
    return 6.0 * ((18 if half else 17) + lookups * ((12 if half else 11) + 3 * (words - 1)))
