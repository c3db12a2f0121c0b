"""Choosing elements: Where, OneHot, TopK and the operators whose result shape depends on data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._compat.jax import lowered_now
from ..errors import OpError, popart_exception
from .arrays import Array, as_index, is_text, namespace, normal_axis, one_element
from .elementwise import check_frames, check_operands
from .moving import moves_texts
from .operator import ELEMENTWISE, INDEX_RESULT, WIDE_RESULT, as_onnx, gradient, operator
from .registry import Bound, Fill, Static, lowers
from .symbols import broadcast_shapes

operator(
    "Where",
    ELEMENTWISE,
    gradients=[gradient("g x0", of=1, name="WhereXGrad"), gradient("g x0", of=2, name="WhereYGrad")],
    inplace={1: "WhereLhsInplace", 2: "WhereRhsInplace"},
    popxl=as_onnx(9, runs=16),
)


@lowers("Where", 9)
@moves_texts
def where(condition: Array, x: Array, y: Array, /) -> Array:
    check_operands("Where", x, y)
    check_frames("Where", np.shape(condition), broadcast_shapes(np.shape(x), np.shape(y)))
    return namespace(condition, x, y).where(condition, x, y)


operator(
    "OneHot",
    gradients=gradient("g x0", of=2),
    ranks="values 1",
    popxl=as_onnx(9, runs=11, name="OnehotOp"),
    not_constant="The depth Tensor `{tensor}' does not have data",
)


@lowers("OneHot", 9)
def one_hot(indices: Array, depth: Static, values: Array, /, *, axis: int = -1) -> Array:
    """Rows of `values[0]` with `values[1]` at the index; an index out of range sets nothing."""
    return _hot_rows(indices, depth, values, axis, counts_back=not _is_unsigned(indices))


@lowers("OneHot", 9, popart=True)
def popart_one_hot(indices: Array, depth: Static, values: Array, /, *, axis: int = -1) -> Array:
    """An index below 0 is out of range too."""
    return _hot_rows(indices, depth, values, axis, counts_back=False)


def _hot_rows(indices: Array, depth: Any, values: Array, axis: int, *, counts_back: bool) -> Array:
    """Where `counts_back`, negative indices count from the end."""
    if np.size(depth) != 1:
        raise popart_exception("The depth tensor should be rank 0 in OneHot")
    size, along = int(np.asarray(depth).item()), normal_axis(axis, np.ndim(indices) + 1)
    if size < 0:
        raise popart_exception(f"OneHot: depth must not be negative, got {size}")
    if np.size(values) != 2:
        raise popart_exception(f"OneHot: values must hold the off and the on value, got {np.size(values)} elements")
    wrapped = jnp.where(indices < 0, indices + size, indices) if counts_back else jnp.asarray(indices)
    places = jnp.arange(size).astype(wrapped.dtype).reshape([-1 if i == along else 1 for i in range(wrapped.ndim + 1)])
    hot = jnp.expand_dims(wrapped, along) == places
    if is_text(values):
        return np.where(np.asarray(hot), values[1], values[0])
    return jnp.where(hot, values[1], values[0])


def _is_unsigned(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.unsignedinteger)


operator(
    "TopK",
    INDEX_RESULT | WIDE_RESULT,
    gradients=gradient("g y1", kernel=True),
    batch="along axis",
    ranks="K 1",
    parameters={1: "K"},
    popxl=as_onnx(),
    neutral="lowest",
    not_constant="The tensor `{tensor}` does not have data",
)


@lowers("TopK", 10, takes="axis")
@lowers("TopK", 11)
def top_k(x: Array, k: Static, /, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Array, Array]:
    """Always sorted, ties in order of the index."""
    count = int(one_element(k, "TopK: k"))
    check_sorted_axis("TopK", axis, x.ndim)
    along = axis % x.ndim
    if not 0 <= count <= x.shape[along]:  # PopART names the axis, not its size
        raise OpError(f"Cannot take top-{count} on dim of size {along}, invalid Op {{op}}", "TopK")
    last = jnp.moveaxis(jnp.asarray(x), along, -1)
    if largest and not _is_unsigned(last):
        _, index = lax.top_k(_one_zero(last), count)
    else:
        index = lax.slice_in_dim(jnp.argsort(last, -1, stable=True, descending=bool(largest)), 0, count, axis=-1)
    values = jnp.take_along_axis(last, index, -1)
    return jnp.moveaxis(values, -1, along), jnp.moveaxis(as_index(index), -1, along)


def _one_zero(x: jax.Array) -> jax.Array:
    """`x` with one zero: to `lax.top_k` 0 is larger than -0."""
    return jnp.where(x == 0, jnp.zeros_like(x), x) if jnp.issubdtype(x.dtype, jnp.floating) else x


def check_sorted_axis(op: str, axis: int, rank: int) -> None:
    """Raise OpError, in PopART's words for TopK and Sort, unless a tensor of this rank has the axis."""
    if rank == 0:
        raise OpError("BaseSortOp input rank must be greater than 0, invalid BaseSortOp {op}.", op)
    if not -rank <= axis < rank:
        raise OpError(
            f"Cannot compute BaseSortOp on axis {axis} when input rank is {rank}, invalid BaseSortOp {{op}}.", op
        )


