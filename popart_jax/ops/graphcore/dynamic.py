"""Slices at run-time offsets: dynamic slice, update, add, zero; sequence slices.

An extent that runs past the end wraps around, as on the IPU.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import popart_exception
from ..arrays import Array
from ..builder_methods import builder_method
from ..operator import MOVES_DATA, VIEW_CHANGE, as_graphcore, gradient, operator
from ..registry import lowers
from ..two_way import with_jvp
from .losses import DOMAIN


def _offsets(offset: Any, axes: tuple[int, ...]) -> list[jax.Array]:
    flat = jnp.asarray(offset).reshape(-1).astype(jnp.int32)
    if flat.size != len(axes):
        raise popart_exception(f"The offset has {flat.size} element(s), but there are {len(axes)} axes {axes}.")
    return [flat[i] for i in range(len(axes))]


def _starts_and_sizes(
    shape: tuple[int, ...], offset: Any, axes: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[list[jax.Array], list[int]]:
    starts, extents = [jnp.zeros((), jnp.int32)] * len(shape), list(shape)
    for start, axis, size in zip(_offsets(offset, axes), axes, sizes, strict=True):
        if not 0 < size <= shape[axis]:
            raise popart_exception(f"A slice of {size} elements does not fit into axis {axis} of {list(shape)}.")
        starts[axis], extents[axis] = start, size
    return starts, extents


def _grid(shape: tuple[int, ...], starts: list[jax.Array], extents: list[int]) -> tuple[jax.Array, ...]:
    """Index arrays of the slice with wrap-around, open mesh."""
    rank = len(shape)
    return tuple(
        ((start + jnp.arange(size)) % dim).reshape([-1 if d == axis else 1 for d in range(rank)])
        for axis, (start, size, dim) in enumerate(zip(starts, extents, shape, strict=True))
    )


def _never_wraps(shape: tuple[int, ...], axes: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    return all(size == 1 for size in sizes)


def take(x: jax.Array, offset: Any, axes: tuple[int, ...], sizes: tuple[int, ...]) -> jax.Array:
    """Slice of `sizes` along `axes` at the run-time `offset`."""
    starts, extents = _starts_and_sizes(x.shape, offset, axes, sizes)
    if _never_wraps(x.shape, axes, sizes):
        return lax.dynamic_slice(x, starts, extents)
    for start, axis, size in ((starts[a], a, extents[a]) for a in axes):
        x = jnp.take(x, (start + jnp.arange(size)) % x.shape[axis], axis=axis, unique_indices=True)
    return x


def put(x: jax.Array, offset: Any, part: jax.Array, axes: tuple[int, ...], sizes: tuple[int, ...]) -> jax.Array:
    """`x` with `part` written at the run-time `offset`."""
    starts, extents = _starts_and_sizes(x.shape, offset, axes, sizes)
    if _never_wraps(x.shape, axes, sizes):
        return lax.dynamic_update_slice(x, part, starts)
    return x.at[_grid(x.shape, starts, extents)].set(part, unique_indices=True)


@with_jvp(3, 4)
def _put_beside(x: jax.Array, offset: Any, part: jax.Array, axes: tuple[int, ...], sizes: tuple[int, ...]) -> jax.Array:
    """`put` whose slices never overlap, so PopART's gradient of `x` is not zeroed where `part` was written."""
    return put(x, offset, part, axes, sizes)


@_put_beside.defjvp
def _put_beside_jvp(axes: tuple[int, ...], sizes: tuple[int, ...], primals: Any, tangents: Any) -> Any:
    x, offset, part = primals
    to_x, _, to_part = tangents
    return put(x, offset, part, axes, sizes), to_x + put(jnp.zeros_like(x), offset, to_part, axes, sizes)


def _part(x: jax.Array, part: jax.Array, axes: tuple[int, ...], sizes: tuple[int, ...]) -> jax.Array:
    """The slice operand in the rank of the tensor: a leading 1 may be missing."""
    part = part[None] if part.ndim == x.ndim - 1 else part
    _, extents = list(x.shape), [dict(zip(axes, sizes, strict=True)).get(d, n) for d, n in enumerate(x.shape)]
    if list(part.shape) != extents:
        raise popart_exception(f"The slice has shape {list(part.shape)}, expected {extents}.")
    return part


