"""Liveness: bytes per tile at each step, by a sweep over the steps on a few classes of equally loaded tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ipu_model.costs import OpCost
from ipu_model.memory.storage import Storage, storages
from ipu_model.partition import Spread
from ipu_model.pricing import Priced

MAX_CLASSES = 96


@dataclass
class Liveness:
    """Result of the sweep; byte arrays are [ipu, tile].

    Attributes
    ----------
    always : variables that live for the whole program
    peak : highest not-always-live level of each tile, which need not be at one time
    steps : [step, ipu] not-always-live bytes over all tiles while each step runs
    worst : [step] bytes on the fullest tile of any IPU, always-live variables included
    peak_step, peak_ipu, peak_tile : where the highest level is
    pieces, sizes : the storages and their bytes on the fullest tile
    interleaved : highest level of operands that must lie in interleaved memory
    """

    always: np.ndarray
    peak: np.ndarray
    steps: np.ndarray
    worst: np.ndarray
    peak_step: int
    peak_ipu: int
    peak_tile: int
    pieces: list[Storage]
    spreads: list[Spread]
    widths: list[float]
    interleaved: np.ndarray

    def bytes_on(self, piece: int, tile: int) -> float:
        """Bytes of a piece on a tile: those of its fullest tile where it lies, else 0."""
        spread = self.spreads[piece]
        return spread.most * self.widths[piece] if spread.first <= tile < spread.end else 0.0

    def total_bytes(self, piece: int) -> float:
        """Bytes of a piece over all tiles."""
        return self.spreads[piece].size * self.widths[piece]


@dataclass(frozen=True)
class Change:
    """Changes of a program's memory: nodes to recompute, a size factor for each value, and other prices by step."""

    recompute: frozenset[str] = frozenset()
    scale: Callable[[int], float] | None = None
    price: Callable[[int], OpCost | None] | None = None


NO_CHANGE = Change()


def spread_of(priced: Priced, value: int, made: dict[int, Spread]) -> tuple[Spread, float]:
    """Tile mapping of a value and its bytes per element (less when sharded over replicas)."""
    v = priced.program.values[value]
    width = v.tensor.width / v.shards
    return made.get(value) or priced.context.spread(v.tensor), width


def sweep(priced: Priced, tiles: int, change: Change = NO_CHANGE) -> Liveness:
    """Sweep over the steps: add the pieces of memory whose life begins there, remove those whose life ends."""
    made = _output_mappings(priced, change)
    pieces = storages(priced, change.recompute | priced.recomputed)
    both = [spread_of(priced, p.value, made) for p in pieces]
    spreads, widths = [s for s, _ in both], [w for _, w in both]
    if change.scale is not None:
        widths = [w * change.scale(p.value) for w, p in zip(widths, pieces, strict=True)]
    needs = _needs(priced, change)
    ends = [n for used in (*spreads, *needs) for n in (used.first, used.end) if n]
    edges = _classes(ends, tiles)
    counts = np.diff(np.concatenate([[0], edges]))
    levels = _Levels(
        np.zeros((max(1, priced.placement.ipus), len(edges))), edges, counts, needs,
        [frozenset(s.outputs) for s in priced.program.steps],
    )  # fmt: skip
    for piece, spread, width in zip(pieces, spreads, widths, strict=True):
        where = levels.classes(spread.first, spread.end)
        levels.add(piece, where, _level(spread, width, counts[where]))
    peak, interleaved, steps, worst = levels.run(priced.ipus)
    always = levels.always
    peak_step = int(worst.argmax()) if len(worst) else 0
    ipu = int((always + peak).max(axis=1).argmax())
    tile = int(edges[int((always + peak)[ipu].argmax())]) - 1
    expand = [np.repeat(x, counts, axis=1) for x in (always, peak, interleaved)]
    return Liveness(expand[0], expand[1], steps, worst, peak_step, ipu, tile, pieces, spreads, widths, expand[2])


@dataclass(frozen=True)
class Need:
    """Temporary bytes per tile of a step: all, those still live when outputs are written, and the interleaved ones."""

    computing: float = 0.0
    finishing: float = 0.0
    interleaved: float = 0.0
    first: int = 0
    end: int = 0


def need_of(priced: Priced, at: int, price: OpCost | None = None) -> Need:
    """Temporary memory of a step beside its operands and outputs, by its own price or the given one."""
    price = price or priced.prices[at]
    if priced.into[at] >= 0 or not price.temporary:
        return Need()
    whole = float(price.temporary)
    rest = whole if price.beside_outputs is None else min(whole, float(price.beside_outputs))
    tiles = max((int(s.tiles) for s in price.supersteps), default=1)
    first = priced.context.tiles if priced.program.steps[at].op.attributes.io_tiles else 0
    return Need(whole, rest, float(price.interleaved), first, first + tiles)


