"""The plan of a reduction: a local stage, intermediate stages, an output stage."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ipu_model.checks import check_choice, check_sizes
from ipu_model.planner.plan import Plan
from ipu_model.planner.reduction.held import Box, Group, View, common_order, cut_for_workers, groups, linear_starts
from ipu_model.planner.reduction.stages import Interval, Partials, Stage, enough, intermediate, output
from ipu_model.planner.reduction.start import CODES, start_tile
from ipu_model.planner.reduction.vertices import SIZES, Kind
from ipu_model.planner.reduction.workers import on_workers
from ipu_model.planner.steps import LAUNCH, ROTATED_COPY, exchange_start
from ipu_model.target import Machine, Target

FLOAT_SUMS = ("ADD", "SQUARE_ADD", "MUL", "LOG_ADD")  # halves are accumulated as floats
LEAST_FORMS = 8  # at least so many of the different shares of tiles are priced, and more of them while
MOST_ELEMENTS = 1 << 16  # they have no more elements than this in all
LARGEST_SHARE = 1 << 20  # elements of a tile, more than any can hold; beyond it only a part of the tensor is planned
MOST_VOTES = 4096  # different shares that are considered when a common order of the columns is chosen


@dataclass(frozen=True)
class Reduction:
    """How a reduction runs."""

    # in order; the first is local, without an exchange, unless every tile holds one value of each column
    stages: tuple[Stage, ...]
    sources: int  # tiles that hold parts of one column before the first exchange
    rotated: bool  # whether a tile has to bring its columns into order
    share: int  # elements on the fullest tile
    columns: int
    start: int  # the tile that the first intermediate result goes to


def plan_reduction(
    shape: Sequence[int],
    dims: Sequence[int],
    target: Target,
    data: str = "half",
    operation: str = "ADD",
    as_table: bool = False,
) -> Plan:
    """Plan a reduction (``ADD``, ``MAX``, ``LOG_ADD``, ...) of a linearly mapped tensor over `dims`.

    With `as_table` it is priced with the estimators of the benchmark table's library, slips included (`Kind`). The
    plan's `detail` is a `Reduction`.
    """
    check_sizes("reduction", **{f"shape[{d}]": n for d, n in enumerate(shape)})
    check_choice("reduction", "data", data)
    check_choice("reduction", "operation", operation, tuple(CODES))
    if len(set(dims)) < len(dims) or not set(dims) <= set(range(len(shape))):
        raise ValueError(f"reduction: dims are {tuple(dims)}, expected some of 0 to {len(shape) - 1}, each once")
    part, parts = _part(tuple(shape), target.machine.tiles)
    plan = _plan(part, tuple(sorted(dims)), target.machine, data, operation, as_table)
    return plan if parts == 1 else _repeated(plan, parts)


def _part(shape: tuple[int, ...], tiles: int) -> tuple[tuple[int, ...], int]:
    """A part of a tensor too large for any chip that its tiles could hold, and how many there are of it."""
    part, parts = list(shape), 1
    while math.prod(part) > tiles * LARGEST_SHARE:
        d = part.index(max(part))
        part[d], parts = part[d] - part[d] // 2, 2 * parts
    return tuple(part), parts


def _repeated(plan: Plan, parts: int) -> Plan:
    """A plan for `parts` parts, one after the other, whose data and results lie side by side."""
    found = plan.detail
    stages = tuple(
        replace(
            s, received=parts * s.received, compute=parts * s.compute, held=parts * s.held,
            received_by_all=parts * s.received_by_all,
        )
        for s in found.stages
    )  # fmt: skip
    return replace(
        plan,
        quantities={name: amount if name == "launch" else parts * amount for name, amount in plan.quantities.items()},
        temporary_bytes=parts * plan.temporary_bytes,
        tile_bytes={name: parts * amount for name, amount in plan.tile_bytes.items()},
        detail=replace(found, stages=stages, share=parts * found.share, columns=parts * found.columns),
    )


@functools.lru_cache(maxsize=1024)
def _plan(
    shape: tuple[int, ...], dims: tuple[int, ...], machine: Machine, data: str, operation: str, as_table: bool
) -> Plan:
    view, tiles = View.of(shape, dims), machine.tiles
    starts = linear_starts(view.elements, data, tiles)
    accumulated = "float" if operation in FLOAT_SUMS else data
    kind = Kind(operation, data, accumulated, as_table)
    forms, form, moved = view.stretches(starts)
    partials = _partials(forms, form, moved, view.columns)
    sources = int(partials.cuts()[1].max())
    stages: list[Stage] = []
    rotated = False
    if sources == 1 or any(_several(each) for each in forms):
        local, rotated = _local(view, starts, forms, (form, moved), kind, tiles)
        stages.append(local)
        kind = kind.after()
    kept = tuple(n for d, n in enumerate(shape) if d not in dims)
    start = start_tile(view.elements // view.columns, view.columns, kept, kind.operation, tiles)
    if sources > 1:
        stages += meet(partials, kind, tiles, start, data)
    found = Reduction(tuple(stages), sources, rotated, int(np.diff(starts).max()), view.columns, start)
    return _priced(found, len(starts) - 1, machine, SIZES[data])


def meet(
    partials: Partials, kind: Kind, tiles: int, start: int, result: str, places: Sequence[int] | None = None
) -> list[Stage]:
    """Stages that bring partial results together, to the tiles of the output at last."""
    stages: list[Stage] = []
    sources = int(partials.cuts()[1].max())
    while not enough(partials, sources, tiles):
        stage, after = intermediate(partials, kind, tiles, start)
        fewer = int(after.cuts()[1].max())
        if fewer >= sources:
            break
        stages.append(stage)
        partials, sources, kind = after, fewer, kind.after()
    last = Kind(kind.operation, kind.source, result, kind.as_table)
    return [*stages, output(partials, last, tiles, places, SIZES[result])]


def _several(boxes: Sequence[Box]) -> bool:
    """Whether a tile holds more than one value of a column."""
    if any(values > 1 for _, _, values in boxes):
        return True
    spans = sorted((c, c + n) for c, n, _ in boxes)
    return any(b > c for (_, b), (c, _) in itertools.pairwise(spans))


def _partials(forms: Sequence[list[Box]], form: np.ndarray, moved: np.ndarray, columns: int) -> Partials:
    """What tiles with these boxes, moved by so many columns each, have after the local stage."""
    merged = [_merged(each) for each in forms]
    counts = np.array([len(each) for each in merged])
    edges, first, count = np.concatenate(merged), (np.cumsum(counts) - counts)[form], counts[form]
    ends = np.cumsum(count)
    row = np.arange(int(ends[-1])) + np.repeat(first - (ends - count), count)
    own = edges[row] + np.repeat(moved, count)[:, None]
    return Partials(own, len(form), columns)


def _merged(boxes: Sequence[Box]) -> tuple[Interval, ...]:
    """The columns of some boxes, as few stretches as possible."""
    found: list[Interval] = []
    for a, b in sorted((c, c + n) for c, n, _ in boxes):
        if found and a <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], b))
        else:
            found.append((a, b))
    return tuple(found)


def _local(
    view: View, starts: Sequence[int], forms: Sequence[list[Box]], held: tuple[np.ndarray, np.ndarray], kind: Kind,
    tiles: int,
) -> tuple[Stage, bool]:  # fmt: skip
    """The local stage, in which each tile reduces its own elements; tiles with equal shares are priced once."""
    first = [min(c for c, _, _ in each) for each in forms]
    origin = np.array(first)[held[0]] + held[1]
    from_first = [tuple((c - at, n, k) for c, n, k in each) for each, at in zip(forms, first, strict=True)]
    alike: dict[tuple[Box, ...], list[int]] = {}
    members = [alike.setdefault(form, []) for form in from_first]
    for tile, i in enumerate(held[0].tolist()):
        members[i].append(tile)
    chosen = list(alike.values())
    most = max(LEAST_FORMS, MOST_ELEMENTS // int(np.diff(starts).max()))
    if len(chosen) > most:
        chosen = [chosen[i * len(chosen) // most] for i in range(most)]
    size, rotated, compute = SIZES[kind.result], False, 0.0
    results, state = np.zeros(tiles), np.zeros(tiles)
    found = _groups(view, starts, [members[0] for members in chosen])
    after = _order(found, chosen, origin.tolist(), view.columns)
    for tiles_alike, own in zip(chosen, found, strict=True):
        pieces = cut_for_workers(own, kind)
        sets = on_workers([p.work for p in pieces], kind)
        copied = after is not None and _turned(pieces, np.unique(origin[tiles_alike] - origin[tiles_alike[0]]), after)
        rotated |= copied
        compute = max(compute, sets.cycles + (ROTATED_COPY if copied else 0.0))
        results[tiles_alike] = (sets.parts + sum(len(p.columns) for p in pieces)) * size
        state[tiles_alike] = sets.vertices
    return Stage("Local", 0.0, compute, results, state, 0, len(origin)), rotated


def _groups(view: View, starts: Sequence[int], tiles: Sequence[int]) -> list[list[Group]]:
    """The groups of columns of each of `tiles`, of as many tiles at once as have no more than `MOST_ELEMENTS`."""
    found: list[list[Group]] = []
    while len(found) < len(tiles):
        some, elements = list[tuple[int, int]](), 0
        for tile in tiles[len(found) :]:
            some.append((starts[tile], starts[tile + 1]))
            elements += some[-1][1] - some[-1][0]
            if elements >= MOST_ELEMENTS:
                break
        columns = view.columns_at(np.concatenate([np.arange(a, b) for a, b in some]))
        found += groups(columns, [b - a for a, b in some])
    return found


def _order(
    found: Sequence[list[Group]], chosen: Sequence[list[int]], origin: Sequence[int], columns: int
) -> np.ndarray | None:
    """The successor of each column in the tiles' common order (-1: none); None for the natural order."""
    pairs = [_neighbours(own) for own in found]
    if all((following - names == 1).all() for names, following in pairs):
        return None
    form = {t: i for i, members in enumerate(chosen) for t in members}
    seen = list(dict.fromkeys((form[t], origin[t]) for t in sorted(form)))[:MOST_VOTES]
    moved = np.repeat(
        [at - origin[chosen[i][0]] for i, at in seen], [len(pairs[i][0]) for i, _ in seen]
    )  # fmt: skip
    names, following = (np.concatenate([pairs[i][side] for i, _ in seen]) + moved for side in (0, 1))
    order = common_order(names, following)
    after = np.full(columns, -1)
    after[list(order)] = list(order.values())
    return after


