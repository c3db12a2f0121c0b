"""Symbolic sizes (dimension variables of `jax.export`) in shape arithmetic.

A tensor of sizes with a symbol is a NumPy array of objects. The operators that exporters use to compute shapes work on
such arrays as on numbers; for all others the sizes are INT64 numbers known at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._compat.jax import is_symbolic_dim, max_dim, min_dim


def is_symbol(size: Any) -> bool:
    """Whether a size is a symbol, not a number."""
    return not isinstance(size, (int, np.generic)) and is_symbolic_dim(size)


def holds_symbols(x: Any) -> bool:
    """Whether an array of sizes holds a symbol."""
    if not isinstance(x, np.ndarray):
        return False
    sizes = cast("np.ndarray", x)
    return sizes.dtype == object and any(map(is_symbol, sizes.flat))


def as_size(x: Any) -> Any:
    """A size as `reshape` takes it: an `int`, or the symbol."""
    return x if is_symbol(x) else int(x)


def as_sizes(sizes: Sequence[Any]) -> np.ndarray:
    """Sizes as an INT64 array, or an array of objects where one is a symbol."""
    return np.asarray(sizes, object if any(map(is_symbol, sizes)) else np.int64)


def stand_in(x: Any) -> Any:
    """An INT64 array in place of one that holds symbols, for checks of types and ranks."""
    return np.zeros(x.shape, np.int64) if holds_symbols(x) else x


def at_run_time(x: np.ndarray) -> Any:
    """The sizes as an array that is computed at run time."""
    if not x.size:
        return jnp.zeros(x.shape, np.int64)
    return jnp.stack([jnp.asarray(d) for d in x.flat]).reshape(x.shape)


def broadcast_shapes(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """The shape that NumPy's rule gives, symbols included."""
    if any(is_symbol(d) for shape in shapes for d in shape):
        return lax.broadcast_shapes(*map(tuple, shapes))
    return np.broadcast_shapes(*map(tuple, shapes))


def clamped(at: Any, size: Any) -> Any:
    """An index counted from the front, clamped between 0 and the size."""
    if is_symbol(at) or is_symbol(size):
        if isinstance(at, int) and at >= np.iinfo(np.int32).max:  # the exporters' way to write "to the end"
            return size
        return max_dim(0, min_dim(at, size))
    return min(max(at, 0), size)


def _each(fn: Callable[..., Any]) -> Callable[..., Any]:
    return np.frompyfunc(fn, 2, 1)


def _prod(x: np.ndarray, *_: Any, keepdims: int = 1, **__: Any) -> np.ndarray:
    """ReduceProd of a vector: shapes have one axis."""
    found = np.empty((1,) if keepdims else (), object)
    found[...] = math.prod(x.flat)
    return found


def _mod(x: Any, y: Any, **_: Any) -> Any:
    return np.mod(x, y)


def _equal(x: Any, y: Any) -> np.ndarray:
    def same(a: Any, b: Any) -> bool:
        return bool(a == b)

    return np.asarray(_each(same)(x, y), bool)


def _concat(*xs: Any, axis: int) -> np.ndarray:
    return np.concatenate(xs, axis)


_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.floor_divide,  # sizes are not negative
    "Mod": _mod,
    "Neg": np.negative,
    "Max": _each(max_dim),
    "Min": _each(min_dim),
    "Equal": _equal,
    "Where": np.where,
    "Concat": _concat,
    "ReduceProd": _prod,
}
_INT64 = 7  # of onnx.TensorProto, the type of sizes
KEEPS = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
"""Operators that keep all elements, in their order."""
_MOVES = KEEPS | {"Gather", "Slice", "Split", "Transpose"}


def computed(
    op: str, fn: Callable[..., Any], operands: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """Results of an operator on operands known while tracing that hold symbols; None where it needs numbers."""
    if op in _MOVES:
        if any(map(holds_symbols, operands[1:])):
            return None
        found = fn(*operands, **kwargs)
    elif op in _ARITHMETIC and all(x is None or x.dtype.kind in "iuOb" for x in operands):
        given = {n: v for n, v in kwargs.items() if n in ("axis", "keepdims")}
        found = _ARITHMETIC[op](*operands, **given)
    elif op == "Kept" or (op == "Cast" and kwargs.get("to") == _INT64):
        found = operands[0]
    else:
        return None
    return tuple(map(_settled, cast("tuple[Any, ...]", found) if isinstance(found, tuple) else (found,)))


def _settled(x: Any) -> np.ndarray:
    """Convert an array of objects without symbols to one of numbers."""
    array = np.asarray(x)
    return array if array.dtype != object or holds_symbols(array) else array.astype(np.int64)