def _needs(priced: Priced, change: Change) -> list[Need]:
    other = change.price or (lambda _: None)
    return [need_of(priced, at, other(at)) for at in range(len(priced.program.steps))]


Entry = tuple[int, slice, np.ndarray]  # IPU, classes of tiles in use, bytes on each


@dataclass
class _Levels:
    """Bytes on each class of tiles, [ipu, class], and the pieces of memory that begin and end with each step."""

    always: np.ndarray
    edges: np.ndarray
    counts: np.ndarray
    needs: list[Need]
    made: list[frozenset[int]]
    begin: dict[int, list[Entry]] = field(default_factory=dict)
    results: dict[int, list[Entry]] = field(default_factory=dict)
    end: dict[int, list[Entry]] = field(default_factory=dict)

    def classes(self, first: int, end: int) -> slice:
        """The classes that cover tiles `first` to `end` (exclusive)."""
        upto = int(np.searchsorted(self.edges, min(max(1, end), self.edges[-1]))) + 1
        begin = int(np.searchsorted(self.edges, first, side="right")) if first else 0
        return slice(min(begin, upto - 1), upto)

    def add(self, piece: Storage, where: slice, level: np.ndarray) -> None:
        """Enter a piece of memory."""
        if piece.always:
            self.always[piece.ipu, where] += level
            return
        result = piece.first < len(self.made) and piece.value in self.made[piece.first]
        entry = (piece.ipu, where, level)
        (self.results if result else self.begin).setdefault(piece.first, []).append(entry)
        self.end.setdefault(piece.last, []).append(entry)

    def run(self, ipus: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Peak and interleaved peak by class, bytes by step, and the fullest tile of each step."""
        live, peak, interleaved = (np.zeros_like(self.always) for _ in range(3))
        steps, worst = np.zeros((len(self.needs), len(live))), np.zeros(len(self.needs))
        for at, need in enumerate(self.needs):
            _add(live, self.begin.get(at, ()))
            now = live
            ipu = ipus[at]
            if need.computing:
                used = self.classes(need.first, need.end)
                before = live.copy()
                before[ipu, used] += need.computing
                np.maximum(interleaved[ipu, used], need.interleaved, out=interleaved[ipu, used])
                _add(live, self.results.get(at, ()))
                now = live.copy()
                now[ipu, used] += need.finishing
                np.maximum(now, before, out=now)
            else:
                _add(live, self.results.get(at, ()))
            np.maximum(peak, now, out=peak)
            steps[at] = now @ self.counts
            worst[at] = (now + self.always).max()
            _add(live, self.end.get(at, ()), -1.0)
        return peak, interleaved, steps, worst


def _add(live: np.ndarray, entries: Iterable[Entry], sign: float = 1.0) -> None:
    for ipu, where, level in entries:
        live[ipu, where] += sign * level


def _output_mappings(priced: Priced, change: Change) -> dict[int, Spread]:
    """Tile mappings that cost rules gave for the outputs of steps, by value."""
    found, other = {}, change.price or (lambda _: None)
    for at, (step, price) in enumerate(zip(priced.program.steps, priced.prices, strict=True)):
        changed = other(at)
        outputs = changed.outputs if changed and changed.outputs else price.outputs
        found.update(zip(step.outputs, outputs, strict=False))
    return found


def _classes(used: list[int], tiles: int) -> np.ndarray:
    """Upper ends of the tile ranges to tell apart, at most `MAX_CLASSES`; the rest is rounded up."""
    edges = np.unique(np.clip(np.array([*used, tiles]), 1, tiles))
    if len(edges) > MAX_CLASSES:
        edges = np.unique(edges[np.linspace(0, len(edges) - 1, MAX_CLASSES).round().astype(int)])
    return edges


def _level(spread: Spread, width: float, counts: np.ndarray) -> np.ndarray:
    """Bytes on each class of tiles in use, of so many tiles: all nearly alike, the total kept exact."""
    level = np.full(len(counts), spread.most * width)
    total, first = spread.size * width, spread.most * width
    held = float(level @ counts)
    if len(counts) > 1 and held > total:  # the first class holds the fullest tiles, the others the mean of what is left
        rest = float(counts[1:].sum())
        level[1:] = max(0.0, (total - first * counts[0]) / rest)
    return level
