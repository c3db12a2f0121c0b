"""Candidates for the inner kernel of a convolution, and the cycles each takes on one tile.

Every cycle function works on arrays: one element per way of splitting the problem, so a whole search space is priced at
once. The formulas are those of PopLibs' cycle estimators of March 2021.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ipu_model.planner.conv_params import ConvParams, Pass, cdiv
from ipu_model.target import Machine

Array = np.ndarray
FEWEST_OUTPUTS = 8  # output channels of a group; addresses used by dense layers in float show no smaller group
Method = Literal["amp", "slic", "hmac", "vmac", "outer"]


def product(arrays: Iterable[Array]) -> Array:
    """The product of arrays, element by element; `numpy.prod` would copy all of them into one first."""
    return functools.reduce(operator.mul, arrays)


class Vertex(NamedTuple):
    """One way to run the inner loop."""

    method: Method
    # convolution groups, input and output channels handled together
    gpg: int
    ipg: int
    opg: int
    units: int  # convolution units used (AMP), otherwise 0
    # types of the operands and of the partial results
    data: str
    partials: str
    rate: float  # multiplies per cycle at best
    height: int = 1  # kernel rows that supply missing input channels (AMP)
    chains: int = 0


@dataclass(frozen=True)
class Tile:
    """Sizes of the fullest tile's part, as arrays of equal shape: numbers of groups, then extents."""

    groups: Array
    ins: Array
    outs: Array
    batch: Array
    out: tuple[Array, ...]
    kernel: tuple[Array, ...]


def candidates(p: ConvParams, machine: Machine, pass_: Pass, swapped: bool, partials: str) -> list[Vertex]:
    """Vertices that may run the transformed convolution `p`."""
    found = [*_amp(p, machine, pass_, partials), *_mac(p, partials), *_outer_product(p, machine, partials)]
    if not pass_.startswith("fc_") and p.data == "half":
        found += _slic(p, machine, swapped, partials)
    return found


def _amp(p: ConvParams, machine: Machine, pass_: Pass, partials: str) -> tuple[Vertex, ...]:
    narrow = partials == "float" and p.in_channels <= 16 and all(k == 1 for k in p.kernel)
    channels = p.in_channels if narrow and p.data == p.output == "half" else 0
    return _units(p.data, channels, machine, pass_ == "fc_inference_fwd", partials)


