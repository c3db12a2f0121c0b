"""Operators that change or ask for shapes without touching elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import OpError, popart_exception
from ..limits import limits
from .arrays import Array, dtype_name, listed, namespace, normal_axes, normal_axis
from .moving import moves_texts
from .operator import (
    FOLDS,
    MOVES_DATA,
    MOVES_ROWS,
    NEEDS_VALUE,
    PER_SAMPLE,
    ROUNDS,
    VIEW_CHANGE,
    WIDE_RESULT,
    as_onnx,
    gradient,
    operator,
)
from .registry import Static, lowers
from .symbols import as_size, as_sizes, broadcast_shapes, is_symbol

operator("Shape", FOLDS | WIDE_RESULT, gradients=())


@lowers("Shape", 15)
def shape(x: Any, /, *, start: int = 0, end: int | None = None) -> np.ndarray:
    return as_sizes(np.shape(x)[start:end])


@lowers("Shape", 1)
def shape_1(x: Any, /) -> np.ndarray:
    return as_sizes(np.shape(x))


operator("Size", WIDE_RESULT)


@lowers("Size", 1)
def size(x: Any, /) -> np.ndarray:
    return as_sizes([math.prod(np.shape(x))]).reshape(())


def unequal_sizes(old: Sequence[int], new: Sequence[int]) -> str:
    """PopART's error text for a Reshape to another number of elements."""
    return (
        f"Failure in ReshapeOp from {listed(old)} to {listed(new)}. The number of elements of the input is "
        f"{math.prod(old)}, while the number of elements of the output is {math.prod(new)}. The number of elements "
        "cannot change for a ReshapeOp"
    )


def target_shape(old: Sequence[int], wanted: Sequence[int], allowzero: bool) -> list[int]:
    """Shape that a Reshape yields: 0 copies a dimension, one -1 is inferred.

    A shape with another number of elements than `old` raises popart_exception.
    """
    wanted = [as_size(d) for d in wanted]
    for d in wanted:
        if d < -1:
            raise popart_exception(f"Dimension, {d}, of new shape for Reshape cannot be smaller than -1.")
    if wanted.count(-1) > 1:
        raise popart_exception("shape input to ReshapeOp can only use -1 to specify one unknown dimension")
    if any(d == 0 and i >= len(old) for i, d in enumerate(wanted)) and not allowzero:
        raise popart_exception(
            f"Reshape from {listed(old)} to {listed(wanted)}: 0 copies a dimension that is not there"
        )
    new = [old[i] if d == 0 and not allowzero else d for i, d in enumerate(wanted)]
    if any(map(is_symbol, (*old, *new))):
        if -1 not in new and math.prod(old) != math.prod(new):
            raise popart_exception(
                f"Reshape from {listed(old)} to {listed(new)}: the number of elements is not the same for all sizes"
            )
        return new  # JAX infers -1
    count, known = math.prod(old), math.prod(d for d in new if d != -1)
    if -1 in new:
        if known == 0 or count % known:
            raise popart_exception("Incompatible inferred dimension, not whole number.")
        new[new.index(-1)] = count // known
    elif count != known:
        raise popart_exception(unequal_sizes(old, new))
    return new


operator(
    "Reshape",
    VIEW_CHANGE | MOVES_DATA | FOLDS | MOVES_ROWS,
    gradients=gradient(view="ReshapeInplace", traits=VIEW_CHANGE),
    view=True,
    batch="view",
    ranks="shape 1",
    parameters={1: "shape"},
    popxl=as_onnx(5, runs=1),
    not_constant=NEEDS_VALUE,
)


@lowers("Reshape", 5, takes="")
@lowers("Reshape", 14)
def reshape(x: Array, shape: Static, /, *, allowzero: int = 0) -> Array:
    return x.reshape(target_shape(x.shape, np.atleast_1d(shape).tolist(), allowzero == 1))


@lowers("Reshape", 1)
def reshape_1(x: Array, /, *, shape: Sequence[int] = ()) -> Array:
    return reshape(x, np.asarray(shape, np.int64))


