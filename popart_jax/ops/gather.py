"""Reading and writing at indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._compat.jax import Tracer
from ..errors import popart_exception, until_compiled
from .arrays import Array, is_text, namespace, normal_axis, wrap_indices
from .later import LATER
from .operator import FOLDS, MOVES_DATA, MOVES_ROWS, ROUNDS, as_onnx, gradient, operator
from .registry import lowers
from .symbols import is_symbol
from .two_way import with_jvp


def _read(data: Array, index: tuple[Any, ...]) -> Any:
    """XLA's gather without handling of indices out of range; texts are read on the host."""
    if is_text(data):
        return LATER if _is_traced(index) else np.asarray(data[_known(index)], object)
    return jnp.asarray(data).at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


operator("Gather", MOVES_DATA | FOLDS | ROUNDS | MOVES_ROWS, gradients="g x1", batch="gather", popxl=as_onnx())


@lowers("Gather", 1)
def gather(data: Array, indices: Array, /, *, axis: int = 0) -> Array:
    along = _gather_axis(data, axis)
    where = wrap_indices(indices, data.shape[along])
    if isinstance(data, np.ndarray) and namespace(indices) is np:
        return np.take(data, where, along)
    return _read(data, (*(slice(None),) * along, where))


@lowers("Gather", 1, popart=True)
def popart_gather(data: Array, indices: Array, /, *, axis: int = 0) -> Array:
    """Negative indices computed at run time are out of range: their rows are undefined and have no gradient."""
    if isinstance(indices, Tracer):
        indices = jnp.where(indices < 0, data.shape[_gather_axis(data, axis)], indices)
    return gather(data, indices, axis=axis)


def _gather_axis(data: Array, axis: int) -> int:
    rank = np.ndim(data)
    if not -rank <= axis < rank:
        raise popart_exception(f"GatherOp::setup axis = {axis} is outside the acceptable range [{-rank}, {rank - 1}]")
    return normal_axis(axis, rank)


operator("GatherElements", MOVES_DATA, ranks="data 1+ indices =data updates =data")


@lowers("GatherElements", 11)
def gather_elements(data: Array, indices: Array, /, *, axis: int = 0) -> Array:
    along = normal_axis(axis, data.ndim)
    where = wrap_indices(indices, data.shape[along])
    if isinstance(data, np.ndarray) and namespace(indices) is np:
        data = data[tuple(slice(n) if i != along else slice(None) for i, n in enumerate(where.shape))]
        return np.take_along_axis(data, where, along)
    return _read(data, _along(where, along))


def _positions(shape: tuple[Any, ...]) -> Sequence[Array]:
    """The position along each axis, as arrays that broadcast to the shape."""
    if not any(map(is_symbol, shape)):
        return np.indices(shape, sparse=True)
    rank = len(shape)
    return [jnp.arange(n).reshape([-1 if i == j else 1 for j in range(rank)]) for i, n in enumerate(shape)]


def _along(where: Array, axis: int) -> tuple[Any, ...]:
    """Index arrays that address `where` along one axis and its own position along the others."""
    own = _positions(where.shape)
    return tuple(where if i == axis else own[i] for i in range(where.ndim))


operator("GatherND", MOVES_DATA, ranks="data 1+ indices 1+")


@lowers("GatherND", 11)
def gather_nd(data: Array, indices: Array, /, *, batch_dims: int = 0) -> Array:
    if not 0 <= batch_dims < min(data.ndim, indices.ndim):
        raise popart_exception(f"GatherND: batch_dims {batch_dims} of data {data.shape} and indices {indices.shape}")
    if not 1 <= indices.shape[-1] <= data.ndim - batch_dims:
        raise popart_exception(
            f"GatherND: {indices.shape[-1]} indices per row into {data.ndim - batch_dims} dimensions"
        )
    parts = [wrap_indices(indices[..., i], data.shape[batch_dims + i]) for i in range(indices.shape[-1])]
    own = _positions(indices.shape[:batch_dims])
    batch = tuple(p.reshape(p.shape + (1,) * (indices.ndim - 1 - batch_dims)) for p in own)
    return _read(data, (*batch, *parts))


@with_jvp()
def multiplied_at(data: Any, updates: Any, index: tuple[Any, ...]) -> jax.Array:
    """Elements at an index multiplied by updates; the gradient holds for repeated indices and for zeros."""
    return data.at[index].multiply(updates)


