"""Adding up the partial results that several tiles hold for the same outputs of a convolution."""

from __future__ import annotations

import functools

import numpy as np

from ipu_model.target import Machine

Array = np.ndarray


TWO_STAGES, THREE_STAGES = 16, 125  # partial results from which on there are so many stages


def stage_count(depth: int) -> int:
    """Stages that cost a step of their own: none, one, or two and more counted as two."""
    return 0 if depth == 1 else 1 if depth < TWO_STAGES else 2


@functools.cache
def _table(most: int) -> Array:
    """For each depth up to `most`: partials added by a tile in the first, second and last stage (1 for no stage)."""
    depth = np.maximum(1, np.arange(most + 1))
    second_of_two, cost = _cheapest(depth, np.sqrt(depth), depth.astype(float))
    second_of_three, _ = _cheapest(depth, depth ** (2 / 3), cost)
    left = np.where(depth < TWO_STAGES, depth, np.where(depth < THREE_STAGES, second_of_two, second_of_three))
    first = -(-depth // left)
    rest = -(-depth // first)
    second = -(-rest // np.where(depth < THREE_STAGES, rest, second_of_two[left]))
    return np.stack([first, second, -(-rest // second)])


def _cheapest(depth: Array, root: Array, cost: Array) -> tuple[Array, Array]:
    """The number next to `root` that leaves the least `cost` after a stage that brings `depth` down to it."""
    below = np.maximum(1, (root + 1e-9).astype(np.int64))
    above = np.minimum(below + 1, len(cost) - 1)
    costs = [depth / n + cost[n] for n in (below, above)]
    return np.where(costs[0] <= costs[1], below, above), np.minimum(*costs)


def stages(depth: Array) -> Array:
    """Partial results that a tile adds in the first, second and last stage, 1 where there is no such stage."""
    return _table(1 << int(np.max(depth, initial=1)).bit_length())[:, depth]


def exchanged(parts: Array, stages: Array) -> Array:
    """Partials received by a tile in all stages after the first (elements)."""
    first, second, _ = stages
    one = -(-parts // first)
    two = -(-one // second)
    return np.where(first > 1, one, 0) + np.where(second > 1, two, 0)


def temporary(parts: Array, stages: Array, partial_bytes: int) -> Array:
    """Bytes that intermediate results need."""
    first, _, _ = stages
    return np.where(first > 1, -(-parts // first), 0) * partial_bytes


def cycles(
    parts: Array, depth: Array, stages: Array, partials: str, output: str, machine: Machine, whole: bool = False
) -> Array:
    """Compute cycles of all stages on the fullest tile; 0 where nothing is added up.

    Where results fill no whole vectors another vertex runs, up to twice as long; with `whole` they are filled up.
    """
    first, second, last = stages
    if whole:
        vector = 8 if partials == "half" else 4
        parts = -(-parts // (depth * vector)) * depth * vector
    o1 = -(-(-(-parts // depth) * depth) // first)
    o2 = -(-o1 // second)
    o3 = -(-o2 // last)
    total = np.where(last > 1, _one(last, o3, partials, output, machine), 0)
    if np.any(first > 1):
        total = total + np.where(first > 1, _one(first, o1, partials, partials, machine), 0)
        total = total + np.where(second > 1, _one(second, o2, partials, partials, machine), 0)
    return total


def _one(p: Array, o: Array, partials: str, output: str, machine: Machine) -> Array:
    """Reduce `p` partial vectors to one of `o` elements."""
    half = partials == "half"
    acc, size = (8, 2) if half else (4, 4)
    e = (10 if output == "float" else 9) if half else (8 if output == "float" else 7)
    single = 33 + 6 * (20 + (2 * (p - 1) + e) * -(-(o // acc) // 6))
    f = (9 if half else 7) if output == "float" else (8 if half else 6)
    rest = o % acc
    loops = o // acc + (rest & 1) + ((rest >> 1) & 1) + ((rest >> 2) & 1)
    even = loops % 6 == 0
    whole = rest == 0
    count = loops // 6 + np.where(~even & whole, 1, 0)
    extra = np.where(~even & ~whole, 2 * p + (11 if half else 13), 0)
    general = 6 * (32 + extra + (3 * p + f) * count)
    moved = -(-((p - 1) * o * size) // machine.memory_element) * machine.memory_element
    return np.where(whole & (moved < machine.tile_memory // 16), single, general)


def cast_cycles(parts: Array, source: str, destination: str, machine: Machine) -> Array:
    """Conversion of results that need no reduction."""
    if source == destination:
        return np.zeros(np.shape(parts))
    n = -(-parts // 6)
    a = machine.vector_bytes // (2 if source == "half" else 4)
    b = machine.vector_bytes // (2 if destination == "half" else 4)
    return 6 * (np.maximum(-(-n // a), -(-n // b)) + 26.0)
