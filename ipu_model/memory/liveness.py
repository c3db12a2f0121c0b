"""Bytes per tile over the program: a sweep over the steps on a few classes of tiles that always look alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

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
        spread = self.spreads[piece]
        return spread.most * self.widths[piece] if tile < spread.tiles else 0.0

    def total_bytes(self, piece: int) -> float:
        return self.spreads[piece].size * self.widths[piece]


@dataclass(frozen=True)
class Change:
    """A program that differs only in memory: nodes to recompute, sizes scaled by value, temporaries by step."""

    recompute: frozenset[str] = frozenset()
    scale: Callable[[int], float] | None = None
    temporary: Callable[[int], float] | None = None


NO_CHANGE = Change()


def spread_of(priced: Priced, value: int, made: dict[int, Spread]) -> tuple[Spread, float]:
    """Tile mapping of a value and its bytes per element (less when sharded over replicas)."""
    v = priced.program.values[value]
    width = v.tensor.width / v.shards
    return made.get(value) or priced.context.spread(v.tensor), width


def sweep(priced: Priced, tiles: int, change: Change = NO_CHANGE) -> Liveness:
    """Walk over the steps, adding what begins and removing what ends."""
    made = _made(priced)
    pieces = storages(priced, change.recompute | priced.recomputed)
    both = [spread_of(priced, p.value, made) for p in pieces]
    spreads, widths = [s for s, _ in both], [w for _, w in both]
    if change.scale is not None:
        widths = [w * change.scale(p.value) for w, p in zip(widths, pieces, strict=True)]
    edges = _classes([s.tiles for s in spreads] + [int(s.tiles) for c in priced.prices for s in c.supersteps], tiles)
    ipus, n_steps = max(1, priced.placement.ipus), len(priced.program.steps)
    counts = np.diff(np.concatenate([[0], edges]))
    always, begin, end = np.zeros((ipus, len(edges))), {}, {}
    for piece, spread, width in zip(pieces, spreads, widths, strict=True):
        upto = int(np.searchsorted(edges, min(spread.tiles, tiles))) + 1
        entry = (piece.ipu, upto, _level(spread, width, edges, upto, counts))
        if piece.always:
            always[piece.ipu, :upto] += entry[2]
        else:
            begin.setdefault(piece.first, []).append(entry)
            end.setdefault(piece.last, []).append(entry)
    temporary = _temporaries(priced, change)
    return _run(priced, always, begin, end, edges, counts, ipus, n_steps, pieces, spreads, widths, temporary)


def _temporaries(priced: Priced, change: Change) -> list[float]:
    """Bytes per tile that each step needs while it runs."""
    own = [float(c.temporary) if i < 0 else 0.0 for c, i in zip(priced.prices, priced.into, strict=True)]
    return own if change.temporary is None else [change.temporary(at) if t else 0.0 for at, t in enumerate(own)]


def _run(priced, always, begin, end, edges, counts, ipus, n_steps, pieces, spreads, widths, temporaries) -> Liveness:
    live, peak = np.zeros_like(always), np.zeros_like(always)
    interleaved = np.zeros_like(always)
    steps, worst = np.zeros((n_steps, ipus)), np.zeros(n_steps)
    for at in range(n_steps):
        for ipu, upto, level in begin.get(at, ()):
            live[ipu, :upto] += level
        now = live
        temporary = temporaries[at]
        ipu = priced.ipus[at]
        if temporary:
            used = max((int(s.tiles) for s in priced.prices[at].supersteps), default=1)
            upto = int(np.searchsorted(edges, min(max(1, used), edges[-1]))) + 1
            now = live.copy()
            now[ipu, :upto] += temporary
            pinned = float(priced.prices[at].interleaved)
            np.maximum(interleaved[ipu, :upto], pinned, out=interleaved[ipu, :upto])
        np.maximum(peak, now, out=peak)
        steps[at] = now @ counts
        worst[at] = (now + always).max()
        for ipu, upto, level in end.get(at, ()):
            live[ipu, :upto] -= level
    peak_step = int(worst.argmax()) if n_steps else 0
    highest = (always + peak).max(axis=1)
    ipu = int(highest.argmax())
    level = (always + peak)[ipu]
    tile = int(edges[int(level.argmax())]) - 1
    expand = [np.repeat(x, counts, axis=1) for x in (always, peak, interleaved)]
    return Liveness(
        expand[0], expand[1], steps, worst, peak_step, ipu, tile, pieces, spreads, widths, expand[2],
    )  # fmt: skip


def _made(priced: Priced) -> dict[int, Spread]:
    """Mappings that rules gave for their outputs."""
    found = {}
    for step, price in zip(priced.program.steps, priced.prices, strict=True):
        found.update(zip(step.outputs, price.outputs, strict=False))
    return found


def _classes(used: list[int], tiles: int) -> np.ndarray:
    """Upper ends of the tile ranges to tell apart, at most `MAX_CLASSES`; the rest is rounded up."""
    edges = np.unique(np.clip(np.array([*used, tiles]), 1, tiles))
    if len(edges) > MAX_CLASSES:
        edges = np.unique(edges[np.linspace(0, len(edges) - 1, MAX_CLASSES).round().astype(int)])
    return edges


def _level(spread: Spread, width: float, edges: np.ndarray, upto: int, counts: np.ndarray) -> np.ndarray:
    """Bytes on each class of tiles: all tiles in use nearly alike, the total kept exact."""
    level = np.full(upto, spread.most * width)
    total, first = spread.size * width, spread.most * width
    held = float(level @ counts[:upto])
    if upto > 1 and held > total:  # the first class holds the fullest tiles, the others the mean of what is left
        rest = float(counts[1:upto].sum())
        level[1:] = max(0.0, (total - first * counts[0]) / rest)
    return level
