"""Matrix products of bytes, and convolutions of bytes and floats, by oneDNN, a library that jaxlib for x86 contains.

XLA:CPU does not choose these calls itself, but executes them in a program (jaxlib 0.10 and 0.11). On one core,
64 x 784 bytes times 784 x 512 take 0.15 ms, and 0.39 as XLA 0.10 computes them; a convolution of 56 x 56 x 64 by
3 x 3 takes 0.6 and 1.5 ms, one of 224 x 224 x 3 by 7 x 7 0.8 and 14 ms. XLA 0.11 is as fast as oneDNN for many of
them, but not for few rows, few channels, and depthwise ones. Sums are exact integers, so results are the same.

XLA can't serialise such programs: only those that stay in this process have the calls (`ops.kernels.staying`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.interpreters import batching, mlir

from ..._compat.jax import Primitive, checks_varying_axes, library_call, outside_traces
from ...ops.kernels import may_call_libraries, note_call, platform, staying
from ...ops.windows import Window

_DEEP = 72
"""Length of the sums in the trial: on processors without 8-bit instructions, sums of pairs would saturate."""


def usable() -> bool:
    """Whether the program being traced may call the library, and the library works."""
    return platform() == "cpu" and may_call_libraries() and not checks_varying_axes() and works()


def product(a: Any, b: Any) -> jax.Array | None:
    """INT32 matrix product of bytes with signed bytes; None if leading dimensions would have to broadcast."""
    if b.ndim == 2 and a.ndim > 2:
        rows = product(a.reshape(-1, a.shape[-1]), b)
        return None if rows is None else rows.reshape(*a.shape[:-1], b.shape[-1])
    shape = (*a.shape[:-1], b.shape[-1])
    if a.shape[:-2] != b.shape[:-2] or 0 in (*shape, a.shape[-1]):
        return None
    return _call("matmul", np.int32, shape, {}, a, b)


def correlation(x: Any, w: Any, group: int, win: Window, pads: Sequence[tuple[int, int]]) -> jax.Array:
    """INT32 correlation of nonempty bytes (N, ..., C) with signed bytes (..., C/group, M), padded with zeros."""
    return _call("conv", np.int32, *_correlation(x, w, group, win, pads), x, w, target="convolution")


def correlation_of_floats(x: Any, w: Any, bias: Any, group: int, win: Window) -> jax.Array:
    """Correlation of nonempty FLOAT data (N, ..., C) with (..., C/group, M), and a bias (M) or None added."""
    note_call(CORRELATION.name)
    return CORRELATION.bind(*((x, w) if bias is None else (x, w, bias)), group=group, win=win)


CORRELATION = Primitive("onednn_correlation")
"""Of floats. A primitive with a derivative, since JAX drops `custom_jvp` when it differentiates a loop twice."""


@CORRELATION.def_impl
def _floats(x: Any, w: Any, *bias: Any, group: int, win: Window) -> jax.Array:
    shape, facts = _correlation(x, w, group, win, win.pads)
    fused = {"fusions": {"ops": ["BIAS"]}} if bias else {}
    return _call("conv", np.float32, shape, facts | fused, x, w, *bias, target="convolution")


@CORRELATION.def_abstract_eval
def _type(x: Any, w: Any, *bias: Any, group: int, win: Window) -> Any:
    return x.update(shape=(x.shape[0], *win.positions, w.shape[-1]))


def _batched(args: Any, dims: Any, **facts: Any) -> Any:
    return jax.vmap(partial(_floats, **facts), tuple(dims))(*args), 0


batching.primitive_batchers[CORRELATION] = _batched
mlir.register_lowering(CORRELATION, mlir.lower_fun(_floats, multiple_results=False))


def _correlation(
    x: Any, w: Any, group: int, win: Window, pads: Sequence[tuple[int, int]]
) -> tuple[Sequence[int], dict[str, Any]]:
    """Shape of the result, and the facts that the library is told of a convolution."""
    shape = (x.shape[0], *win.positions, w.shape[-1])
    rank = x.ndim
    data = {"data": {"batch_dim": 0, "feature_dim": rank - 1, "spatial_dims": [*range(1, rank - 1)]}, "dims": rank}
    filters = {"input_feature_dim": rank - 2, "output_feature_dim": rank - 1, "spatial_dims": [*range(rank - 2)]}
    window = {
        "size": [*win.kernel],
        "pad_left": [low for low, _ in pads],
        "pad_right": [high for _, high in pads],
        "strides": [*win.strides],
        "window_dilations": [*win.dilations],
    }
    kernel = {"dims": rank, "filter": {**filters, "shape": [*w.shape]}}
    facts = {"dims": rank, "input": data, "output": data, "kernel": kernel, "window": window, "feature_groups": group}
    return shape, facts


def _call(
    kind: str, dtype: Any, shape: Sequence[int], facts: Mapping[str, Any], *operands: Any, target: str = ""
) -> jax.Array:
    name, config = f"__onednn${target or kind}", json.dumps({f"onednn_{kind}_config": facts})
    note_call(name)
    return library_call(name, jax.ShapeDtypeStruct(tuple(shape), dtype), config, *operands)


@cache
def works() -> bool:
    """Whether both calls give exact sums on this processor; tried once, on the largest numbers."""
    data, weights = np.full((1, 4, _DEEP), 255, np.uint8), np.full((1, _DEEP, 32), 127, np.int8)
    weights[..., ::2] = -128
    win = Window((1,), (1,), (1,), ((0, 0),), (4,), (0,))

    def both(x: Any, w: Any) -> Any:
        return product(x, w), correlation(x, w, 1, win, win.pads)

    try:
        with outside_traces(), staying(False):
            found = jax.jit(both)(data, weights)
    except Exception:  # this jaxlib has no such library; the exception's class differs between releases
        return False
    wanted = np.matmul(data.astype(np.int32), weights.astype(np.int32))
    return all(np.array_equal(wanted, x) for x in found)