@lowers("TopK", 1)
def top_k_1(x: Array, /, *, k: int, axis: int = -1) -> tuple[Array, Array]:
    return top_k(x, np.asarray(k), axis=axis)


BEYOND = int(np.iinfo(np.int32).max)
"""An index outside of every tensor, which scatters drop."""

operator("NonZero", WIDE_RESULT, gradients=())


@lowers("NonZero", 9)
def non_zero(x: Array, /, *, bound: Bound = None, fill: Fill = None) -> Array:
    """The result shape depends on data: exact outside jit. A bound pads with columns of `fill` (default `BEYOND`)."""
    fill = BEYOND if fill is None else fill
    if np.ndim(x) == 0:
        return as_index(jnp.zeros((0, bound or (1 if x else 0)), np.int32))
    mask: Any = x != "" if is_text(x) else x
    return as_index(jnp.stack(places(mask, bound, fill)))


def places(mask: Any, size: int | None, fill: Any) -> Sequence[jax.Array]:
    """`jax.numpy.nonzero`: as many places as there are, which takes known values, or `size` of them."""
    if size is None:
        return jnp.nonzero(mask)

    def found(mask: Any) -> Sequence[jax.Array]:
        return jnp.nonzero(mask, size=size, fill_value=fill)

    return lowered_now(found, mask)


operator("Compress", ranks="condition 1")


@lowers("Compress", 9)
def compress(x: Any, condition: Static, /, *, axis: int | None = None, bound: Bound = None, fill: Fill = None) -> Any:
    """The selected elements, or slices along `axis`. A bound pads with zeros."""
    xp = np if is_text(x) else namespace(x)
    flat = x.reshape(-1) if axis is None else x
    along = 0 if axis is None else normal_axis(axis, x.ndim)
    if np.size(condition) > flat.shape[along]:
        raise popart_exception(f"Compress: {np.size(condition)} conditions for {flat.shape[along]} elements")
    if bound is None:
        return xp.take(flat, np.flatnonzero(condition), along)
    if not flat.shape[along]:
        return jnp.full((*flat.shape[:along], bound, *flat.shape[along + 1 :]), fill or 0, flat.dtype)
    (where,) = places(condition, bound, flat.shape[along])
    return jnp.take(jnp.asarray(flat), where, along, mode="fill", fill_value=0 if fill is None else fill)


operator("Unique", WIDE_RESULT)


@lowers("Unique", 11)
def unique(
    x: Static, /, *, axis: int | None = None, sorted: int = 1, bound: Bound = None, fill: Fill = None
) -> tuple[Any, ...]:
    """Distinct elements (or slices along `axis`), first positions, inverse and counts; unsorted: by first position.

    A bound repeats the smallest element, with a count of 0.
    """
    if bound is not None:
        return _bounded_unique(jnp.asarray(x), axis, bool(sorted), bound, fill)
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    if not sorted:
        order = np.argsort(first)
        place = np.argsort(order)
        values, first, counts = np.take(values, order, axis or 0), first[order], counts[order]
        inverse = place[inverse]
    return (values, *(np.asarray(i, np.int64).reshape(-1) for i in (first, inverse, counts)))


def _bounded_unique(x: Any, axis: int | None, sort: bool, size: int, fill: Any) -> tuple[Any, ...]:
    fill = 0 if fill is None and not x.size else fill  # there is no smallest one

    def found(x: Any) -> Sequence[jax.Array]:
        return cast("Sequence[jax.Array]", jnp.unique(x, True, True, True, axis, size=size, fill_value=fill))

    values, first, inverse, counts = lowered_now(found, x)
    inverse = inverse.reshape(-1)
    if not sort:
        order = jnp.argsort(jnp.where(counts > 0, first, np.iinfo(np.int32).max), stable=True)
        values, first, counts = jnp.take(values, order, axis or 0), first[order], counts[order]
        inverse = jnp.argsort(order)[inverse]
    return (values, *map(as_index, (first, inverse, counts)))
