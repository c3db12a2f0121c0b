"""Gather (multiSlice) and scatter-add (multiUpdateAdd) on a large table; the plan minimises memory, not time."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from ipu_model.checks import check_choice, check_sizes
from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.conv_splits import in_order, useful_splits
from ipu_model.planner.plan import Plan
from ipu_model.planner.steps import LAUNCH, exchange_start
from ipu_model.target import Machine, Target

SIZES = {"half": 2, "float": 4}
INDICES_PER_TILE = 32
INDEX_BUNDLES = 300  # integer division, multiply and add of an index: which part holds its row, and where
CODE = 1920.0  # bytes per tile of code, vertex state and exchange code that every look-up has
INDEX_CODE = 5.2  # bytes for each message of 32 indices
UPDATE_STEPS = frozenset({"update", "update_start", "update_indices", "deltas", "added_copies"})
END = 24  # bytes after the last variable of a tile


def plan_embedding(
    rows: int, columns: int, indices: int, target: Target, data: str = "half", update: bool = True
) -> Plan:
    """Plan `indices` look-ups in a ``[rows, columns]`` table, and as many added updates when `update`."""
    check_sizes("embedding", rows=rows, columns=columns, indices=indices)
    check_choice("embedding", "data", data)
    return _plan(rows, columns, indices, target.machine, data, update)


@dataclass(frozen=True)
class Lookup:
    """A table spread over the tiles, and the look-ups in it."""

    # parts of each; tiles are their product
    columns: int
    rows: int
    lookups: int
    width: int  # elements of a row on a tile
    held: int  # rows of the table on a tile
    # look-ups of a tile in the first stage, and in the second, which joins the row parts
    share: int
    second: int

    @property
    def tiles(self) -> int:
        """Tiles in use: parts of columns, rows and look-ups multiplied."""
        return self.columns * self.rows * self.lookups

    def peak(self, size: int) -> int:
        """Bytes of the fullest tile that are needed only for a while, of look-ups and the update behind them."""
        row = self.width * size
        first = self.share * (row + 4)
        gathered = self.share * row + self.rows * self.second * row + 4 * self.second if self.rows > 1 else 0
        cast = 4 * self.second * self.width if size == 2 and self.lookups > 1 else 0
        return max(first, gathered, first + self.second * row + cast)


@functools.lru_cache(maxsize=256)
def _plan(rows: int, columns: int, indices: int, machine: Machine, data: str, update: bool) -> Plan:
    found = split(rows, columns, indices, machine, data, update)
    size, bus = SIZES[data], machine.exchange_bytes
    row = found.width * size
    quantities = {"slice": slice_cycles(found.share, found.width, machine, data)}
    received = {"indices": found.share * 4 / (2 * bus)}  # two neighbours share the bus
    exchanges = 3
    if found.rows > 1:
        quantities["second_stage"] = slice_cycles(found.second, found.width, machine, data)
        each = cdiv(_indices_of_a_tile(indices, machine), machine.workers)
        quantities["index_map"] = float(machine.workers * each * INDEX_BUNDLES)
        received["candidates"] = found.rows * found.second * row / bus
        exchanges += 1
    if update:
        quantities["update"] = update_cycles(found.share, found.width, machine, data)
        received |= {"update_indices": received["indices"], "deltas": found.share * row / bus}
        quantities["update_start"] = 4 * exchange_start(machine)
    if found.lookups > 1:
        held, copies = found.width * found.held, found.lookups
        received["table"] = held * (copies - 1) / copies * size / bus
        exchanges += 1
        if update:
            quantities["added_copies"] = added_copies_cycles(held, copies, machine, data)
    quantities |= {**received, "start": exchanges * exchange_start(machine), "launch": LAUNCH}
    return Plan(
        "embedding", quantities, frozenset(received), exact=frozenset(quantities), method="multiSlice",
        tiles=found.tiles, temporary_bytes=float(found.peak(size)),
        tile_bytes={"table": float(found.width * found.held * size)}, detail=found,
    )  # fmt: skip


def split(rows: int, columns: int, indices: int, machine: Machine, data: str, update: bool) -> Lookup:
    """The split that needs least memory, always-live bytes counting tenfold; of equal ones that with fewer tiles."""
    grain = machine.atomic_store_bytes // SIZES[data]
    sizes, most = (cdiv(columns, grain), rows, indices), min(machine.tiles, max(1, rows // 2))
    lists = [useful_splits(n, m) for n, m in zip(sizes, (machine.tiles, most, machine.tiles), strict=True)]
    (e, ge), (s, de), (k, lp) = in_order(lists, sizes, machine.tiles)
    base, peak = _memory(s, k, ge, de, lp, indices, machine, grain, data, update)
    i = int(np.lexsort((e * s * k, 10 * base + peak))[0])
    share = int(lp[i])
    return Lookup(int(e[i]), int(s[i]), int(k[i]), int(ge[i] * grain), int(de[i]), share, cdiv(share, int(s[i])))


def _indices_of_a_tile(indices: int, machine: Machine) -> int:
    return max(min(indices, INDICES_PER_TILE), cdiv(indices, machine.tiles))


def _memory(
    s: np.ndarray, k: np.ndarray, ge: np.ndarray, de: np.ndarray, lp: np.ndarray, indices: int, machine: Machine,
    grain: int, data: str, update: bool,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Always-live and temporary bytes per tile of each split."""
    sec = -(-lp // s)
    many_rows, many_lookups = s > 1, k > 1
    index_bytes = 4 * _indices_of_a_tile(indices, machine)
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


def slice_cycles(lookups: int, elements: int, machine: Machine, data: str) -> float:
    """Tile cycles of copying `lookups` rows of `elements` elements, dealt to the workers; halves in pairs."""
    vector, each = machine.vector_bytes // SIZES[data], cdiv(lookups, machine.workers)
    each += each % 2 if data == "half" else 0
    return float(machine.workers * (16 + each * (19 + 3 * cdiv(elements, vector))))


def added_copies_cycles(held: int, copies: int, machine: Machine, data: str) -> float:
    """Tile cycles of an update that `copies` groups of tiles accumulate in own fp32 tables of `held` elements.

    The tables are zeroed, sent and added up, a share of the elements on each tile, and the sum is brought into the
    table: cast up, scaled add, cast back.
    """
    workers, share = machine.workers, cdiv(held, copies)
    zeroed = workers * (23 + held / (2 * workers))
    sent = held * (copies - 1) / copies * 4 / machine.exchange_bytes
    added = workers * (32 + (3 * copies + 7) * cdiv(share, 4) / workers)
    casts = 2 * workers * (42 + share / (2 * workers)) if data == "half" else 0.0
    stored = 46 + workers * (23 + 3 * share / (2 * workers))
    return 2 * exchange_start(machine) + zeroed + sent + added + casts + stored


def update_cycles(lookups: int, elements: int, machine: Machine, data: str) -> float:
    """Tile cycles of adding `lookups` rows, which one worker does alone."""
    half = data == "half"
    words = elements // (machine.atomic_store_bytes // SIZES[data])
    return 6.0 * ((18 if half else 17) + lookups * ((12 if half else 11) + 3 * (words - 1)))


def memory(found: Lookup, rows: int, columns: int, indices: int, data: str, machine: Machine) -> tuple[float, float]:
    """Total bytes, and the highest address used on a tile.

    The table, the deltas and the indices are always live. Code is in the first memory element, the tile's table part
    behind it, and rows (looked-up rows and the gathered result, or deltas) start the next element. Indices share no
    element with their rows: they fill up the table's last element where they fit, else start one behind the rows.
    """
    size, element = SIZES[data], machine.memory_element
    each = found.peak(size) + CODE + INDEX_CODE * cdiv(found.share, INDICES_PER_TILE)
    total = (rows + indices) * columns * size + 4.0 * indices + found.tiles * each
    row = found.width * size
    table = element + found.held * row
    start = element * cdiv(table, element)
    behind = start + found.share * row
    gathered = found.rows * found.second * row if found.rows > 1 else 0
    named = 4 * found.share
    named = behind if table + named <= start else element * cdiv(behind, element) + named
    return total, float(max(behind + gathered, named) + END)