@multiplied_at.defjvp
def _multiplied_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    (data, updates, index), (to_data, to_updates, _) = primals, tangents
    zero = updates == 0
    product = jnp.ones_like(data).at[index].multiply(jnp.where(zero, jnp.ones_like(updates), updates))
    zeros = jnp.zeros(data.shape, jnp.int32).at[index].add(zero)
    safe = jnp.where(zero, jnp.ones_like(updates), updates)
    others = jnp.where(zeros[index] == zero, product[index] / safe, jnp.zeros_like(updates))
    kept = jnp.where(zeros > 0, jnp.zeros_like(product), product)
    return multiplied_at(data, updates, index), to_data * kept + data * jnp.zeros_like(data).at[index].add(
        to_updates * others
    )


_UPDATES: dict[str, Callable[[Any], Callable[[Any], jax.Array]]] = {
    "none": lambda ref: ref.set,
    "add": lambda ref: ref.add,
    "mul": lambda ref: lambda updates: multiplied_at(ref.array, updates, ref.index),
    "max": lambda ref: ref.max,
    "min": lambda ref: ref.min,
}
_OF_BOOLS = {"add": "max", "mul": "min"}
"""Sums and products of truth values, as NumPy and ONNX Runtime have them: or, and."""


def _is_traced(index: tuple[Any, ...]) -> bool:
    return any(isinstance(i, Tracer) for i in index)


def _known(index: tuple[slice | Array, ...]) -> tuple[slice | np.ndarray, ...]:
    return tuple(i if isinstance(i, slice) else np.asarray(i) for i in index)


def _write(data: Array, index: tuple[Any, ...], updates: Array, reduction: str) -> Array:
    if reduction not in _UPDATES:
        raise popart_exception(f"unknown reduction {reduction!r}; {sorted(_UPDATES)} are known")
    if is_text(data):
        copy = np.array(data, object)
        copy[_known(index)] = updates
        return copy
    if data.dtype == np.bool_:
        reduction = _OF_BOOLS.get(reduction, reduction)
    return _UPDATES[reduction](jnp.asarray(data).at[index])(jnp.asarray(updates))


operator(
    "ScatterElements",
    gradients=[gradient("g x1", name="ScatterDataGrad"), gradient("g x1", of=2, name="ScatterUpdateGrad")],
    ranks="data 1+ indices =data updates =data",
)


@lowers("ScatterElements", 16, popart=True)
@lowers("ScatterElements", 16)
def scatter_elements(
    data: Array, indices: Array, updates: Array, /, *, axis: int = 0, reduction: str = "none"
) -> Array:
    along = normal_axis(axis, data.ndim)
    if indices.shape != updates.shape:
        shapes = f"indices of shape {list(indices.shape)} and updates of shape {list(updates.shape)}"
        raise popart_exception(f"ScatterElements: {shapes} must have the same shape")
    return _write(data, _along(wrap_indices(indices, data.shape[along]), along), updates, reduction)


operator(
    "Scatter",
    gradients=[gradient("g x1", name="ScatterDataGrad"), gradient("g x1", of=2, name="ScatterUpdateGrad")],
    ranks="data 1+ indices =data updates =data",
    popxl=as_onnx(11, runs=13, runs_as="ScatterElements"),
)


@lowers("Scatter", 9)
@lowers("ScatterElements", 11)
def scatter(data: Array, indices: Array, updates: Array, /, *, axis: int = 0) -> Array:
    return scatter_elements(data, indices, updates, axis=axis)


@lowers("Scatter", 9, popart=True)
@lowers("ScatterElements", 11, popart=True)
def popart_scatter(data: Array, indices: Array, updates: Array, /, *, axis: int = 0) -> Array:
    """Negative indices are out of range like those past the end, and dropped; updates are cropped to their shape."""
    if not indices.ndim == updates.ndim == data.ndim:
        raise until_compiled(popart_exception("Partial broadcasting of indices is not currently supported."), data)
    updates = updates[tuple(slice(n) for n in indices.shape)]
    inside = jnp.where(indices < 0, data.shape[normal_axis(axis, data.ndim)], indices)
    return scatter_elements(data, inside, updates, axis=axis)


operator("ScatterND", ranks="data 1+ indices 1+")


@lowers("ScatterND", 11, takes="")
@lowers("ScatterND", 16)
def scatter_nd(data: Array, indices: Array, updates: Array, /, *, reduction: str = "none") -> Array:
    depth = indices.shape[-1]
    if depth > data.ndim or updates.shape != (*indices.shape[:-1], *data.shape[depth:]):
        shapes = f"indices {list(indices.shape)} and updates {list(updates.shape)}"
        raise popart_exception(f"ScatterND: {shapes} do not fit data of shape {list(data.shape)}")
    parts = tuple(wrap_indices(indices[..., i], data.shape[i]) for i in range(depth))
    return _write(data, parts, updates, reduction)