def _neighbours(own: Sequence[Group]) -> tuple[np.ndarray, np.ndarray]:
    """Columns of a tile's groups that another follows in its group, and those that follow."""
    names = np.concatenate([g.columns for g in own])
    ends = np.cumsum([len(g.columns) for g in own])
    inside = np.ones(len(names), dtype=bool)
    inside[ends - 1] = False
    at = np.flatnonzero(inside)
    return names[at], names[at + 1]


def _turned(pieces: Sequence[Group], moved: np.ndarray, after: np.ndarray) -> bool:
    """Whether the columns that one worker reduces are out of the tiles' common order.

    `moved` holds the column offsets of the tiles whose shares have this form.
    """
    names, following = _neighbours(pieces)
    return bool((after[names + moved[:, None]] != following + moved[:, None]).any())


def _priced(found: Reduction, used: int, machine: Machine, size: int) -> Plan:
    exchanges = [s for s in found.stages if s.received]
    quantities = {
        "launch": LAUNCH,
        "start": len(exchanges) * exchange_start(machine),
        "vertices": sum(s.compute for s in found.stages),
        "received": sum(s.received for s in exchanges) / machine.exchange_bytes,
    }
    return Plan(
        "reduce",
        quantities,
        frozenset({"received"}),
        exact=frozenset(quantities),
        method="reduce",
        tiles=used,
        temporary_bytes=float(max(s.held.max() for s in found.stages)) if found.stages else 0.0,
        tile_bytes={"inputs": float(found.share * size), "outputs": float(found.columns * size / machine.tiles)},
        detail=found,
    )
