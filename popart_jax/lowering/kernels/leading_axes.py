"""Reductions over dimensions before the last, as over a batch or the classes of pixels: row after row, in one loop.

YNNPACK, to which XLA:CPU gives reductions, reads wide rows badly and wakes another thread for few small ones. In us, by
YNNPACK and row after row (Intel Xeon, two cores, jaxlib 0.10): 8 rows of 64 x 64 x 32 4,219 and 225, of 128 x 768 3,290
and 152, 16 of 3,000 43 and 7, 1,000 of 20,000 63,700 and 3,100, twice 21 of 256 x 256 11,186 and 371; 64 of 16,000 336
and 216, but of 20,000 2,887 and 269. Other reductions are left to it: over the 8 x 64 x 64 places of 32 channels it
takes 177, XLA's own loop 594.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import groupby
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..._compat.jax import is_symbolic_dim
from ...ops.arrays import is_float, wide
from ...ops.folding import largest, smallest, spread, total
from ...ops.two_way import two_way

_FEW_ROWS, _LONG, _WIDE, _MOST_BYTES = 32, 1024, 1 << 14, 4


@total.form_for("cpu")
def total_by_rows(x: Any, axes: Sequence[int]) -> Any:
    """See `ops.folding.total`."""
    return _total(x, tuple(axes), x.shape) if _suits(x, axes) else total.plain(x, axes)


@partial(two_way, nondiff_argnums=(1, 2))
def _total(x: jax.Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> jax.Array:
    """Sum of x of this shape."""
    return _by_rows(lax.add, wide(x), axes).astype(x.dtype)


def _forward(x: jax.Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[jax.Array, None]:
    return _total(x, axes, shape), None


def _backward(axes: tuple[int, ...], shape: tuple[int, ...], _: None, g: jax.Array) -> tuple[jax.Array]:
    return (jnp.broadcast_to(g, shape),)


_total.defvjp(_forward, _backward)


@largest.form_for("cpu")
def largest_by_rows(x: Any, axes: Sequence[int]) -> Any:
    """See `ops.folding.largest`."""
    return _by_rows(lax.max, x, axes) if _suits(x, axes) else largest.plain(x, axes)


@smallest.form_for("cpu")
def smallest_by_rows(x: Any, axes: Sequence[int]) -> Any:
    """See `ops.folding.smallest`."""
    return _by_rows(lax.min, x, axes) if _suits(x, axes) else smallest.plain(x, axes)


def _suits(x: Any, axes: Sequence[int]) -> bool:
    """Whether to reduce row after row; YNNPACK knows neither integers nor double precision."""
    known = is_float(x) and x.dtype.itemsize <= _MOST_BYTES
    return known and _is_slow(x.shape, [a in axes for a in range(x.ndim)])


def _is_slow(shape: Sequence[Any], gone: Sequence[bool]) -> bool:
    """Whether YNNPACK is slow to reduce an array over the dimensions that are `gone`."""
    if any(map(is_symbolic_dim, shape)):
        return False
    before, rows, long = _merged(shape, gone)
    few = before == 1 and rows <= _FEW_ROWS and long >= _LONG
    return before * rows * long == math.prod(shape) and rows > 1 and (few or long > _WIDE)


def _merged(shape: Sequence[int], gone: Sequence[bool]) -> tuple[int, int, int]:
    """Sizes of the first dimensions that stay, the next that are gone, and the next that stay; others may follow."""
    runs = groupby(((size, away) for size, away in zip(shape, gone, strict=True) if size != 1), itemgetter(1))
    sizes = [(away, math.prod(size for size, _ in run)) for away, run in runs]
    sizes = sizes if sizes and not sizes[0][0] else [(False, 1), *sizes]
    before, rows, long = ([size for _, size in sizes] + [1, 1])[:3]
    return before, rows, long


def _by_rows(combine: Callable[[Any, Any], Any], x: jax.Array, axes: Sequence[int]) -> jax.Array:
    before, count, long = _merged(x.shape, [a in axes for a in range(x.ndim)])
    rows = x.reshape(before, count, long)
    while (count := rows.shape[1]) > _FEW_ROWS:
        some = count // _FEW_ROWS
        cut = some * _FEW_ROWS
        parts = rows[:, :cut].reshape(before, _FEW_ROWS, some, long)
        rows = jnp.concatenate([_in_turn(combine, parts), rows[:, cut:]], 1)
    return _in_turn(combine, rows).reshape([1 if a in axes else n for a, n in enumerate(x.shape)])


def _in_turn(combine: Callable[[Any, Any], Any], parts: jax.Array) -> jax.Array:
    """Over the second dimension."""
    return reduce(combine, (lax.index_in_dim(parts, i, 1, keepdims=False) for i in range(parts.shape[1])))


@spread.form_for("cpu")
def spread_to(x: Any, other: Sequence[Any]) -> Any:
    """See `ops.folding.spread`; its gradient is such a sum."""
    if any(map(is_symbolic_dim, (*x.shape, *other))):
        return x
    shape = tuple(m if n == 1 else n for n, m in zip(x.shape, other, strict=True))
    return _spread(x, x.shape, shape) if _is_slow(shape, [n != m for n, m in zip(x.shape, shape, strict=True)]) else x


@partial(two_way, nondiff_argnums=(1, 2))
def _spread(x: jax.Array, before: tuple[int, ...], shape: tuple[int, ...]) -> jax.Array:
    """Broadcast x, `before` of this shape."""
    return jnp.broadcast_to(x, shape)


def _spread_forward(x: jax.Array, before: tuple[int, ...], shape: tuple[int, ...]) -> tuple[jax.Array, None]:
    return _spread(x, before, shape), None


def _spread_backward(before: tuple[int, ...], shape: tuple[int, ...], _: None, g: jax.Array) -> tuple[jax.Array]:
    gone = tuple(a for a, (small, whole) in enumerate(zip(before, shape, strict=True)) if small != whole)
    return (_total(g, gone, shape),)


_spread.defvjp(_spread_forward, _spread_backward)
