"""Liveness: bytes per tile at each step, by a sweep over the steps on a few classes of equally loaded tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ipu_model.cost import cdiv
from ipu_model.costs import OpCost
from ipu_model.memory.addresses import highest, unused
from ipu_model.memory.stash import stashed
from ipu_model.memory.storage import Allocation, Storage, allocated
from ipu_model.partition import Spread
from ipu_model.pricing import Priced
from ipu_model.target import Machine

MAX_CLASSES = 96
ROTATED_ROLES = ("weight", "optimizer_state")
BLOCK = 1024  # steps in a table


@dataclass
class Liveness:
    """Result of the sweep; byte arrays are [ipu, tile]."""

    always: np.ndarray  # variables that live for the whole program
    peak: np.ndarray  # highest not-always-live level of each tile, which need not be at one time
    steps: np.ndarray  # [step, ipu] not-always-live bytes over all tiles while each step runs
    worst: np.ndarray  # [step] bytes on the fullest tile of any IPU, always-live variables included
    # where the highest level is
    peak_step: int
    peak_ipu: int
    peak_tile: int
    # the storages, and where each is with how many bytes an element
    pieces: Sequence[Storage]
    spreads: list[Spread]
    widths: list[float]
    interleaved: np.ndarray  # highest level of operands that must lie in interleaved memory

    def bytes_on(self, piece: int, tile: int) -> float:
        """Bytes of a piece on a tile: those of its fullest tile where it lies, else 0."""
        spread = self.spreads[piece]
        return spread.most * self.widths[piece] if spread.first <= tile < spread.end else 0.0

    def addresses(self, fixed: np.ndarray, machine: Machine) -> np.ndarray:
        """Bytes of each tile up to the highest address, with `fixed` bytes beside the variables."""
        sizes = [s.most * w for p, s, w in zip(self.pieces, self.spreads, self.widths, strict=True) if p.always]
        total = self.always + self.peak + fixed
        return highest(total, self.interleaved, machine, unused(np.array(sizes)))

    def total_bytes(self, piece: int) -> float:
        """Bytes of a piece over all tiles."""
        return self.spreads[piece].size * self.widths[piece]


@dataclass(frozen=True)
class Change:
    """Changes of a program's memory: nodes to recompute, a size factor for each value, and other prices by step."""

    recompute: frozenset[str] = frozenset()
    scale: Callable[[int], float] | None = None
    prices: Mapping[int, OpCost] = field(default_factory=dict[int, OpCost])


NO_CHANGE = Change()


def spread_of(priced: Priced, value: int, made: dict[int, Spread]) -> tuple[Spread, float]:
    """Tile mapping of a value and its bytes per element (less when sharded over replicas).

    The library starts each vector that is broadcast (biases, scales) on another tile, by a hash: the many of a
    network lie evenly, as each does here.
    """
    v = priced.program.values[value]
    width = v.tensor.width / v.shards
    found, tiles = made.get(value) or priced.context.spread(v.tensor), priced.context.tiles
    if v.role in ROTATED_ROLES and found.tiles < tiles and max(v.tensor.shape, default=1) == v.tensor.size:
        found = Spread(tiles, cdiv(found.size, tiles), found.size)
    return found, width


@dataclass(frozen=True)
class Demand:
    """What a program needs without changes: its storages, tile mappings of values that rules gave, needs of steps."""

    memory: Allocation
    mappings: dict[int, Spread]
    needs: list[Need]
    places: dict[int, tuple[Spread, float]] = field(default_factory=dict[int, tuple[Spread, float]])

    def place(self, priced: Priced, value: int) -> tuple[Spread, float]:
        """Tile mapping of a value and its bytes per element, looked up once for all sweeps."""
        found = self.places.get(value)
        if found is None:
            found = self.places[value] = spread_of(priced, value, self.mappings)
        return found


def demand(priced: Priced) -> Demand:
    """The demand of a priced program, which sweeps with different changes share."""
    mappings: dict[int, Spread] = {}
    for step, price in zip(priced.program.steps, priced.prices, strict=True):
        mappings.update(zip(step.outputs, price.outputs, strict=False))
    needs = [need_of(priced, at, price) for at, price in enumerate(priced.prices)]
    return Demand(allocated(priced), mappings, needs)


