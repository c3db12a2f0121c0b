"""Matrix products and convolutions of bytes and floats by oneDNN, a library that jaxlib for x86 contains.

XLA:CPU does not choose these calls itself, but executes them in a program (jaxlib 0.10 and 0.11). On one core,
64 x 784 bytes times 784 x 512 take 0.15 ms, and 0.39 as XLA 0.10 computes them; a convolution of 56 x 56 x 64 by
3 x 3 takes 0.6 and 1.5 ms, one of 224 x 224 x 3 by 7 x 7 0.8 and 14 ms. XLA 0.11 is as fast as oneDNN for many of
them, but not for few rows, few channels, and depthwise ones. Sums are exact integers, so results are the same.

XLA can't serialise such programs (none of its files has a place for these calls), and knows no way to split them
between devices: only those that stay in this process, on one device, have the calls (`ops.kernels.staying`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

import jax
import numpy as np

from ..._compat.jax import checks_varying_axes, library_call, outside_traces, writes_programs
from ...ops.kernels import may_call_libraries, platform
from ...ops.windows import Window, only_read, padded

_DEEP = 72
"""Length of the sums in the trial: on processors without 8-bit instructions, sums of pairs would saturate."""


def usable() -> bool:
    """Whether the program being traced may call the library, and the library works; asked last, since that is tried."""
    return allowed() and works()


def allowed() -> bool:
    """Whether the program being traced may call the library."""
    unwanted = not may_call_libraries() or writes_programs() or checks_varying_axes()
    return platform() == "cpu" and not unwanted


def product(a: Any, b: Any) -> jax.Array:
    """INT32 matrix product of bytes with signed bytes, with the same leading dimensions."""
    return _call("matmul", np.int32, (*a.shape[:-1], b.shape[-1]), {}, a, b)


def product_in_order(rows: Any, flat: Any, columns: int) -> jax.Array:
    """Product of rows (N, K), uint8 or FLOAT, with as many columns of weights in the library's own order."""
    kind = np.float32 if rows.dtype == np.float32 else np.int32
    ordered = {"optimization_config": {"weights_prepacked": True}}
    return _call("matmul", kind, (rows.shape[0], columns), ordered, rows, flat)


def summed_product(a: Any, b: Any) -> jax.Array:
    """Product (K, M) of FLOAT matrices (N, K) and (N, M), summed over their rows."""
    return _call("matmul", np.float32, (a.shape[1], b.shape[1]), {"transpose_a": True}, a, b)


def correlation(x: Any, w: Any, *, group: int, win: Window) -> jax.Array:
    """INT32 correlation of nonempty bytes (N, ..., C) with signed bytes (..., C/group, M), padded with zeros."""
    data, same = _at_stride_one(*_with_padding(x, group, win))
    return _call("conv", np.int32, *_correlation(data, w, group, same), data, w, target="convolution")


def correlation_of_floats(x: Any, w: Any, *bias: Any, group: int, win: Window, stored: bool) -> jax.Array:
    """Correlation of nonempty FLOAT data (N, ..., C) with (..., C/group, M), and a bias (M) added if given.

    `stored` weights lie in memory in ONNX's order, (M, C/group, ...): what turned them is then no work.
    """
    data, same = _at_stride_one(*_with_padding(x, group, win))
    shape, facts = _correlation(data, w, group, same)
    fused = {"fusions": {"ops": ["BIAS"]}} if bias else {}
    first = (w.ndim - 1, w.ndim - 2, *range(w.ndim - 2))
    orders = [None, first, *(None for _ in bias)] if stored else None
    return _call("conv", np.float32, shape, facts | fused, data, w, *bias, target="convolution", orders=orders)


