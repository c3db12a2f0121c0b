"""Helpers shared by the operator families."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from .._compat.jax import Tracer
from ..errors import popart_exception
from ..model.op_names import listed as listed
from ..model.op_names import type_and_shape
from .symbols import holds_symbols, is_symbol

Array = jax.Array | np.ndarray


def namespace(*arrays: Any) -> ModuleType:
    """`numpy` if every operand is known while tracing, else `jax.numpy`: keeps shape arithmetic cheap and static."""
    return np if all(x is None or isinstance(x, (np.ndarray, np.generic, int, float, bool)) for x in arrays) else jnp


def onnx_dtype(number: int) -> np.dtype:
    """NumPy (ml_dtypes) type of an ONNX type number."""
    return ir.DataType(number).numpy()


def device_dtype(dtype: int | Any) -> np.dtype:
    """The type that JAX uses for an ONNX type number or NumPy type: without x64, 64-bit types become 32-bit."""
    return jax.dtypes.canonicalize_dtype(onnx_dtype(dtype) if isinstance(dtype, int) else dtype)


def as_index(x: Any) -> Any:
    """Index results have ONNX type INT64."""
    known = isinstance(x, (np.ndarray, np.generic))
    return x.astype(np.int64 if known else device_dtype(np.int64))


def as_results(made: Any) -> tuple[Any, ...]:
    """What a translation returned, as a tuple: one result may come without."""
    return cast("tuple[Any, ...]", made) if isinstance(made, tuple) else (made,)


def dtype_name(x: Any) -> str:
    """ONNX name of an array's type, such as FLOAT16."""
    try:
        return ir.DataType.from_numpy(np.dtype(x.dtype)).name
    except (TypeError, AttributeError):
        return str(getattr(x, "dtype", type(x).__name__))


def info(x: Any) -> str:
    """An array's type as PopART prints it: ``FLOAT   [2 3]``."""
    return type_and_shape(dtype_name(x), np.shape(x))


def lowest(dtype: Any) -> np.ndarray:
    """Smallest value of a type: the neutral element of max."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.asarray(-np.inf, dtype)
    return np.asarray(False if dtype == np.bool_ else jnp.iinfo(dtype).min, dtype)


def highest(dtype: Any) -> np.ndarray:
    """Largest value of a type: the neutral element of min."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.asarray(np.inf, dtype)
    return np.asarray(True if dtype == np.bool_ else jnp.iinfo(dtype).max, dtype)


def is_float(x: Any) -> bool:
    """Whether the type is real floating point, ml_dtypes included."""
    return jnp.issubdtype(x.dtype, jnp.floating)


def is_text(x: Any) -> bool:
    """Whether `x` is an array of ONNX strings."""
    return isinstance(x, np.ndarray) and x.dtype.kind in "OUS" and not holds_symbols(x)


AXIS = "Axis {} is out of acceptable range"


def normal_axis(axis: int, rank: int, told: str = AXIS) -> int:
    """Axis counted from the front, which has to be in [-rank, rank-1].

    `told` is the start of the text of the popart_exception otherwise, with `{}` for the axis.
    """
    axis = int(axis)
    if not -rank <= axis < rank:
        raise popart_exception(f"{told.format(axis)} [{-rank}, {rank - 1}]")
    return axis % rank if rank else 0


def normal_axes(axes: Sequence[int] | np.ndarray, rank: int) -> tuple[int, ...]:
    """Several axes counted from the front; each may appear once."""
    found = tuple(normal_axis(a, rank) for a in np.atleast_1d(np.asarray(axes, np.int64)).tolist())
    if len(set(found)) != len(found):
        raise popart_exception(f"axes {list(found)} name a dimension twice")
    return found


def merge_axes(x: Any, start: int, stop: int | None = None) -> Any:
    """Axes from `start` up to `stop` as one. A -1 in `reshape` says nothing where another axis has no elements."""
    first, last, _ = slice(start, stop).indices(x.ndim)
    return x.reshape(*x.shape[:first], math.prod(x.shape[first:last]), *x.shape[last:])


def split_axis(x: Any, axis: int, parts: int) -> Any:
    """One axis as two, of `parts` and of what each part has; also of arrays without elements."""
    at = axis % x.ndim
    return x.reshape(*x.shape[:at], parts, x.shape[at] // parts, *x.shape[at + 1 :])


def one_element(x: Any, what: str) -> Any:
    """The single element of a known array."""
    array = np.asarray(x)
    if array.size != 1:
        raise popart_exception(f"{what} must have one element, got shape {list(array.shape)}")
    return array.reshape(())[()]


def wrap_indices(indices: Any, size: int) -> Any:
    """Indices counted from the front, ONNX's negative ones added up.

    Known indices outside [-size, size-1] raise popart_exception; outside `jit` all are known. Inside it, indices
    computed on the device are not checked (XLA clamps reads and drops writes).
    """
    xp = namespace(indices)
    if is_symbol(size):
        return _wrapped_at_run_time(indices, size)
    if not isinstance(indices, Tracer):
        known = np.asarray(indices)
        indices = known if xp is np else indices
        if known.size and (known.min() < -size or known.max() >= size):
            raise popart_exception(
                f"index out of range: expected [{-size}, {size - 1}], got [{known.min()}, {known.max()}]"
            )
    if not jnp.issubdtype(indices.dtype, jnp.signedinteger):
        return indices
    return xp.where(indices < 0, indices + np.asarray(size, indices.dtype), indices)


def _wrapped_at_run_time(indices: Any, size: Any) -> Any:
    """`wrap_indices` for an axis whose size is a symbol."""
    if namespace(indices) is np and np.all(np.asarray(indices) >= 0):
        return indices
    where = jnp.asarray(indices)
    return jnp.where(where < 0, where + jnp.asarray(size).astype(where.dtype), where)


def first_extreme(x: Any, axis: int, largest: bool = True) -> jax.Array:
    """INT32 index of the largest (or smallest) element along an axis, the first of equals.

    JAX's own default is a 64-bit index inside the x64 scope, which `jit` outside of it can't lower.
    """
    data = jnp.asarray(x)
    data = data.astype(jnp.uint8) if data.dtype == np.bool_ else data
    return (jax.lax.argmax if largest else jax.lax.argmin)(data, axis, jnp.int32)


def wide(x: Any) -> Any:
    """Floating point data in at least single precision, so that sums and products of float16 are accurate."""
    kind = jnp.promote_types(x.dtype, jnp.float32)
    return x if x.dtype == kind else x.astype(kind)


def settled(x: Any) -> Any:
    """The rounded numbers themselves: compilers can't contract their product with the sum that reads it (FMA).

    XLA's compilers for CPUs and GPUs contract across barriers, bit casts and `reduce_precision`, not across a choice.
    """
    return jnp.where(x == x, x, jnp.nan) if jnp.issubdtype(x.dtype, jnp.floating) else x


def times_power_of_two(x: Any, power: Any) -> Any:
    """Float32 numbers times 2**power, exactly in the normal range; `jnp.ldexp` has powers, which GPUs approximate."""
    half = jnp.asarray(power, jnp.int32) // 2
    return x * _power_of_two(half) * _power_of_two(power - half)


def _power_of_two(exponent: Any) -> Any:
    """From the bits of a float32; exponents outside of its normal range are the nearest inside."""
    bits = (jnp.clip(exponent, -126, 127).astype(jnp.int32) + 127) << 23
    return jax.lax.bitcast_convert_type(bits, jnp.float32)
