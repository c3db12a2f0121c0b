"""Adding up the partial results that several tiles hold for the same outputs of a convolution."""

from __future__ import annotations

import functools

import numpy as np

from ipu_model.planner.conv_params import cdiv
from ipu_model.target import Machine

Array = np.ndarray


@functools.cache
def intermediate_depths(depth: int) -> tuple[int, ...]:
    """Depths of the intermediate stages, largest first; empty when one stage does it."""
    stages = 1 if depth < 16 else 2 if depth < 125 else 3
    return _plan(depth, stages)[1]


def _plan(depth: int, stages: int) -> tuple[float, tuple[int, ...]]:
    if stages == 1:
        return depth, ()
    root = int(depth ** ((stages - 1) / stages) + 1e-9)
    options = []
    for following in (root, root + 1):
        cost, rest = _plan(following, stages - 1)
        options.append((depth / following + cost, (following, *rest)))
    return min(options, key=lambda option: option[0])


def stage_count(depth: int) -> int:
    """Stages that cost a step of their own: none, one, or two and more counted as two."""
    return 0 if depth == 1 else 1 if depth < 16 else 2


def exchanged(parts: Array, depth: int) -> tuple[Array, Array]:
    """Partials received by a tile in the first stage and in all later ones (elements)."""
    later, rem, o = np.zeros_like(parts), depth, parts
    for d in intermediate_depths(depth):
        s = cdiv(rem, d)
        rem = cdiv(rem, s)
        o = -(-o // s)
        later = later + o
    return parts, later


def cycles(parts: Array, depth: int, partials: str, output: str, machine: Machine) -> Array:
    """Compute cycles of all stages on the fullest tile (`depth` at least 2)."""
    rem, o = depth, -(-parts // depth) * depth
    total = np.zeros(np.shape(parts))
    for d in intermediate_depths(depth):
        s = cdiv(rem, d)
        rem = cdiv(rem, s)
        o = -(-o // s)
        total = total + _one(s, o, partials, partials, machine)
    if rem > 1:
        o = -(-o // rem)
        total = total + _one(rem, o, partials, output, machine)
    return total


def temporary(parts: Array, depth: int, partial_bytes: int) -> Array:
    """Bytes that intermediate results need."""
    rem, o, most = depth, parts, np.zeros_like(parts)
    for d in intermediate_depths(depth):
        s = cdiv(rem, d)
        rem = cdiv(rem, s)
        o = -(-o // s)
        most = np.maximum(most, o * partial_bytes)
    return most


def _one(p: int, o: Array, partials: str, output: str, machine: Machine) -> Array:
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