operator(
    "Flatten",
    VIEW_CHANGE | FOLDS | MOVES_ROWS,
    gradients=gradient(name="ReshapeGrad", view="ReshapeInplace", traits=VIEW_CHANGE),
    view="ReshapeInplace",
    batch="view",
)


@lowers("Flatten", 1)
def flatten(x: Array, /, *, axis: int = 1) -> Array:
    if not -x.ndim <= axis <= x.ndim:
        raise popart_exception(f"invalid axis {axis} in flattenOpFactory")
    split = axis if axis >= 0 else axis + x.ndim
    return x.reshape(math.prod(x.shape[:split]), math.prod(x.shape[split:]))


operator(
    "Squeeze",
    VIEW_CHANGE | FOLDS | MOVES_ROWS,
    gradients=gradient(traits=VIEW_CHANGE),
    view=True,
    batch="view",
    ranks="axes 0-1",
    parameters={1: "axes"},
)


@lowers("Squeeze", 13)
def squeeze(x: Array, axes: Static = None, /) -> Array:
    empty = axes is None or np.size(axes) == 0
    found = [i for i, d in enumerate(x.shape) if d == 1] if empty else normal_axes(np.asarray(axes), x.ndim)
    if any(x.shape[a] != 1 for a in found):
        raise popart_exception(f"Squeeze of axes {list(found)}: shape {list(x.shape)} has a size other than 1 there")
    return x.reshape([d for i, d in enumerate(x.shape) if i not in found])


@lowers("Squeeze", 1)
def squeeze_1(x: Array, /, *, axes: Sequence[int] | None = None) -> Array:
    return squeeze(x, None if axes is None else np.asarray(axes, np.int64))


operator(
    "Unsqueeze",
    VIEW_CHANGE | FOLDS | MOVES_ROWS,
    gradients=gradient(traits=VIEW_CHANGE),
    view=True,
    batch="view",
    ranks="axes 0-1",
    parameters={1: "axes"},
)


@lowers("Unsqueeze", 13)
def unsqueeze(x: Array, axes: Static, /) -> Array:
    xp = namespace(x)
    return xp.expand_dims(x, normal_axes(axes, np.ndim(x) + np.size(axes)))


@lowers("Unsqueeze", 1)
def unsqueeze_1(x: Array, /, *, axes: Sequence[int]) -> Array:
    return unsqueeze(x, np.asarray(axes, np.int64))


operator(
    "Transpose",
    VIEW_CHANGE | MOVES_DATA | FOLDS | MOVES_ROWS,
    gradients=gradient(view="TransposeInplace", traits=VIEW_CHANGE),
    view=True,
    batch="transpose",
    popxl=as_onnx(runs=13),
)


@lowers("Transpose", 1)
def transpose(x: Array, /, *, perm: Sequence[int] | None = None) -> Array:
    if perm and len(perm) != x.ndim:
        raise popart_exception(
            f"Rank of permutation tensor {listed(perm)}, rank {len(perm)} must be equal to rank of input tensor, shape "
            f"{listed(x.shape)}, rank {x.ndim}."
        )
    if perm and sorted(perm) != list(range(x.ndim)):
        raise popart_exception(f"Transpose: perm {list(perm)} must name each of the axes 0 to {x.ndim - 1} once")
    return namespace(x).transpose(x, perm or None)


operator(
    "Expand",
    VIEW_CHANGE | ROUNDS | MOVES_ROWS,
    gradients="g",
    view=True,
    ranks="shape 1",
    parameters={1: "shape"},
    not_constant=NEEDS_VALUE,
)


@lowers("Expand", 8)
def expand(x: Array, shape: Static, /) -> Array:
    try:
        wanted = broadcast_shapes(x.shape, [as_size(d) for d in np.atleast_1d(shape)])
    except ValueError:
        raise popart_exception(
            "Expand shape constraint: corresponding dimensions must have the same value or one of them must be 1"
        ) from None
    return (jnp if any(map(is_symbol, wanted)) else namespace(x)).broadcast_to(x, wanted)