def sweep(priced: Priced, tiles: int, change: Change = NO_CHANGE, known: Demand | None = None) -> Liveness:
    """Sweep over the steps: add the pieces of memory whose life begins there, remove those whose life ends.

    `known` is the demand of the program where it is known already.
    """
    known = known or demand(priced)
    pieces = known.memory.recomputing(change.recompute | priced.recomputed)
    pieces = [*pieces, *stashed(priced, pieces, known.memory)]
    made, needs = dict[int, Spread](), list(known.needs)
    for at, price in change.prices.items():
        made.update(zip(priced.program.steps[at].outputs, price.outputs, strict=False))
        needs[at] = need_of(priced, at, price)
    both = [spread_of(priced, p.value, made) if p.value in made else known.place(priced, p.value) for p in pieces]
    spreads, widths = [s for s, _ in both], [w * p.copies for (_, w), p in zip(both, pieces, strict=True)]
    if change.scale is not None:
        widths = [w * change.scale(p.value) for w, p in zip(widths, pieces, strict=True)]
    ends = [n for used in (*spreads, *needs) for n in (used.first, used.end) if n]
    edges = _classes(ends, tiles)
    levels = _Levels(max(1, priced.placement.ipus), edges)
    peak, interleaved, steps, worst = levels.run(priced, pieces, spreads, widths, needs)
    always = levels.always
    peak_step = int(worst.argmax()) if len(worst) else 0
    ipu = int((always + peak).max(axis=1).argmax())
    tile = int(edges[int((always + peak)[ipu].argmax())]) - 1
    expand = [np.repeat(x, levels.counts, axis=1) for x in (always, peak, interleaved)]
    return Liveness(expand[0], expand[1], steps, worst, peak_step, ipu, tile, pieces, spreads, widths, expand[2])


@dataclass(frozen=True)
class Need:
    """Temporary bytes per tile of a step: all, those still live when outputs are written, and the interleaved ones."""

    computing: float = 0.0
    finishing: float = 0.0
    interleaved: float = 0.0
    first: int = 0
    end: int = 0


NOTHING = Need()


def need_of(priced: Priced, at: int, price: OpCost) -> Need:
    """Temporary memory of a step with this price, beside its operands and outputs."""
    if priced.into[at] >= 0 or not price.temporary:
        return NOTHING
    whole = float(price.temporary)
    rest = whole if price.beside_outputs is None else min(whole, float(price.beside_outputs))
    tiles = max((int(s.tiles) for s in price.supersteps), default=1)
    first = priced.context.tiles if priced.program.steps[at].op.attributes.io_tiles else 0
    return Need(whole, rest, float(price.interleaved), first, first + tiles)


