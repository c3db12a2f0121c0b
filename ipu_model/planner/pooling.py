"""Pooling: how a window operation is split over tiles, and what a pass costs."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.conv_search import useful_splits
from ipu_model.planner.conv_vertices import slowest_fastest
from ipu_model.planner.plan import Plan
from ipu_model.target import Machine, Target

SIZES = {"half": 2, "float": 4}


@dataclass(frozen=True)
class PoolParams:
    """A pooling over an input ``[batch, channels, *field]``; `group` is the detected channel grouping of the input."""

    batch: int
    channels: int
    field: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad_lower: tuple[int, ...]
    pad_upper: tuple[int, ...]
    kind: str = "max"
    data: str = "half"
    group: int = 0

    @property
    def out(self) -> tuple[int, ...]:
        return tuple(
            (f + lo + hi - k) // s + 1
            for f, k, s, lo, hi in zip(
                self.field, self.kernel, self.stride, self.pad_lower, self.pad_upper, strict=True
            )
        )


def plan_pooling(params: PoolParams, target: Target, backward: bool = False) -> Plan:
    """Plan one pass; only batch, channels and field are split, never the window."""
    return _plan(params, target.machine, backward)


@functools.lru_cache(maxsize=1024)
def _plan(p: PoolParams, machine: Machine, backward: bool) -> Plan:
    grain = 4 if p.data == "half" else 2
    most = min(8 * grain, cdiv(p.channels, grain) * grain)
    found = [_search(p, machine, backward, group, grain) for group in range(grain, most + 1, grain)]
    return min(found, key=lambda plan: plan[0])[1]


def _search(p: PoolParams, machine: Machine, backward: bool, group: int, grain: int) -> tuple[float, Plan]:
    extents = p.field if backward else p.out
    sizes = (p.batch, cdiv(p.channels, group), *extents)
    lists = [useful_splits(n, machine.tiles) for n in sizes]
    grids = np.meshgrid(*[np.arange(a.shape[1]) for a in lists], indexing="ij")
    index = [g.ravel() for g in grids]
    used = np.prod([a[0][i] for a, i in zip(lists, index, strict=True)], axis=0)
    fits = np.nonzero(used <= machine.tiles)[0]
    shares = [a[1][i[fits]] for a, i in zip(lists, index, strict=True)]
    batch, groups, *outs = shares
    # a field may be cut one shorter on some tiles, which can change how rows fall on workers
    fields = (outs, [np.maximum(o - 1, 1) for o in outs])
    compute = np.max([_cycles(p, batch, groups, f, group // grain, backward) for f in fields], axis=0)
    size = SIZES[p.data]
    channels = groups * group * batch
    small = channels * np.prod(outs, axis=0)
    large = channels * np.prod(_extents(p, outs, backward), axis=0)
    received = (2 * large + small if backward and p.kind == "max" else large) * size
    transfer = received / machine.exchange_bytes
    cost = compute + transfer * (2 if p.group and p.group != group else 1)
    best = int(np.argmin(cost))
    plan = Plan(
        "pooling",
        {"compute": float(compute[best]), "exchange": float(transfer[best])},
        frozenset({"exchange"}),
        method="pool",
        tiles=int(used[fits][best]),
        temporary_bytes=float(received[best] + small[best] * size),
        tile_bytes={"inputs": float(large[best] * size), "outputs": float(small[best] * size)},
        detail={"group": group, "shares": [int(s[best]) for s in shares]},
    )
    return float(cost[best]), plan


def _extents(p: PoolParams, outs: list[np.ndarray], backward: bool) -> list[np.ndarray]:
    """Extent of what a tile reads; padding is not stored."""
    if backward:
        read = [-(-(o + k - s) // s) for o, k, s in zip(outs, p.kernel, p.stride, strict=True)]
        return [np.minimum(r, n) for r, n in zip(read, p.out, strict=True)]
    read = [o * s + k - s for o, k, s in zip(outs, p.kernel, p.stride, strict=True)]
    return [np.minimum(r, n) for r, n in zip(read, p.field, strict=True)]


def _cycles(
    p: PoolParams, batch: np.ndarray, groups: np.ndarray, outs: list[np.ndarray], vectors: int, backward: bool
) -> np.ndarray:
    """Tile cycles of the pooling vertex: rows of outputs dealt to six workers, one item per window position."""
    width = outs[-1]
    rows = batch * np.prod(outs[:-1], axis=0)
    positions = rows * width
    windows = math.prod(p.kernel)
    stride = math.prod(p.stride) if backward else 1
    items = -(-windows // stride)
    along = p.stride[-1] if backward else 1

    def row(n: np.ndarray) -> np.ndarray:
        m = np.maximum(-(-n // along) - 1, 0)
        inner = 7 + 5 * m if backward else (4 if p.kind == "max" else 5) + 3 * m
        item = 20 + groups * (2 + vectors * (3 + inner)) + (groups - 1) * (6 if backward else 4) + 3
        return np.where(n > 0, 13 + items * item + 2, 0)

    slow, _ = slowest_fastest(rows, width, row)
    start = 19 + (4 + positions * vectors / 6) * groups + 8
    return 13 + 6 * (start + 2 + (2 + 10 if backward else 1) + 10 + slow + 1)