operator(
    "DynamicSlice",
    MOVES_DATA,
    gradients=gradient("g x1", name="DynamicSlicePadGrad"),
    popxl=as_graphcore(runs=1, module="dynamic"),
)
builder_method("DynamicSlice", "dynamicslice(args, axes:ints, sizes:ints, noOverlap:int=0)")


operator("DynamicSliceInplace", MOVES_DATA, popxl=as_graphcore(runs=1, module="dynamic", runs_as="DynamicSlice"))


@lowers("DynamicSlice", domain=DOMAIN)
def dynamic_slice(
    x: Array, offset: Array, destination: Array | None = None, /, *, axes: tuple[int, ...], sizes: tuple[int, ...],
    noOverlap: int = 0,
) -> jax.Array:  # fmt: skip
    """A third input gives the result its shape and type."""
    part = take(jnp.asarray(x), offset, axes, sizes)
    return part if destination is None else part.reshape(destination.shape).astype(destination.dtype)


operator(
    "DynamicUpdate",
    MOVES_DATA,
    gradients=[
        gradient("g x1", name="DynamicUpdateToUpdateGrad"),
        gradient("g x1", of=2, name="DynamicUpdateUpdaterGrad"),
    ],
    inplace=True,
    popxl=as_graphcore(runs=1, module="dynamic"),
)
builder_method("DynamicUpdate", "dynamicupdate(args, axes:ints, sizes:ints, noOverlap:int=0)")


@lowers("DynamicUpdate", domain=DOMAIN)
def dynamic_update(
    x: Array, offset: Array, part: Array, /, *, axes: tuple[int, ...], sizes: tuple[int, ...], noOverlap: int = 0
) -> jax.Array:
    x = jnp.asarray(x)
    part = _part(x, jnp.asarray(part), axes, sizes)
    return (_put_beside if noOverlap else put)(x, offset, part, axes, sizes)


operator(
    "DynamicAdd",
    MOVES_DATA,
    gradients=[
        gradient(name="IdentityGrad", traits=VIEW_CHANGE),
        gradient("g x1", of=2, name="DynamicUpdateUpdaterGrad"),
    ],
)
builder_method("DynamicAdd", "dynamicadd(args, axes:ints, sizes:ints)")


@lowers("DynamicAdd", domain=DOMAIN)
def dynamic_add(
    x: Array, offset: Array, part: Array, /, *, axes: tuple[int, ...], sizes: tuple[int, ...], noOverlap: int = 0
) -> jax.Array:
    x = jnp.asarray(x)
    starts, extents = _starts_and_sizes(x.shape, offset, axes, sizes)
    return x.at[_grid(x.shape, starts, extents)].add(_part(x, jnp.asarray(part), axes, sizes), unique_indices=True)


operator("DynamicZero", MOVES_DATA, gradients="g x1", inplace=True)
builder_method("DynamicZero", "dynamiczero(args, axes:ints, sizes:ints)")


@lowers("DynamicZero", domain=DOMAIN)
def dynamic_zero(
    x: Array, offset: Array, /, *, axes: tuple[int, ...], sizes: tuple[int, ...], noOverlap: int = 0
) -> jax.Array:
    x = jnp.asarray(x)
    _, extents = _starts_and_sizes(x.shape, offset, axes, sizes)
    return put(x, offset, jnp.zeros(extents, x.dtype), axes, sizes)


operator("SequenceSlice", gradients=())
builder_method("SequenceSlice", "sequenceslice(args, zeroUnused:int=0)")


@lowers("SequenceSlice", domain=DOMAIN)
def sequence_slice(
    source: Array, destination: Array, counts: Array, source_offsets: Array, offsets: Array, /, *, zeroUnused: int = 0
) -> jax.Array:
    """Rows source[so_k : so_k + N_k] to destination[do_k : do_k + N_k], for every k."""
    rows = jnp.arange(destination.shape[0], dtype=jnp.int32)
    counts, origins, starts = (jnp.asarray(v).astype(jnp.int32)[:, None] for v in (counts, source_offsets, offsets))
    inside = (rows >= starts) & (rows < starts + counts)
    origin = jnp.where(inside, origins + rows - starts, 0).max(0)
    written = inside.any(0).reshape(-1, *(1,) * (destination.ndim - 1))
    rest = jnp.zeros((), destination.dtype) if zeroUnused else destination
    return lax.stop_gradient(jnp.where(written, jnp.asarray(source)[origin], rest))
