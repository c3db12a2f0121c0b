"""Placement of the parts of a pooling on tiles, and how much of a part's input already lies on its tile.

As in the library, each part goes to the free tile that holds most of its window.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ipu_model.planner.pooling.params import PoolParams
from ipu_model.planner.pooling.plan import Pooling
from ipu_model.planner.reduction.held import linear_starts

Box = tuple[int, int, int, int, int, int]  # channels, rows and columns, from and to, of the folded batch
NOTHING = (0, 0, 0, 0, 0, 0)
Holders = Callable[[Box], Mapping[int, int]]  # elements of a box by the tile that holds them


@dataclass(frozen=True)
class Placed:
    """A placed pass: for each part its tile, the boxes that it reads and the boxes that it produces."""

    tiles: tuple[int, ...]
    windows: tuple[Box, ...]
    made: tuple[Box, ...]


def linear(channels: int, field: Sequence[int], group: int, data: str, tiles: int) -> Holders:
    """Holders of a tensor ``[channels / group, *field, group]`` dealt out in order."""
    height, width = field
    blocks = -(-channels // group)
    starts = linear_starts(blocks * group * height * width, data, tiles)

    def holders(box: Box) -> dict[int, int]:
        c0, c1, y0, y1, x0, x1 = box
        found: dict[int, int] = defaultdict(int)
        for block, y in itertools.product(range(c0 // group, -(-c1 // group)), range(y0, y1)):
            share = min(c1, (block + 1) * group) - max(c0, block * group)
            begin = (block * height + y) * width * group + x0 * group
            end = begin + (x1 - x0) * group
            tile = bisect.bisect_right(starts, begin) - 1
            while begin < end:
                stop = min(end, starts[tile + 1])
                found[tile] += (stop - begin) * share // group
                begin, tile = stop, tile + 1
        return found

    return holders


def parts_of(placed: Placed) -> Holders:
    """Holders of the results of a pass: each tile holds its part."""
    by_channels: dict[tuple[int, int], list[tuple[int, Box]]] = defaultdict(list)
    for tile, box in zip(placed.tiles, placed.made, strict=True):
        by_channels[box[:2]].append((tile, box))

    def holders(box: Box) -> dict[int, int]:
        found: dict[int, int] = {}
        for channels, members in by_channels.items():
            if channels[1] <= box[0] or channels[0] >= box[1]:
                continue
            for tile, other in members:
                if common := overlap(box, other):
                    found[tile] = found.get(tile, 0) + common
        return found

    return holders


def overlap(a: Box, b: Box) -> int:
    """Elements that two boxes share."""
    size = 1
    for i in (0, 2, 4):
        size *= max(0, min(a[i + 1], b[i + 1]) - max(a[i], b[i]))
    return size


def volume(box: Box) -> int:
    """Elements of a box."""
    return overlap(box, box)


def boxes(found: Pooling) -> Iterator[tuple[Box, Box]]:
    """Input and output box of each part, in the order in which parts are placed: channel groups, then the field."""
    channels = found.params.channels * found.params.batch
    groups = -(-channels // found.group)
    share = found.splits[0] * found.splits[1]
    for i in range(share):
        c0, c1 = (
            min(channels, i * groups // share * found.group),
            min(channels, (i + 1) * groups // share * found.group),
        )
        for part in found.parts():
            (y0, y1), (x0, x1) = part
            (v0, v1), (u0, u1) = found.window(part)
            yield (c0, c1, v0, v1, u0, u1), (c0, c1, y0, y1, x0, x1)


def unfolded(box: Box, p: PoolParams, planned: PoolParams, made: bool) -> list[Box]:
    """The boxes of the problem `p` for a box of its folded form (`PoolParams.folded`, `with_channels_along`).

    In that form the rows of windows, then groups of channels, follow one another along one row.
    """
    if planned.field == p.field:
        return [box]
    c0, c1, y0, y1, x0, x1 = box
    height, (rows, width) = (1, p.out) if made else (p.stride[0], p.field)
    found: list[Box] = []
    for piece in range(x0 // width, -(-x1 // width)):
        group, row = divmod(piece, rows // height)
        first, last = max(x0 - piece * width, 0), min(x1 - piece * width, width)
        c, y = group * planned.channels, row * height
        new = (c + c0, c + c1, y + y0, y + y1, first, last)
        before = found[-1] if found else new
        if row and (before[3], *before[4:]) == (new[2], 0, width) == (new[2], first, last):
            found[-1] = (*new[:2], before[2], *new[3:])
        else:
            found.append(new)
    return found


def place(found: Pooling, p: PoolParams, holders: Holders, held: Sequence[int]) -> Placed:
    """Place each part on the free tile that holds most of its window; `held` is the number of elements on each tile.

    Parts of a folded problem are several boxes of `p`, on one tile.
    """
    free = set(range(len(held)))
    spare = iter(sorted(free, key=lambda t: (held[t], t)))
    rows: list[tuple[int, Box, Box]] = []
    for window, made in boxes(found):
        here: Counter[int] = Counter()
        pieces = [unfolded(window, p, found.params, made=False), unfolded(made, p, found.params, made=True)]
        for box in pieces[0]:
            here.update(holders(box))
        near = [(-n, held[t], t) for t, n in here.items() if t in free]
        tile = min(near)[2] if near else next(t for t in spare if t in free)
        free.remove(tile)
        rows += [(tile, read, box) for read, box in itertools.zip_longest(*pieces, fillvalue=NOTHING)]
    tiles, windows, parts = zip(*rows, strict=True)
    return Placed(tiles, windows, parts)


@dataclass(frozen=True)
class Traffic:
    """Elements that the busiest tile receives and copies, by step."""

    remote: int
    local: int


def gathered(reads: Sequence[tuple[Placed, Sequence[Box], Holders]]) -> Traffic:
    """Traffic of gathering the given boxes on the tiles that read them."""
    remote: dict[int, int] = defaultdict(int)
    local: dict[int, int] = defaultdict(int)
    for placed, wanted, holders in reads:
        for tile, box in zip(placed.tiles, wanted, strict=True):
            here = holders(box).get(tile, 0)
            local[tile] += here
            remote[tile] += volume(box) - here
    return Traffic(max(remote.values()), max(local.values()))


@dataclass(frozen=True)
class Run:
    """Both passes of a pooling benchmark on the tiles; elements."""

    forward: Placed
    backward: Placed
    window: Traffic
    gradient: Traffic
    windows: Traffic


def run(p: PoolParams, forward: Pooling, backward: Pooling, tiles: int) -> Run:
    """Place both passes: the input is mapped linearly, the gradient is first brought to the layout of the output."""
    channels = p.channels * p.batch
    group = p.group or forward.group
    source = linear(channels, p.field, group, p.data, tiles)
    held = _dealt(channels * p.field[0] * p.field[1], p.data, tiles)
    first = place(forward, p, source, held)
    outputs = parts_of(first)
    wide = 16 if p.channels % 16 == 0 else 1
    arriving = linear(channels, p.out, wide, p.data, tiles)
    kept = [0] * tiles
    for tile, box in zip(first.tiles, first.made, strict=True):
        kept[tile] += volume(box)
    second = place(backward, p, outputs, kept)
    reads = [(second, second.windows, outputs)]
    if p.kind == "max":
        reads += [(second, second.made, source), (second, second.windows, outputs)]
    return Run(
        first,
        second,
        gathered([(first, first.windows, source)]),
        gathered([(first, first.made, arriving)]),
        gathered(reads),
    )


def _dealt(elements: int, data: str, tiles: int) -> list[int]:
    shares = [b - a for a, b in itertools.pairwise(linear_starts(elements, data, tiles))]
    return shares + [0] * (tiles - len(shares))
