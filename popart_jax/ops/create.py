"""Operators that make tensors from attributes and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import popart_exception
from ..limits import limits
from .arrays import Array, device_dtype, onnx_dtype
from .operator import FOLDS, WIDE_RESULT, operator
from .registry import Bound, Static, lowers
from .symbols import as_size, holds_symbols, is_symbol


def dense(sparse: Any) -> np.ndarray:
    """A sparse tensor attribute (values, indices flat or by row, dims) as an array."""
    values, indices, dims = sparse
    out = np.zeros(dims, values.dtype)
    if indices.ndim == 1:
        out.reshape(-1)[indices] = values
    else:
        out[tuple(indices.T)] = values
    return out


operator("Constant", FOLDS | WIDE_RESULT, gradients=())


@lowers("Constant", 11, takes="value sparse_value")
@lowers("Constant", 12)
def constant(
    *,
    value: Any = None,
    sparse_value: Any = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> Any:
    """Exactly one attribute gives the value."""
    plain = ((value_float, np.float32), (value_floats, np.float32), (value_int, np.int64), (value_ints, np.int64),
             (value_string, object), (value_strings, object))  # fmt: skip
    given = [np.asarray(v, t) for v, t in plain if v is not None]
    given += [value] if value is not None else []
    given += [dense(sparse_value)] if sparse_value is not None else []
    if len(given) != 1:
        raise popart_exception(f"Constant takes exactly one value attribute, got {len(given)}")
    return given[0]


@lowers("Constant", 1)
def constant_1(*, value: Any) -> Any:
    return value


operator("ConstantOfShape", FOLDS | WIDE_RESULT, gradients=(), ranks="input 1")


@lowers("ConstantOfShape", 9)
def constant_of_shape(shape: Static, /, *, value: Any = None) -> Array:
    """A broadcast view of one element, known while tracing."""
    if value is not None and np.size(value) != 1:
        raise popart_exception(f"ConstantOfShape: value must have one element, got shape {list(np.shape(value))}")
    fill = np.zeros((), np.float32) if value is None else np.asarray(value).reshape(())
    sizes = tuple(as_size(d) for d in shape)
    if any(map(is_symbol, sizes)):
        return jnp.full(sizes, fill)
    limits.check_size(sizes, fill.dtype.itemsize, "ConstantOfShape: a result")
    return np.broadcast_to(fill, sizes)


operator("EyeLike", gradients=(), ranks="input 2")


@lowers("EyeLike", 9)
def eye_like(x: Array, /, *, dtype: int | None = None, k: int = 0) -> Array:
    if np.ndim(x) != 2:
        raise popart_exception(f"EyeLike needs a matrix, got shape {list(np.shape(x))}")
    kind = x.dtype if dtype is None else device_dtype(dtype)
    return jnp.eye(*x.shape, k=k, dtype=jnp.int32).astype(kind)


operator("Range", WIDE_RESULT, gradients=())


@lowers("Range", 11)
def range_(start: Static, limit: Static, delta: Static, /, *, stash_type: int = 1, bound: Bound = None) -> Array:
    """The half-open interval; 16-bit floats are added up in the stash type. A bound counts on behind the limit."""
    if bound is not None:
        first, step = jnp.reshape(start, ()), jnp.reshape(delta, ())
        return first + jnp.arange(bound).astype(first.dtype) * step
    if holds_symbols(limit):
        known = all(np.ndim(v) == 0 and not holds_symbols(v) for v in (start, delta))
        first, step = (v.item() if known else v for v in (start, delta))
        return jnp.arange(first, as_size(limit.item()), step, dtype=device_dtype(np.int64))
    first, last, step = (np.asarray(v).reshape(()) for v in (start, limit, delta))
    if step == 0:
        raise popart_exception("Range: delta is 0")
    kind = np.dtype(first.dtype)
    wide = onnx_dtype(stash_type) if kind.itemsize == 2 and kind.kind not in "iu" else kind
    first, last, step = (v.astype(wide) for v in (first, last, step))
    if kind.kind in "iu":  # in Python integers: the difference may exceed 64 bits
        count = max(-((int(first) - int(last)) // int(step)), 0)
    else:
        count = max(int(np.ceil((last - first) / step)), 0)
    limits.check_size((count,), kind.itemsize, "Range: a result")
    return (first + np.arange(count).astype(wide) * step).astype(kind)
