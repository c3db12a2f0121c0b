"""Gather and scatter by index, also in independent groups."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...enums import ScatterReduction
from ...errors import IN_JAX, popart_exception
from ...model.node_parts import NodeParts
from ..arrays import Array, highest, is_float, listed, lowest
from ..builder_methods import builder_method
from ..gradients import refuse_gradient
from ..operator import ROUNDS, as_graphcore, gradient, operator
from ..registry import lowers
from ..two_way import with_jvp
from .losses import DOMAIN

Shape = tuple[int, ...]


def _axis(axis: int, rank: int, op: str) -> int:
    if not -rank <= axis < rank:
        raise popart_exception(f"{op}Op::setup axis = {axis} is outside the acceptable range [{-rank}, {rank - 1}]")
    return axis % rank


operator("GroupedGather", gradients=gradient("g x1", name="GatherGrad"))
builder_method("GroupedGather", "groupedgather(args=[], axis:int=0, group_size:int=1)")


@lowers("GroupedGather", domain=DOMAIN)
def grouped_gather(data: Array, indices: Array, /, *, axis: int = 0, group_size: int = 1) -> jax.Array:
    """Rows outside the axis, before its start too, are zeros and get no gradient."""
    axis = _axis(axis, data.ndim, "Gather")
    indices = jnp.where(indices < 0, data.shape[axis], indices)
    take = partial(jnp.take, mode="fill", fill_value=0)
    if group_size == 1:
        return take(jnp.asarray(data), indices, axis=axis)
    if axis == 0:
        raise popart_exception("GatherOp::setup axis = 0 indicates the dimension of the group")
    return jax.vmap(partial(take, axis=axis - 1))(jnp.asarray(data), jnp.asarray(indices))


class _Place:
    """Target positions along `axis` of the elements of a source of `shape`: rows (vector index) or single elements."""

    def __init__(self, index: Array, axis: int, shape: tuple[int, ...], size: int) -> None:
        self.axis, self.vector = axis, index.ndim == 1
        self.index = jnp.where(index < 0, size, index).astype(jnp.int32)
        self.shape = shape

    def _key(self) -> tuple[Any, ...]:
        if self.vector:  # in other dimensions the source may be smaller than the target
            block = [slice(n) for n in self.shape]
            return (*block[: self.axis], self.index, *block[self.axis + 1 :])
        grid = [
            jnp.arange(n).reshape([-1 if d == e else 1 for e in range(len(self.shape))])
            for d, n in enumerate(self.shape)
        ]
        return (*grid[: self.axis], self.index, *grid[self.axis + 1 :])

    def scatter_into(self, base: jax.Array, method: str, src: Any) -> jax.Array:
        return getattr(base.at[self._key()], method)(src, mode="drop")

    def written_mask(self, shape: tuple[int, ...]) -> jax.Array:
        """Mask of the elements of the result that an index refers to."""
        return self.scatter_into(jnp.zeros(shape, bool), "set", True)

    def gather_from(self, out: jax.Array) -> jax.Array:
        return out.at[self._key()].get(mode="fill", fill_value=0)


_METHODS = {"sum": "add", "max": "max", "min": "min", "mul": "multiply", "none": "set"}


def _start(reduction: str, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    if reduction == "mul":
        return jnp.ones(shape, dtype)
    if reduction == "max":
        return jnp.full(shape, lowest(dtype))
    if reduction == "min":
        return jnp.full(shape, highest(dtype))
    return jnp.zeros(shape, dtype)


@with_jvp(3, 4, 5)
def scatter_reduce(src: Any, initial: Any, index: Any, axis: int, reduction: str, shape: tuple[int, ...]) -> jax.Array:
    """Reduce `src` along `axis` into `initial`, or the neutral element (for max and min, 0 where nothing lands)."""
    place = _Place(index, axis, src.shape, shape[axis])
    base = _start(reduction, shape, src.dtype) if initial is None else initial
    out = place.scatter_into(base, _METHODS[reduction], src)
    if initial is None and reduction in ("max", "min"):
        return jnp.where(place.written_mask(shape), out, 0)
    return out


@scatter_reduce.defjvp
def _scatter_reduce_jvp(
    axis: int, reduction: str, shape: tuple[int, ...], primals: Any, tangents: Any
) -> tuple[jax.Array, jax.Array]:
    """PopART's gradients: of max and min, every tied element gets the full gradient."""
    src, initial, index = primals
    dsrc, dinitial, _ = tangents
    out = scatter_reduce(src, initial, index, axis, reduction, shape)
    place = _Place(index, axis, src.shape, shape[axis])
    if reduction in ("max", "min"):
        dsrc = jnp.where(src == place.gather_from(out), dsrc, 0)
    elif reduction == "mul":
        dsrc = dsrc * (place.gather_from(out) / src)
    dout = place.scatter_into(jnp.zeros(shape, out.dtype), "add", dsrc)
    if initial is None:
        return out, dout
    if reduction == "none":
        dinitial = jnp.where(place.written_mask(shape), 0, dinitial)
    elif reduction in ("max", "min"):
        dinitial = jnp.where(out == initial, dinitial, 0)
    elif reduction == "mul":
        dinitial = dinitial * (out / initial)
    return out, dout + dinitial


