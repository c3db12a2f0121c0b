"""The search for a plan of a pooling pass."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.conv_splits import in_order, useful_splits
from ipu_model.planner.plan import Plan
from ipu_model.planner.pooling.params import PoolParams
from ipu_model.planner.pooling.vertex import LONG_POINTERS, SHORT_POINTERS, Unpacking, actual, hits, planned
from ipu_model.planner.steps import exchange_start, short_pointers
from ipu_model.target import Machine, Target

MOST_GRAINS = 8  # of channels in a group
PREFERRED = {"max": {"half": 16, "float": 8}, "sum": {"half": 16, "float": 4}, "average": {"half": 16, "float": 4}}

Part = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Pooling:
    """How a pass is split."""

    params: PoolParams  # the problem as the planner saw it
    group: int  # channels of a group
    backward: bool
    splits: tuple[int, ...]  # parts of the batch, of the channel groups and of each field dimension
    shares: tuple[int, ...]  # the largest share of each
    planned: int  # cycles of the vertex as the planner counts them
    vertex: int = 0  # cycles of the vertex on the slowest tile

    @property
    def extents(self) -> tuple[int, ...]:
        """Sizes of the result of the pass: outputs forward, gradients of the inputs backward."""
        return self.params.field if self.backward else self.params.out

    def parts(self) -> list[Part]:
        """The field of each tile: from and to in each dimension."""
        cuts = [_cuts(n, s) for n, s in zip(self.extents, self.splits[2:], strict=True)]
        return list(itertools.product(*cuts))

    def window(self, part: Part) -> Part:
        """The region that a part reads: of the inputs forward, of the output gradients backward."""
        p = self.params
        found: list[tuple[int, int]] = []
        for d, (a, b) in enumerate(part):
            k, s, pad = p.kernel[d], p.stride[d], p.pad_lower[d]
            if self.backward:
                first, last = cdiv(a + pad - k + 1, s), (b - 1 + pad) // s + 1
                found.append((max(0, first), max(max(0, first), min(p.out[d], last))))
            else:
                found.append((max(0, a * s - pad), min(p.field[d], (b - 1) * s + k - pad)))
        return tuple(found)


def _cuts(n: int, parts: int) -> list[tuple[int, int]]:
    edges = [i * n // parts for i in range(parts + 1)]
    return [(a, b) for a, b in itertools.pairwise(edges) if b > a]


def plan_pooling(params: PoolParams, target: Target, backward: bool = False) -> Plan:
    """Plan one pass; batch, channels and field are split, never the window.

    The plan's `detail` is a `Pooling`; quantities are those of the pass alone, all of its data coming from elsewhere.
    """
    return _plan(params, target.machine, backward)


@functools.lru_cache(maxsize=1024)
def _plan(p: PoolParams, machine: Machine, backward: bool) -> Plan:
    found = split(p, machine, backward)
    pointers = SHORT_POINTERS if short_pointers(machine) else LONG_POINTERS
    found = dataclasses.replace(found, vertex=_slowest(found, pointers))
    large, small = read_and_written(found)
    both = backward and p.kind == "max"
    received = 2 * large + small if both else large
    quantities = {
        "vertex": float(found.vertex),
        "exchange": received / machine.exchange_bytes,
        "start": exchange_start(machine),
    }
    return Plan(
        "pooling", quantities, frozenset({"exchange"}), exact=frozenset(quantities), method="pool",
        tiles=int(np.prod(found.splits)), temporary_bytes=float(received + small),
        tile_bytes={"inputs": float(large), "outputs": float(small)}, detail=found,
    )  # fmt: skip


def read_and_written(found: Pooling) -> tuple[int, int]:
    """Bytes of the largest window and of the largest part that it makes."""
    channels = found.shares[0] * found.shares[1] * found.group * found.params.size
    parts = found.parts()
    largest = max(_area(found.window(part)) for part in parts)
    return channels * largest, channels * max(_area(part) for part in parts)


def _area(part: Part) -> int:
    return int(np.prod([b - a for a, b in part]))


def _slowest(found: Pooling, pointers: Unpacking) -> int:
    """Cycles on the slowest tile; parts that meet data alike are priced once."""
    p, (batch, groups) = found.params, found.shares[:2]
    cuts = [_cuts(n, s) for n, s in zip(found.extents, found.splits[2:], strict=True)]
    forms = [{hits(p, d, found.backward)[a:b] for a, b in each} for d, each in enumerate(cuts)]
    vectors = found.group // p.vector
    return max(
        actual(p.kind, form, batch, groups, vectors, found.backward, pointers) for form in itertools.product(*forms)
    )


def split(p: PoolParams, machine: Machine, backward: bool) -> Pooling:
    """The split of one pass.

    Groupings up to that of the input are compared first; the preferred one is taken although it has to be rearranged
    if it costs less than four thirds. The backward pass starts from the grouping of the forward plan.
    """
    if backward:
        seen, known = p, split(p, machine, backward=False).group
    else:
        seen, known = p.folded(), p.group
    grain = p.vector
    most = max(1, min(cdiv(known or MOST_GRAINS * grain, grain), cdiv(seen.channels, grain), MOST_GRAINS))
    options = [_search(seen, n * grain, known, machine, backward) for n in range(1, most + 1)]
    cost, found = min(options, key=lambda option: option[0])
    preferred = PREFERRED[p.kind][p.data]
    if found.group < preferred <= seen.channels:
        other, wide = _search(seen, preferred, known, machine, backward)
        if other < 4 * cost // 3:
            return wide
    return found


def _search(p: PoolParams, group: int, known: int, machine: Machine, backward: bool) -> tuple[float, Pooling]:
    if not backward:
        p = p.with_channels_along(group)
    extents = p.field if backward else p.out
    sizes = (p.batch, cdiv(p.channels, group), *extents)
    lists = [useful_splits(n, machine.tiles) for n in sizes]
    splits, (batch, groups, *outs) = zip(*in_order(lists, sizes, machine.tiles), strict=True)
    used = np.prod(splits, axis=0)
    vectors = group // p.vector
    compute = planned(p, batch, groups, outs, vectors, backward)
    for d, extent in enumerate(extents):
        # tiles with one position less may have rows that are shared less evenly among the workers
        shorter = [np.maximum(o - 1, 1) if i == d else o for i, o in enumerate(outs)]
        less = planned(p, batch, groups, shorter, vectors, backward)
        compute = np.where(extent % outs[d] != 0, np.maximum(compute, less), compute)
    moved = _planned_bytes(p, batch, groups * group, outs, backward) // machine.exchange_bytes
    cost = compute + moved * (2 if known and group != known else 1)
    work = np.prod(sizes) * group * p.windows // used
    least = outs[0] * 30 + -(-work // p.vector) * (5 if backward and p.kind == "max" else 3)
    cost = np.where(cost < least, np.inf, cost)
    best = int(np.argmin(cost))
    shares = tuple(int(x[best]) for x in (batch, groups, *outs))
    found = Pooling(p, group, backward, tuple(int(s[best]) for s in splits), shares, int(compute[best]))
    return float(cost[best]), found


def _planned_bytes(
    p: PoolParams, batch: np.ndarray, channels: np.ndarray, outs: Sequence[np.ndarray], backward: bool
) -> np.ndarray:
    """Bytes that the planner believes a tile to receive; padding counts as data."""
    strides = (1,) * len(outs) if backward else p.stride
    window = np.prod([o * s + k - s for o, s, k in zip(outs, strides, p.kernel, strict=True)], axis=0)
    each = batch * channels * p.size
    if backward and p.kind == "max":
        return each * (2 * window + np.prod(outs, axis=0))
    return each * window
