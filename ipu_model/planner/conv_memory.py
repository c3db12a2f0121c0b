"""Memory of a planned convolution: its data over all tiles, and its vertex and exchange code."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ipu_model.planner.conv_grid import SIZES, Array, Split
from ipu_model.planner.conv_params import cdiv

MESSAGE = 9.0  # bytes of exchange code for a message between two tiles, both ends together
# Bytes of code of the vertices: instructions of the assembly codelets, supervisor and workers.
POINTWISE = {("half", "float"): 1056, ("half", "half"): 800, ("float", "float"): 940}
WINDOWED = {("half", "float"): 1640, ("half", "half"): 1596, ("float", "float"): 1744}
WINDOW_1X4, VERTICAL, OUTER = 1036, 760, {"float": 348, "half": 360}
DOT = {("half", "float"): 732, ("half", "half"): 824, ("float", "float"): 712}
REDUCE, CAST = {("float", "float"): 328, ("float", "half"): 532, ("half", "half"): 508, ("half", "float"): 428}, 368


@dataclass(frozen=True)
class Held:
    """Bytes over all tiles at once, and the tiles that hold them; the last part of a split may be smaller."""

    inputs: int
    weights: int
    partials: int
    tiles: int


def held(split: Split) -> Held:
    """Bytes that the tiles of a plan receive and produce, summed over the tiles."""
    p, v = split.problem.params, split.vertex
    ins, outs = (
        cdiv(cdiv(n, each), serial)
        for n, each, serial in ((p.in_channels, v.ipg, split.in_serial), (p.out_channels, v.opg, split.out_serial))
    )
    groups = cdiv(p.groups, v.gpg)
    fields = [_parts(n, s) for n, s in zip(p.out, split.field, strict=True)]
    kernels = [_parts(n, s) for n, s in zip(p.kernel, split.kernel, strict=True)]
    read = math.prod(_read(split, d, fields[d], kernels[d]) for d in range(p.dims))
    spatial = math.prod(map(len, fields)) * len(_parts(p.batch, split.batch))
    depth = math.prod(map(len, kernels)) * len(_parts(ins, split.in_parallel))
    sides = len(_parts(outs, split.out_parallel))
    size = SIZES[v.data]
    return Held(
        read * p.batch * ins * v.ipg * groups * v.gpg * sides * size,
        math.prod(p.kernel) * ins * v.ipg * outs * v.opg * groups * v.gpg * spatial * size,
        math.prod(p.out) * p.batch * outs * v.opg * groups * v.gpg * depth * SIZES[v.partials],
        spatial * depth * sides * len(_parts(groups, split.groups)),
    )


def _parts(n: int, splits: int) -> list[int]:
    share = cdiv(n, splits)
    return [min(share, n - start) for start in range(0, n, share)]


def _read(split: Split, d: int, outputs: Sequence[int], kernels: Sequence[int]) -> int:
    """Input positions of a dimension, summed over the parts of outputs and kernel."""
    p = split.problem.params
    spans = ((o - 1) * p.stride[d] + (k - 1) * p.kernel_dilation[d] for o in outputs for k in kernels)
    return sum(min(span // p.in_dilation[d] + 1, max(1, p.field[d])) for span in spans)


def share_at_home(split: Split, whole: Held) -> float:
    """Bytes of operands that need no copy since they lie on a tile that uses them; none when they are rearranged."""
    if split.tile["moved_operands"] > 0:
        return 0.0
    return whole.inputs / split.out_parallel + whole.weights / (math.prod(split.field) * split.batch)


def peak(split: Split) -> float:
    """Temporary bytes of an average tile, the largest of three moments.

    Operands and partial results; partial results while they are added up; what is brought into another order, twice.
    Serial steps over output channels fill the whole result from the first step on.
    """
    whole = held(split)
    result = 0.0
    if split.out_serial > 1:
        p = split.problem.params
        result = math.prod(p.out) * p.batch * p.out_channels * p.groups * SIZES[p.output]
    together = whole.inputs + whole.weights + whole.partials - share_at_home(split, whole) + result
    added = whole.partials * (2 - 1 / split.depth) if split.depth > 1 else 0.0
    moved = 2.0 * max(split.tile["moved_operands"], split.tile["moved_output"])
    return max(together / whole.tiles, added / whole.tiles, moved)


def peaks(passes: Iterable[Sequence[Split]], tiles: int) -> Array:
    """The largest temporary bytes of each tile over passes; convolutions of a pass lie side by side."""
    found = np.zeros(tiles)
    for splits in passes:
        for split, start in zip(splits, starts(splits, tiles), strict=True):
            here = slice(start, start + held(split).tiles)
            found[here] = np.maximum(found[here], peak(split))
    return found


def starts(splits: Sequence[Split], tiles: int) -> list[int]:
    """First tile of each of the convolutions of a pass; those that do not fit behind the others start at 0."""
    found, at = list[int](), 0
    for split in splits:
        at = 0 if at + split.tiles > tiles else at
        found.append(at)
        at += 2 * cdiv(split.tiles, 2)
    return found


def code(passes: Iterable[Sequence[Split]], tiles: int) -> float:
    """Bytes of vertex code over all tiles; each codelet is there once on a tile that needs it."""
    needs: dict[tuple[str, ...], Array] = {}
    sizes: dict[tuple[str, ...], int] = {}
    for splits in passes:
        for split, start in zip(splits, starts(splits, tiles), strict=True):
            for name, size in codelets(split).items():
                sizes[name] = size
                needs.setdefault(name, np.zeros(tiles, dtype=bool))[start : start + split.tiles] = True
    return float(sum(sizes[name] * int(mask.sum()) for name, mask in needs.items()))


def codelets(split: Split) -> dict[tuple[str, ...], int]:
    """Vertices of a plan with the bytes of their code."""
    v, p = split.vertex, split.problem.params
    types = (v.data, v.partials)
    plain = v.height == 1 and all(k == 1 for k in p.kernel)
    amp = POINTWISE if plain else WINDOWED
    size = {"amp": amp.get(types), "hmac": DOT.get(types), "slic": WINDOW_1X4, "vmac": VERTICAL}.get(v.method)
    size = OUTER[v.data] if size is None else size
    found = {(v.method, *types, "pointwise" if plain else "windowed"): size}
    if split.depth > 1:
        return {**found, ("reduce", v.partials, p.output): REDUCE[v.partials, p.output]}
    return found if v.partials == p.output else {**found, ("cast", v.partials, p.output): CAST}


def rows(split: Split) -> int:
    """Output rows of a tile with a window kernel: each row is a piece of work and a piece of input."""
    p = split.problem.params
    if all(k == 1 for k in p.kernel):
        return 0
    return math.prod(cdiv(o, f) for o, f in zip(p.out[:-1], split.field[:-1], strict=True)) * cdiv(p.batch, split.batch)


def messages(splits: Iterable[Split]) -> float:
    """Messages that the reduction of partial results exchanges."""
    return float(sum(split.tiles * (split.depth - 1) for split in splits))