PARTIAL = "Partial broadcasting of indices is not currently supported."


def _expanded(index: Shape, src: Shape, axis: int, grouped: bool) -> Shape:
    """The index's shape in the rank of the source: a vector (of each group) lies along the axis."""
    if len(index) > len(src):
        raise popart_exception(
            f"Invalid rank for indices input. Indices rank {len(index)} must be <= data input rank {len(src)}."
        )
    first = int(grouped)
    vector = len(index) == first + 1 < len(src)
    full = (*index[:first], *(1,) * (axis - first), *index[first:]) if vector else index
    full = (*full, *(1,) * (len(src) - len(full)))
    if any(i > s for i, s in zip(full, src, strict=True)):
        raise popart_exception(
            f"Failed to expand 'indices' shape {listed(index)} to match 'src' shape {listed(src)} using reduction "
            f"axis = {axis}."
        )
    return full


def _fit_index(
    src: jax.Array, index: jax.Array, axis: int, broadcast: bool, grouped: bool
) -> tuple[jax.Array, jax.Array]:
    """Source and index in matching shapes: a vector along `axis`, or an index of the (cropped) source's shape."""
    if index.shape == src.shape:
        return src, index
    full = _expanded(index.shape, src.shape, axis, grouped)
    if not broadcast:
        return src[tuple(slice(n) for n in full)], index.reshape(full)
    if full == src.shape:
        return src, index.reshape(full)
    group = src.shape[: int(grouped)]
    vector = tuple(n if d == axis or d < len(group) else 1 for d, n in enumerate(src.shape))
    if full != vector:
        raise popart_exception(PARTIAL)
    return src, index.reshape(*group, -1)


def _write(parts: NodeParts) -> None:
    kind = parts.attributes["reduction"]
    parts.attributes["reduction"] = "none" if kind is ScatterReduction.NoReduction else kind.name.lower()


operator(
    "ScatterReduce",
    ROUNDS,
    gradients=gradient("g x1 x0 y0 x2", of=(0, 2), reads_by={"sum": "g x1", "none": "g x1 x0"}),
    popxl=as_graphcore(runs=1),
)
builder_method(
    "ScatterReduce",
    "groupedscatterreduce(args=[], axis_size:int, axis:int=-1, reduction:ScatterReduction=Sum, "
    "group_size:int=1, enable_index_broadcast:int=1)",
    "scatterreduce(args=[], axis_size:int, axis:int=-1, reduction:ScatterReduction=Sum, enable_index_broadcast:int=1)",
    write=_write,
)


@lowers("ScatterReduce", domain=DOMAIN)
def scatter_reduce_op(
    src: Array, index: Array, initial: Array | None = None, /, *, axis_size: int, axis: int = -1,
    reduction: str = "sum", group_size: int = 1, enable_index_broadcast: int = 1,
) -> jax.Array:  # fmt: skip
    for name, value in (("axis_size", axis_size), ("group_size", group_size)):
        if value < 1:
            raise popart_exception(f"ScatterReduceOp {name} = {value} is not valid: must be > 0.")
    if enable_index_broadcast not in (0, 1):
        raise popart_exception(
            f"ScatterReduceOp enable_index_broadcast = {enable_index_broadcast} is not valid: must be either 0 or 1."
        )
    if reduction not in _METHODS:
        raise popart_exception(f"ScatterReduce: unknown reduction {reduction!r}, expected one of {sorted(_METHODS)}")
    axis = _axis(axis, src.ndim, "ScatterReduce")
    src, index = jnp.asarray(src), jnp.asarray(index)
    initial = None if initial is None else jnp.asarray(initial)

    src, index = _fit_index(src, index, axis, bool(enable_index_broadcast), group_size > 1)
    beside = [d for d in range(src.ndim) if d != axis]
    if initial is not None and any(d >= initial.ndim or src.shape[d] > initial.shape[d] for d in beside):
        raise popart_exception(
            f"ScatterReduce: initial values of shape {listed(initial.shape)} have no room for data of shape "
            f"{listed(src.shape)} outside axis {axis}."
        )

    def one(axis: int, src: jax.Array, index: jax.Array, initial: jax.Array | None) -> jax.Array:
        shape = tuple(axis_size if d == axis else n for d, n in enumerate(src.shape))
        shape = shape if initial is None else initial.shape
        return scatter_reduce(src, initial, index, axis, reduction, shape)

    if group_size == 1:
        return one(axis, src, index, initial)
    return jax.vmap(partial(one, axis - 1))(src, index, initial)


@lowers("ScatterReduce", domain=DOMAIN, popart=True, refuses=True, like=scatter_reduce_op)
def popart_scatter_reduce(
    src: Array, index: Array, initial: Array | None = None, /, *, enable_index_broadcast: int = 1, **rest: Any
) -> jax.Array:
    """Without index broadcasting PopART has a gradient for an index of the source's shape only."""
    made = scatter_reduce_op(src, index, initial, enable_index_broadcast=enable_index_broadcast, **rest)
    if enable_index_broadcast or index.shape == src.shape or not is_float(made):
        return made
    words = "The gradient of ScatterReduce is implemented only for src.shape == index.shape"
    return refuse_gradient(made, words, IN_JAX)