class _Levels:
    """Bytes on each class of tiles while each step runs.

    What begins and ends is entered in tables [step, IPU, class] as the differences to the class before, which are
    then summed up over classes and steps: a block of steps at a time, so that tables of long programs stay small.
    """

    def __init__(self, ipus: int, edges: np.ndarray) -> None:
        self.edges = edges
        self.bounds = np.concatenate([[0], edges])  # tiles before each class, and all of them
        self.counts = np.diff(self.bounds)
        self.always = np.zeros((ipus, len(edges)))

    def classes(self, first: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The classes (first, end) that cover tiles `first` to `end` (exclusive)."""
        upto = np.searchsorted(self.edges, np.clip(end, 1, self.edges[-1])) + 1
        begin = np.where(first > 0, np.searchsorted(self.edges, first, side="right"), 0)
        return np.minimum(begin, upto - 1), upto

    def entered(self, spreads: Sequence[Spread], widths: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
        """Of each piece the places in a row of a table, and what is entered there."""
        rows = np.array([(s.first, s.end, s.most, s.size) for s in spreads], float).reshape(-1, 4)
        low, high = self.classes(rows[:, 0], rows[:, 1])
        fullest, total = rows[:, 2] * np.asarray(widths), rows[:, 3] * np.asarray(widths)
        used = self.bounds[high] - self.bounds[low]
        # the first class holds the fullest tiles, the others the mean of what is left
        others = np.maximum(1, used - self.counts[low])
        mean = np.maximum(0.0, (total - fullest * self.counts[low]) / others)
        rest = np.where((high - low > 1) & (fullest * used > total), mean, fullest)
        return np.stack([low, low + 1, high], 1), np.stack([fullest, rest - fullest, -rest], 1)

    def run(
        self, priced: Priced, pieces: Sequence[Storage], spreads: Sequence[Spread], widths: Sequence[float],
        needs: Sequence[Need],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        """Peak and interleaved peak by class, bytes by step, and the fullest tile of each step."""
        count, (ipus, wide) = len(needs), self.always.shape
        places, values = self.entered(spreads, widths)
        lives = np.array([(p.first, p.last, p.ipu, p.always) for p in pieces], int).reshape(-1, 4)
        always, at = lives[:, 3] == 1, lives[:, 2, None]
        self.always += _table([lives[:, 0] * 0], at, places, values, (1, ipus, wide), always)[0]
        steps = priced.program.steps
        result = np.array([p.first < count and p.value in steps[p.first].outputs for p in pieces], bool)
        working = [k for k, need in enumerate(needs) if need.computing]
        busy, used = np.array(working, int), [needs[k] for k in working]
        low, high = self.classes(np.array([n.first for n in used], int), np.array([n.end for n in used], int))
        homes = np.array([priced.ipus[k] for k in working], int)
        ends = np.stack([low, high], 1)

        peak, interleaved, before = (np.zeros((ipus, wide)) for _ in range(3))
        for k, need in enumerate(used):
            if need.interleaved:
                row = interleaved[homes[k], low[k] : high[k]]
                np.maximum(row, need.interleaved, out=row)
        totals, worst = np.zeros((count, ipus)), np.zeros(count)
        for begin in range(0, count, BLOCK):
            shape = (min(BLOCK, count - begin), ipus, wide)

            def table(when: np.ndarray, which: np.ndarray, shape: tuple[int, ...] = shape, begin: int = begin):
                return _table([when - begin], at, places, values, shape, which & ~always)

            begun, results, ended = (
                table(lives[:, 0], ~result), table(lives[:, 0], result), table(lives[:, 1], ~always),
            )  # fmt: skip
            after = before + np.cumsum(begun + results - _later(ended), axis=0)
            computing, finishing = (
                _table([busy - begin], homes[:, None], ends, np.outer(x, (1, -1)), shape, busy >= 0)
                for x in ([n.computing for n in used], [n.finishing for n in used])
            )
            now = np.maximum(after + finishing, after - results + computing)
            np.maximum(peak, now.max(axis=0), out=peak)
            totals[begin : begin + shape[0]] = now @ self.counts
            worst[begin : begin + shape[0]] = (now + self.always).max(axis=(1, 2))
            before = after[-1] - ended[-1]
        return peak, interleaved, totals, worst


def _later(table: np.ndarray) -> np.ndarray:
    """A table whose rows count from the next step on."""
    return np.concatenate([np.zeros_like(table[:1]), table[:-1]])


def _table(
    when: list[np.ndarray], ipu: np.ndarray, places: np.ndarray, values: np.ndarray, shape: tuple[int, ...],
    which: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """The table [step, IPU, class] of what `which` of the pieces enter: differences between classes, summed up."""
    rows, ipus, wide = shape
    (step,) = when
    chosen = which & (step >= 0) & (step < rows)
    flat = (step[chosen, None] * ipus + ipu[chosen]) * (wide + 1) + places[chosen]
    found = np.bincount(flat.ravel(), values[chosen].ravel(), rows * ipus * (wide + 1))
    return np.cumsum(found.reshape(rows, ipus, wide + 1), axis=2)[:, :, :wide]


def _classes(used: list[int], tiles: int) -> np.ndarray:
    """Upper ends of the tile ranges to tell apart, at most `MAX_CLASSES`; the rest is rounded up."""
    edges = np.unique(np.clip(np.array([*used, tiles]), 1, tiles))
    if len(edges) > MAX_CLASSES:
        edges = np.unique(edges[np.linspace(0, len(edges) - 1, MAX_CLASSES).round().astype(int)])
    return edges