def _with_padding(x: Any, group: int, win: Window) -> tuple[Any, Window]:
    """Data that holds its padding, for windows at which the library's sums are wrong, or it ends the process.

    Those are windows that meet nothing but padding, dilated ones and those larger than half the data in groups, and for
    bytes all of three dimensions (jaxlib 0.10, Intel Xeon).
    """

    def is_safe(pads: tuple[int, int], reach: int, taps: int, size: int) -> bool:
        return max(pads) < reach and (group == 1 or (reach == taps and 2 * taps <= size))

    known = x.dtype == np.float32 or len(win.pads) < 3
    if known and all(map(is_safe, win.pads, win.reach, win.kernel, x.shape[1:-1])):
        return x, win
    return padded(x, win), replace(win, pads=((0, 0),) * len(win.pads))


def _at_stride_one(x: Any, win: Window) -> tuple[Any, Window]:
    """The same correlation at stride 1 along dimensions of one position; the data (N, ..., C) that it reads.

    At larger strides the library's sums are wrong where the last dimension has one position (jaxlib 0.10, Intel Xeon):
    those of bytes, and those of floats of one channel. No window may meet padding alone.
    """
    strides = tuple(1 if found == 1 else stride for found, stride in zip(win.positions, win.strides, strict=True))
    return (x, win) if strides == win.strides else only_read(x, replace(win, strides=strides))


def _correlation(x: Any, w: Any, group: int, win: Window) -> tuple[Sequence[int], dict[str, Any]]:
    """Shape of the result, and the facts that the library is told of a convolution."""
    shape = (x.shape[0], *win.positions, w.shape[-1])
    rank = x.ndim
    data = {"data": {"batch_dim": 0, "feature_dim": rank - 1, "spatial_dims": [*range(1, rank - 1)]}, "dims": rank}
    filters = {"input_feature_dim": rank - 2, "output_feature_dim": rank - 1, "spatial_dims": [*range(rank - 2)]}
    window = {
        "size": [*win.kernel],
        "pad_left": [low for low, _ in win.pads],
        "pad_right": [high for _, high in win.pads],
        "strides": [*win.strides],
        "window_dilations": [*win.dilations],
    }
    kernel = {"dims": rank, "filter": {**filters, "shape": [*w.shape]}}
    facts = {"dims": rank, "input": data, "output": data, "kernel": kernel, "window": window, "feature_groups": group}
    return shape, facts


def _call(
    kind: str, dtype: Any, shape: Sequence[int], facts: Mapping[str, Any], *operands: Any, target: str = "",
    orders: Sequence[Any] | None = None,
) -> jax.Array:  # fmt: skip
    name, config = f"__onednn${target or kind}", json.dumps({f"onednn_{kind}_config": facts})
    return library_call(name, jax.ShapeDtypeStruct(tuple(shape), dtype), config, *operands, orders=orders)


@cache
def works() -> bool:
    """Whether the calls for bytes and convolutions give exact sums on this processor; tried on the largest numbers."""
    data, weights = np.full((1, 4, _DEEP), 255, np.uint8), np.full((1, _DEEP, 32), 127, np.int8)
    weights[..., ::2] = -128
    win = Window((1,), (1,), (1,), ((0, 0),), (4,), (0,))

    def both(x: Any, w: Any) -> Any:
        return product(x, w), correlation(x, w, group=1, win=win)

    wanted = np.matmul(data.astype(np.int32), weights.astype(np.int32))
    found = tried(both, data, weights)
    return found is not None and all(np.array_equal(wanted, x) for x in found)


@cache
def sums_products() -> bool:
    """Whether `summed_product` works; training alone asks for it."""
    a, b = np.eye(4, 3, dtype=np.float32), np.arange(8, dtype=np.float32).reshape(4, 2)
    found = tried(summed_product, a, b)
    return found is not None and np.array_equal(b[:3], found)


def tried(function: Callable[..., Any], *operands: Any) -> Any:
    """The function's results; None if this jaxlib has no such library, for which exceptions differ between releases."""
    try:
        with outside_traces():
            return cast("Any", jax.jit(function)(*operands))
    except Exception:
        return None