@functools.lru_cache(maxsize=1024)
def _units(data: str, narrow: int, machine: Machine, inference: bool, partials: str) -> tuple[Vertex, ...]:
    """Ways to use the convolution units; `narrow` input channels, if not 0, may be added up in half precision."""
    half, found = data == "half", list[Vertex]()
    weights = machine.weights_per_unit_half if half else machine.weights_per_unit_float
    per_cycle = machine.inputs_per_cycle_half if half else machine.inputs_per_cycle_float
    for kind in (partials, "half") if narrow else (partials,):
        every = machine.units(data, kind)
        for units in dict.fromkeys([every, 8] if every == 16 else [every]):
            for ipg in (weights, weights // 2, weights // 4):
                if kind != partials and cdiv(narrow, ipg) * ipg != 16:
                    continue
                for opg in dict.fromkeys([every, weights] + ([8] if every == 16 else [])):
                    wide = opg in (units, weights * units // every) and opg % units == 0
                    if not wide or opg < FEWEST_OUTPUTS or (inference and opg not in (units, 8)):
                        continue
                    core = 4 if half else (4 if units == 4 else 8)
                    rate = units * weights // core
                    rate = min(rate, units * per_cycle)
                    found.append(Vertex("amp", 1, ipg, opg, units, data, kind, rate, weights // ipg))
    return tuple(found)


def _slic(p: ConvParams, machine: Machine, swapped: bool, partials: str) -> Iterator[Vertex]:
    plain = p.kernel_dilation == (1,) * p.dims and p.in_dilation == (1,) * p.dims and p.stride[-1] <= 2
    if not plain or (swapped and max(p.kernel) > 1):
        return
    chains = 4 if partials == "half" and machine.units("half", "half") == 16 else 2
    for groups, channels in ((1, 4), (2, 2), (4, 1)):
        if groups == 1 or p.groups > 1:
            rate = min(4, channels) * 4 * chains
            yield Vertex("slic", groups, channels, channels, 0, p.data, partials, rate, chains=chains)


def _mac(p: ConvParams, partials: str) -> Iterator[Vertex]:
    yield from _dot_products(p.in_channels, p.data, partials)
    if p.data == "half" and partials == "float":
        width = p.kernel[-1]
        yield Vertex("vmac", 4, 1, 1, 0, p.data, partials, 4 * width / (18 + 2 * width))


@functools.lru_cache(maxsize=1024)
def _dot_products(channels: int, data: str, partials: str) -> tuple[Vertex, ...]:
    opg = 2 if data == partials == "half" else 1
    found: list[Vertex] = []
    for ipg in group_sizes(channels, 2 if data == "half" else 1):
        loop = 7 + (opg // 2 if opg > 1 else 1) * _dot(data, partials, ipg)
        found.append(Vertex("hmac", 1, ipg, opg, 0, data, partials, opg * ipg / loop))
    return tuple(found)


def group_sizes(channels: int, step: int) -> Iterator[int]:
    """The smallest multiple of `step` for each number of groups that `channels` can be in, from most groups to one."""
    size = step
    while True:
        yield size
        groups = cdiv(channels, size)
        if groups == 1:
            return
        size = cdiv(cdiv(channels, groups - 1), step) * step


def _outer_product(p: ConvParams, machine: Machine, partials: str) -> Iterator[Vertex]:
    half = p.data == "half"
    vector = machine.vector_bytes // (2 if half else 4)
    one = (1,) * p.dims
    plain = p.stride == one and p.in_dilation == one and p.kernel_dilation == one and max(p.kernel) == 1
    plain = plain and p.in_channels == 1 and not any(p.pad_lower) and not any(p.pad_upper)
    if plain and p.batch == 1 and all(f == 1 for f in p.field[:-1]):
        yield Vertex("outer", 1, 1, vector, 0, p.data, p.data, vector)


def tile_cycles(v: Vertex, p: ConvParams, t: Tile, machine: Machine) -> Array:
    """Tile cycles of the fullest tile."""
    if v.method == "amp":
        return _one_position_or_more(v, p, lambda: _amp_pointwise(v, t, machine), lambda: _amp_kernel(v, p, t, machine))
    if v.method == "slic":
        return _slic_cycles(v, p, t)
    if v.method == "hmac":
        return _hmac_cycles(v, p, t)
    if v.method == "vmac":
        return _vmac_cycles(t)
    return _outer_cycles(v, t)


def least_pair_cycles(v: Vertex, p: ConvParams, t: Tile, machine: Machine) -> Array:
    """A lower bound of what a vertex takes for a pair of channel groups, for each split of the other sizes.

    On the convolution units that is the load of weights and the work of the busiest worker, which has at least the mean
    share of the elements and of the rows, otherwise the multiplies.
    """
    if v.method != "amp":
        work = product([t.groups, t.batch, *t.out, *t.kernel])
        return v.gpg * v.ipg * v.opg / (v.rate * math.prod(phases(p))) * work
    return t.groups * _one_position_or_more(
        v, p, lambda: np.minimum(*_pointwise_blocks(v, t, machine)), lambda: 14 + _least_positions(v, p, t, machine)
    )


def _one_position_or_more(v: Vertex, p: ConvParams, one: Callable[[], Array], more: Callable[[], Array]) -> Array:
    """`one` where the kernel's single position has a vertex of its own, else `more`.

    The kernel is that of the whole convolution: where tiles split a larger one down to single positions, the memory of
    the benchmark table is that of plans which price these as any other.
    """
    return one() if v.height == 1 and _rows_alone(p) and max(p.kernel) == 1 else more()


def _rows_alone(p: ConvParams) -> bool:
    """Whether all outputs lie in one row, as the vertex for single positions of a kernel has them."""
    return p.batch == 1 and all(o == 1 for o in p.out[:-1]) and p.in_dilation == p.stride


def _unique_slowest_fastest(rows: Array, width: Array, cost: Callable[[Array], Array]) -> tuple[Array, Array]:
    """`slowest_fastest` evaluated once for each distinct shape, of which many splits have few."""
    if rows.size < 1000:
        return slowest_fastest(rows, width, cost)
    _, first, back = np.unique(rows * 2**31 + width, return_index=True, return_inverse=True)
    slow, fast = slowest_fastest(rows[first], width[first], cost)
    return slow[back], fast[back]


def slowest_fastest(rows: Array, width: Array, cost: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Slowest and fastest of six workers that share `rows` rows of `width` elements in contiguous runs.

    A run is cut at each row end; `cost` maps the length of a piece to bundles, and a worker without work costs
    ``cost(0)``.
    """
    total, worker = rows * width, np.arange(7).reshape(-1, *[1] * np.ndim(rows))
    bounds = worker * total // 6
    begin, end = bounds[:-1], bounds[1:]
    first, last = begin // width, np.maximum(end - 1, 0) // width
    split = first != last
    head = np.where(split, (first + 1) * width - begin, end - begin)
    tail = np.where(split, end - last * width, 1)
    bundles = cost(head) + np.where(split, (last - first - 1) * cost(width) + cost(tail), 0)
    return bundles.max(axis=0), bundles.min(axis=0)


def phases(p: ConvParams) -> tuple[int, ...]:
    """Period, by dimension, with which outputs meet real data of a dilated input under one kernel position."""
    return tuple(
        dilation // math.gcd(dilation, stride) for dilation, stride in zip(p.in_dilation, p.stride, strict=True)
    )


def _rows_width(p: ConvParams, t: Tile) -> tuple[Array, Array]:
    extents = [-(-out // step) if step > 1 else out for out, step in zip(t.out, phases(p), strict=True)]
    return product([t.batch, *extents[:-1]]), extents[-1]


def _load_cycles(v: Vertex, machine: Machine) -> int:
    return v.units * 32 // machine.coefficient_load_bytes


def least_starts(v: Vertex, p: ConvParams, machine: Machine) -> tuple[tuple[float, float], ...]:
    """Lower bounds of a vertex's cycles beside the multiplies: of each weight on a tile, and of each of all weights.

    Weights are loaded a block at a time; then each worker of the convolution units starts its first row, whatever the
    number of outputs. Or all rows count: those that start on any tile are at least the rows of the whole output.
    """
    rows = p.batch * math.prod(p.out[:-1]) / math.prod(phases(p)[:-1])
    if v.method == "slic":
        blocks = cdiv(p.kernel[-1], 4) / (p.kernel[-1] * v.gpg * v.ipg * v.opg)
        passes = 1 if v.chains == 4 else 2
        return ((blocks * 6 * 17, blocks * (9 + 9 * passes) * rows),)
    if v.method != "amp":
        return ((0.0, 0.0),)
    passes, blocks = cdiv(v.opg, v.units), cdiv(p.kernel[0], v.height) / (p.kernel[0] * v.ipg * v.opg)
    if v.height == 1 and _rows_alone(p):
        return ((blocks * (19 + passes * (6 + _load_cycles(v, machine) + 6 * 16)), 0.0),)
    load = _load_cycles(v, machine) + 18
    return (
        (blocks * (12 + passes * (load + 6 * 33)), 0.0),
        (blocks * (12 + passes * (load + 6 * 17)), blocks * passes * _row_start(v) * rows),
    )


def _amp_pointwise(v: Vertex, t: Tile, machine: Machine) -> Array:
    first, later = _pointwise_blocks(v, t, machine)
    kept1, kept2 = _retained(v)
    start = 50 + 6 * (kept1 + kept2 * (t.ins * t.groups - 1))
    return start + t.groups * (12 + (t.ins - 1) * (16 + t.outs * later) + 11 + t.outs * first)


def _retained(v: Vertex) -> tuple[int, int]:
    """Bundles of a worker to start, and to go on to another group, where it keeps its state in between."""
    return (10, 2) if v.data == "half" and (v.partials == "float" or v.units == 16) else (0, 0)


def _pointwise_blocks(v: Vertex, t: Tile, machine: Machine) -> tuple[Array, Array]:
    """Cycles of a group of output channels with the first and with a later group of input channels."""
    half = v.data == "half"
    core = 4 if half else (4 if v.units == 4 else 8)
    kept, _ = _retained(v)
    if not half:
        a, b, c, zero = (24, 24), (47, 46, 46), 0, (8 if machine.units_float == 16 else 4)
    elif v.partials == "float" or v.units == 16:
        a, b, c, zero = (22, 24), (33, 42, 38), 1, 0
    else:
        a, b, c, zero = (24, 24), (39, 40, 41), 0, 2

    def worker(n: Array, z: int) -> Array:
        first = 1 - z  # accumulation costs two bundles more in the retained form, initialisation writes zeros elsewhere
        if c:
            busy = np.where(n == 1, b[0], np.where(n == 2, b[1], b[2] + (n - 3) * core)) + 2 * first - kept
            return np.where(n == 0, a[first], busy)
        init = (2 + zero * n) * z
        busy = np.where(n == 1, b[0], np.where(n == 2, b[1], b[2] + (n - 3) * core)) + init
        return np.where(n == 0, a[0], busy)

    width = t.out[-1]
    most, least = -(-width // 6), width // 6

    def inner(z: int) -> Array:
        return np.maximum(6 * worker(most, z), 6 * worker(least, z) + 14)

    load = _load_cycles(v, machine)
    passes = cdiv(v.opg, v.units)
    return 19 + passes * (7 + load + inner(1)), 19 + passes * (6 + load + inner(0))


def _amp_kernel(v: Vertex, p: ConvParams, t: Tile, machine: Machine) -> Array:
    pairs = t.ins * (14 + t.outs * (14 + _positions(v, p, t, machine)))
    start = 193 + t.groups * (17 * t.outs + 6 * (t.outs - 1) + 1) + 6 * (t.groups - 1) + 1
    return start + t.groups * (16 + pairs) + _zero_cycles(v, t)


def _pieces(v: Vertex) -> tuple[tuple[int, int, int], int]:
    """Worker bundles of a row of one, two and three outputs, and of each further one."""
    if v.data == "half":
        return (23, 27, 28), 4
    return (27, 38, 39), 4 if v.units == 4 else 8


def _row_start(v: Vertex) -> int:
    """The least bundles of a row beside those of each output, whatever its length."""
    known, core = _pieces(v)
    return min(bundles - core * n for n, bundles in enumerate(known, 1))


def _positions(v: Vertex, p: ConvParams, t: Tile, machine: Machine) -> Array:
    """Cycles of all positions of the kernel for one group of input and one of output channels."""
    known, core = _pieces(v)
    few = np.array([11, *known])

    def piece(n: Array) -> Array:
        return few[np.minimum(n, 3)] + core * np.maximum(n - 3, 0)

    slow, fast = _unique_slowest_fastest(*_rows_width(p, t), piece)
    each = 17 + (1 if v.partials == "half" else 0)
    return _all_positions(v, t, np.maximum(6 * (slow + each), 6 * (fast + each) + 9), machine)


def _least_positions(v: Vertex, p: ConvParams, t: Tile, machine: Machine) -> Array:
    """A lower bound of `_positions`: the busiest worker has at least the mean share of the elements and of the rows."""
    (_, core), start = _pieces(v), _row_start(v)
    rows, width = _rows_width(p, t)
    total = rows * width
    slow = np.maximum(start + core * -(-total // 6), (start * np.maximum(rows, 6) + core * total) / 6)
    return _all_positions(v, t, 6 * (slow + 17), machine)


def _all_positions(v: Vertex, t: Tile, inner: Array, machine: Machine) -> Array:
    """Cycles of all positions of the kernel where the workers take `inner` for one."""
    extra = {4: 60, 2: 46, 1: 15}.get(v.height, 20 * v.height) + 3
    kernel = product([-(-t.kernel[0] // v.height), *t.kernel[1:-1]])
    passes = cdiv(v.opg, v.units)
    return kernel * (14 + t.kernel[-1] * (12 + passes * (_load_cycles(v, machine) + extra + inner)))


def _zero_cycles(v: Vertex, t: Tile) -> Array:
    share = -(-product([t.batch * v.opg, *t.out]) // 6)
    each = -(-share // 2) + 14 - 9 if v.partials == "float" else -(-share // 4) + 15 - 10
    return t.outs * t.groups * 6 * each


def _slic_cycles(v: Vertex, p: ConvParams, t: Tile) -> Array:
    stride = p.stride[-1]
    float_out = v.partials == "float"
    hh = v.partials == "half" and v.chains == 2
    passes = 1 if v.chains == 4 else 2
    blocks = product([-(-t.kernel[-1] // 4), *t.kernel[:-1]])

    def piece(first: bool):
        def cost(n: Array) -> Array:
            if stride == 1:
                long = 15 + (n - 5) + (3 if hh and not first else 0)
                short = 13 + np.where(n > 1, n, 0) if first else np.where(n == 1, 13, 17 + n)
                row = np.where(n >= (6 if hh else 5), long, short)
            else:
                row = np.where(n >= 3, 15 + 2 * (n - 3), np.where(n == 1, 13, 15))
            row = row - (1 if float_out else 0)
            busy = (9 if hh else 10) + (1 if first else 0) + (3 if float_out else 0) + row * passes
            return np.where(n == 0, 0, busy)

        return cost

    rows, width = _rows_width(p, t)
    tail = 2 if hh else 0

    def inner(first: bool) -> Array:
        slow, _ = _unique_slowest_fastest(rows, width, piece(first))
        extra = 2 + 2 * rows * width if hh and first else 0
        return 6 * (17 + slow + tail) + extra

    load = {1: 18 + 16, 2: 21 + 72 + 16, 4: 21 + 60 + 16}[v.gpg] + (15 if hh else 19)
    start = 25 + 12 * t.groups if hh else 28 + 15 * t.groups
    work = t.groups * (inner(True) + (blocks - 1) * inner(False))
    return start + 6 * (t.groups - 1) + 1 + load * blocks + 6 * (blocks - 1) + 1 + work


def _dot(data: str, partials: str, n: int) -> float:
    if data == "float":
        return 7 + n if n % 2 == 0 else 7 + 2 * n
    if partials == "float":
        return 7 + n // 4 if n % 4 == 0 else 7 + n
    return 11 + n // 4 if n % 4 == 0 else 12 + n


def _hmac_cycles(v: Vertex, p: ConvParams, t: Tile) -> Array:
    rows, width = _rows_width(p, t)
    parts = 6 // np.gcd(6, np.maximum(rows, 1))
    most = -(-rows * parts // 6)
    piece = -(-width // parts)
    channels = v.opg // 2 if v.data == "half" and v.partials == "half" else v.opg
    worker = 16 + most * (19 + piece * (7 + channels * _dot(v.data, v.partials, v.ipg)))
    inner = 6 * (product(t.kernel) * worker + 16)
    start = (58 if v.data == "float" else 63) + (54 if v.partials == "float" else 0)
    return start + t.groups * (23 + t.ins * (15 + t.outs * (10 + inner))) + _zero_cycles(v, t)


def _vmac_cycles(t: Tile) -> Array:
    positions = product([t.batch, *t.out])
    items = product([positions, *t.kernel[:-1]])
    inner = 6 * (6 + -(-items // 6) * (20 + 2 * (t.kernel[-1] - 1)))
    zero = 10 + 19 * -(-positions // 6) / 4
    return 61 + 13 + 26 + t.groups * ((4 + positions) + (32 + t.ins * (24 + inner)) + zero)


def _outer_cycles(v: Vertex, t: Tile) -> Array:
    share = -(-t.out[-1] // 6)
    groups, c = t.outs * t.groups, v.opg
    if v.data == "float":
        each = (11, 6 + (c - 6) // 2) if c >= 6 and c % 2 == 0 else (11, 10 + 2 * c)
    else:
        each = (10, 6 + (c - 12) // 4) if c >= 12 and c % 4 == 0 else (10, 10 + 2.5 * c)
    return 6 * (25 + groups * (each[0] + share * each[1]))
