"""Rewrites of a convolution that the planner tries before it splits the problem over tiles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ipu_model.planner.conv_params import ConvParams, cdiv


@dataclass(frozen=True)
class Problem:
    """A transformed convolution and the transforms that led to it."""

    params: ConvParams
    swapped: bool = False
    expanded: tuple[int, ...] = ()
    out_flattened: tuple[int, ...] = ()
    combined: int = 1


def transformed_problems(params: ConvParams, matmul: bool) -> Iterator[Problem]:
    """Every distinct rewriting of `params`, in the order in which PopLibs tries them."""
    base = _dilate_after(params.canonical())
    seen: set[tuple[ConvParams, bool, bool, bool, bool]] = set()
    for swapped in (True, False) if matmul else (False, True):
        start = swap_operands(base) if swapped else base
        for expanded in _subsets(start, _can_expand):
            wide = start
            for d in expanded:
                wide = _expand(wide, d)
            for out_flat in _subsets(wide, _can_flatten_out):
                flat = wide
                for d in out_flat:
                    flat = _flatten_out(flat, d)
                flat = _merge_dims(flat)
                for factor in _group_factors(flat):
                    problem = Problem(_combine(flat, factor), swapped, expanded, out_flat, factor)
                    key = (problem.params, factor > 1, swapped, bool(expanded), bool(out_flat))
                    if key not in seen:
                        seen.add(key)
                        yield problem


def _subsets(p: ConvParams, test: Callable[[ConvParams, int], bool]) -> Iterator[tuple[int, ...]]:
    dims = [d for d in range(p.dims) if test(p, d)]
    for n in range(len(dims) + 1):
        yield from itertools.combinations(dims, n)


def _dilate_after(p: ConvParams) -> ConvParams:
    """Move the input dilation of a pointwise convolution behind it, where it only spreads the result."""
    for d in range(p.dims):
        plain = p.stride[d] == 1 and p.transformed_kernel[d] == 1 and p.pad_lower[d] == 0 == p.pad_upper[d]
        if p.in_dilation[d] > 1 and plain:
            p = p.replace_dim(d, in_dilation=1, out_padding=0)
    return p


def swap_operands(p: ConvParams) -> ConvParams:
    """Let input and kernel change places; the result is the transposed output."""
    grow = [i - k for i, k in zip(p.transformed_in, p.transformed_kernel, strict=True)]
    return p.derived(
        batch=p.out_channels,
        out_channels=p.batch,
        field=p.kernel,
        kernel=p.field,
        in_dilation=p.kernel_dilation,
        kernel_dilation=p.in_dilation,
        pad_lower=tuple(g + kp for g, kp in zip(grow, _kernel_padding(p), strict=True)),
        pad_upper=tuple(grow),
    )


def _kernel_padding(p: ConvParams) -> tuple[int, ...]:
    # The padding of the old input becomes padding of the new kernel; only its extent matters here, so the
    # new input loses what the kernel would have gained: transformed_in' - transformed_kernel' is unchanged.
    return tuple(-(lo + hi) for lo, hi in zip(p.pad_lower, p.pad_upper, strict=True))


def _can_expand(p: ConvParams, d: int) -> bool:
    plain = p.kernel[d] == 1 and p.stride[d] == 1 and p.in_dilation[d] == 1
    plain = plain and p.pad_lower[d] == 0 == p.pad_upper[d] and p.out_padding[d] == 0
    return not plain and p.field[d] >= p.kernel[d]


def _expand(p: ConvParams, d: int) -> ConvParams:
    """Make the kernel positions of dimension `d` input channels (im2col)."""
    plain = {"stride": 1, "in_dilation": 1, "kernel_dilation": 1, "pad_lower": 0, "pad_upper": 0, "out_padding": 0}
    return p.replace_dim(d, field=p.out[d], kernel=1, in_channels=p.in_channels * p.kernel[d], **plain)


def _can_flatten_out(p: ConvParams, d: int) -> bool:
    return p.out[d] > 1 and p.field[d] <= p.kernel[d]


def _flatten_out(p: ConvParams, d: int) -> ConvParams:
    """Make the outputs of dimension `d` output channels."""
    plain = {"stride": 1, "in_dilation": 1, "kernel_dilation": 1, "pad_lower": 0, "pad_upper": 0, "out_padding": 0}
    channels = {"in_channels": p.in_channels * p.field[d], "out_channels": p.out_channels * p.out[d]}
    return p.replace_dim(d, field=1, kernel=1, **channels, **plain)


def _merge_dims(p: ConvParams) -> ConvParams:
    """Fold the batch and every plain dimension into the innermost plain dimension."""
    plain = [
        d
        for d in range(p.dims)
        if p.transformed_kernel[d] == 1
        and p.stride[d] == 1
        and p.in_dilation[d] == 1
        and p.pad_lower[d] == 0 == p.pad_upper[d]
        and p.out_padding[d] == 0
    ]
    if not plain:
        return p
    field = list(p.field)
    for d in plain:
        field[d] = 1
    field[plain[-1]] = p.batch * math.prod(p.field[d] for d in plain)
    return p if (p.batch, p.field) == (1, tuple(field)) else p.derived(batch=1, field=tuple(field))


def _group_factors(p: ConvParams) -> list[int]:
    """How many convolution groups may share one block-diagonal convolution."""
    half = p.data == "half"
    if p.groups == 1 or p.in_channels > (2 if half else 1):
        return [1]
    factor, most = (4, 16) if half else (2, 8)
    factors, f = [1], factor // p.in_channels
    while f * p.in_channels <= most:
        factors.append(f)
        f *= 2
    return factors


def _combine(p: ConvParams, factor: int) -> ConvParams:
    if factor == 1:
        return p
    return p.derived(
        groups=cdiv(p.groups, factor),
        in_channels=p.in_channels * factor,
        out_channels=p.out_channels * factor,
    )