operator(
    "Tile",
    gradients="g",
    ranks="repeats 1",
    parameters={1: "repeats"},
    not_constant="The 'Repeats' Tensor `{tensor}' must be of type Constant",
)


def _check_repeats(repeats: Any, least: int) -> None:
    for i, times in enumerate(np.asarray(repeats).tolist()):
        if not is_symbol(times) and times < least:
            raise OpError(f"'Repeats' tensor `{{1}}' has invalid value `{times}' at index {i}", "Tile")


@lowers("Tile", 6)
def tile(x: Array, repeats: Static, /) -> Array:
    if np.ndim(repeats) != 1:
        raise OpError("'Repeats' tensor `{1}' should be rank 1 in TileOp constructor", "Tile")
    if len(repeats) != x.ndim:
        raise OpError("'Repeats' tensor `{1}' should have one element for each dimension of the data tensor", "Tile")
    _check_repeats(repeats, 0)
    times = tuple(as_size(r) for r in repeats)
    shape = [d * r for d, r in zip(x.shape, times, strict=True)]
    if any(map(is_symbol, shape)):  # jnp.tile compares the sizes
        apart = [n for d in x.shape for n in (1, d)]
        whole = [n for pair in zip(times, x.shape, strict=True) for n in pair]
        return jnp.broadcast_to(jnp.asarray(x).reshape(apart), whole).reshape(shape)
    limits.check_size(shape, x.dtype.itemsize, "Tile: a result")
    return namespace(x).tile(x, times)


@lowers("Tile", 6, popart=True)
def popart_tile(x: Array, repeats: Static, /) -> Array:
    """Takes INT64 repeats only, and none of 0."""
    known = np.asarray(repeats)
    if known.dtype != np.int64:
        raise OpError(f"'Repeats' tensor `{{1}}' is not INT64, it is {dtype_name(repeats)}", "Tile")
    if known.ndim == 1 and len(known) == x.ndim:
        _check_repeats(known, 1)
    return tile(x, repeats)


@lowers("Tile", 1)
def tile_1(x: Array, tiles: Static, axis: Static, /) -> Array:
    repeats = np.ones(x.ndim, np.int64)
    repeats[normal_axis(np.asarray(axis).item(), x.ndim)] = np.asarray(tiles).item()
    return tile(x, repeats)


operator("DepthToSpace", PER_SAMPLE | FOLDS, ranks="input 4")


@lowers("DepthToSpace", 1)
@moves_texts
def depth_to_space(x: Array, /, *, blocksize: int, mode: str = "DCR") -> Array:
    if mode not in ("DCR", "CRD"):
        raise popart_exception(f"Unrecognised DepthToSpaceMode {mode!r}; DCR and CRD are known")
    n, c, h, w = x.shape
    if blocksize < 1 or c % blocksize**2:
        raise popart_exception(f"DepthToSpace: {c} channels can't be divided by the square of blocksize {blocksize}")
    b, rest = blocksize, c // blocksize**2
    if mode == "DCR":
        spread = jnp.transpose(x.reshape(n, b, b, rest, h, w), (0, 3, 4, 1, 5, 2))
    else:
        spread = jnp.transpose(x.reshape(n, rest, b, b, h, w), (0, 1, 4, 2, 5, 3))
    return spread.reshape(n, rest, h * b, w * b)


operator("SpaceToDepth", PER_SAMPLE | FOLDS, ranks="input 4")


@lowers("SpaceToDepth", 1)
@moves_texts
def space_to_depth(x: Array, /, *, blocksize: int, mode: str = "DCR") -> Array:
    if mode not in ("DCR", "CRD"):
        raise popart_exception(f"SpaceToDepth: unknown mode {mode!r}; DCR and CRD are known")
    n, c, h, w = x.shape
    b = blocksize
    if b < 1 or h % b or w % b:
        raise popart_exception(f"SpaceToDepth: sizes {h} and {w} can't be divided by blocksize {b}")
    blocks = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return jnp.transpose(blocks, order).reshape(n, c * b * b, h // b, w // b)
