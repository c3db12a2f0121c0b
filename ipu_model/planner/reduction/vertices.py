"""Cycle estimates of the library's reduction vertices, in worker bundles, and the vertex chosen for a list of work."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ipu_model.planner.conv_params import cdiv

SIZES = {"half": 2, "float": 4}
SUMS = ("ADD", "SQUARE_ADD")
GENERAL = ("MUL", "AND", "OR")  # operations that only the general vertex has
LOG_ADD = {"float": 23, "half": 12}  # bundles of one addition of logarithms


@dataclass(frozen=True, slots=True)
class Work:
    """One reduction on a tile: each of `out` columns is the sum of `rows` runs of `inner` values."""

    out: int
    rows: int
    inner: int = 1
    stride: int = 0  # elements from one row to the next
    pieces: int = 1  # stretches of memory that hold the values; 1 for regular input
    # whether no tile holds another column, so that its partial results are the first thing on their tiles
    alone: bool = False

    @property
    def values(self) -> int:
        """Elements that the reduction reads."""
        return self.out * self.rows * self.inner

    def contiguous(self, source: str) -> bool:
        """Whether the values of a single column follow each other, or are gathered from pieces that start at a word."""
        if self.pieces > 1:
            return source == "float" or self.alone
        return self.inner == 1 or self.rows == 1


@dataclass(frozen=True, slots=True)
class Kind:
    """The operation of a compute set, the type that it reads and the type that it writes.

    `as_table` prices as the library of the benchmark table does, which counts one output too few where the values of
    each column are contiguous.
    """

    operation: str
    source: str
    result: str
    as_table: bool = False

    @property
    def vector(self) -> int:
        """Elements of the read type in 8 bytes."""
        return 8 // SIZES[self.source]

    @property
    def result_vector(self) -> int:
        """Elements of the written type in 8 bytes."""
        return 8 // SIZES[self.result]

    @property
    def accumulated(self) -> int:
        """Partial results that a loop adds at once."""
        return 2 * self.vector if self.operation in SUMS else self.vector

    @property
    def log_add(self) -> int:
        """Worker bundles of one addition: several where numbers are added as logarithms."""
        return LOG_ADD[self.source] if self.operation == "LOG_ADD" else 1

    def after(self) -> Kind:
        """The kind of the next stage: it reads the results of this one, whose squares are already taken."""
        return Kind(
            "ADD" if self.operation == "SQUARE_ADD" else self.operation, self.result, self.result, self.as_table
        )


def strided(work: Work, kind: Kind) -> float:
    """Worker bundles of the vertex whose rows lie a fixed stride apart."""
    stride = work.stride or work.out
    if stride * SIZES[kind.source] % 8:
        stride = work.out  # rows that start inside a vector are packed first
    each = math.gcd(min(kind.accumulated, kind.vector), stride)
    return 24 + 6 * cdiv(work.out, each) + kind.log_add * work.rows * work.out // each


def continuous(works: Sequence[Work], kind: Kind) -> float:
    """Worker bundles of the vertex for several columns whose values each follow each other in memory."""
    n = works[0].values
    width = 1 if kind.operation == "LOG_ADD" else kind.vector
    cost = 20 if kind.operation == "LOG_ADD" and kind.source == "half" else kind.log_add
    return 17 + (len(works) - kind.as_table) * (12 + cost * (n // width)) + (2 if n % 2 else 0)


def single(work: Work, kind: Kind) -> float:
    """Worker bundles of the vertex for one column whose values follow each other in memory."""
    n, width = work.values, min(kind.accumulated, kind.vector)
    return 26 + (6 if n < 6 else n // width + n % width) + (0 if kind.result == "float" else 5)


def general(works: Sequence[Work], kind: Kind) -> float:
    """The vertex of any form; logical operations and lists of logarithms take its plain loop."""
    if kind.operation in ("AND", "OR", "LOG_ADD"):
        turn = 7 + (kind.source != kind.result) + kind.log_add - 1
        return 23 + sum(10 + work.pieces * cdiv(work.values // work.pieces, kind.vector) * turn for work in works)
    return 33 + sum(_general_one(work, kind) for work in works)


def _general_one(work: Work, kind: Kind) -> float:
    width, vector, sums = kind.accumulated, kind.vector, kind.operation in SUMS
    loops, bits = work.out // width, [2**i for i in range(6) if work.out % width >> i & 1]
    rows = work.rows * work.inner

    def store(n: int) -> int:
        return 2 * min(n, kind.result_vector) + sums

    total = 24 + 2 * math.log2(width) + loops * ((5 if sums else 3) + store(width) + 1 + 10 * work.pieces)
    total += sum((4 if sums else 2) + store(bit) + 10 * work.pieces for bit in bits)
    total += loops * rows * ((2 if sums else 0) + 2 + width / min(width, vector) + 3)
    return total + sum(rows * (2 + bit / min(bit, vector) + 3) for bit in bits)


def form(works: Sequence[Work], kind: Kind) -> str:
    """The special vertex that could run a whole list of reductions."""
    if kind.operation in GENERAL:
        return "default"
    first = works[0]
    alike = all(w.out == 1 and w.values == first.values and w.contiguous(kind.source) for w in works)
    if alike and first.values > 1:
        return "continuous"
    if len(works) == 1 and first.out == 1 and kind.operation in (*SUMS, "LOG_ADD"):
        return "single"
    width, result = first.out * SIZES[kind.source], first.out * SIZES[kind.result]
    if len(works) == 1 and first.inner == 1 and width % 8 == 0 and result % 4 == 0:
        return "strided"
    return "default"


def cost_of(works: Sequence[Work], kind: Kind) -> float:
    """Bundles of a list of reductions that one vertex runs."""
    chosen = form(works, kind)
    if chosen == "continuous":
        return continuous(works, kind)
    if chosen == "single":
        return single(works[0], kind)
    return strided(works[0], kind) if chosen == "strided" else general(works, kind)


#: By form: the least number of reductions for a vertex of its own, and the library's estimate of a vertex's cost.
LEAST = {"continuous": 4, "strided": 5}
WEIGHT = {"continuous": 8, "strided": 10, "single": 8}


def worker(works: Sequence[Work], kind: Kind) -> tuple[float, ...]:
    """Bundles of the vertices that one worker's list becomes."""
    return _vertices(tuple(works), kind)


@functools.lru_cache(maxsize=4096)
def _vertices(works: tuple[Work, ...], kind: Kind) -> tuple[float, ...]:
    if form(works, kind) != "default" or kind.operation in GENERAL:
        return (cost_of(works, kind),)
    found: list[float] = []
    rest: list[list[Work]] = []
    at = 0
    while at < len(works):
        end = at + 1
        while end < len(works) and form(works[at : end + 1], kind) == "continuous":
            end += 1
        part = list(works[at:end])
        if len(part) >= LEAST.get(form(part, kind), len(part) + 1):
            found.append(cost_of(part, kind))
        else:
            rest.append(part)
        at = end
    together = [w for part in rest for w in part]
    apart = sum(WEIGHT.get(form(part, kind), 16 + 2 * len(part)) for part in rest)
    if together and 16 + 2 * len(together) < apart:
        found.append(general(together, kind))
    else:
        found += [cost_of(part, kind) for part in rest]
    return tuple(found)


def columns_apart(work: Work) -> list[Work]:
    """One reduction per column."""
    return [replace(work, out=1)] * work.out
