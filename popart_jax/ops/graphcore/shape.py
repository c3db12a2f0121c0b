"""Layout, order and creation: Reshape, Slice, Reverse, Subsample, Sort, ReduceMedian, TensorRemap, Init ..."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
from jax import lax

from ...enums import DataType
from ...errors import OpError, popart_exception
from ...model.node_parts import NodeParts
from ..arrays import Array, namespace, normal_axis
from ..builder_methods import builder_method
from ..operator import EXPENSIVE, INDEX_RESULT, MOVES_DATA, NOT_OUTLINED, as_graphcore, gradient, operator
from ..registry import lowers
from ..select import check_sorted_axis
from ..shape import target_shape
from .losses import DOMAIN


def resolve_shape(sizes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """As `target_shape`, but a 0 behind the last dimension stays."""
    copied = [sizes[i] if n == 0 and i < len(sizes) else n for i, n in enumerate(shape)]
    return tuple(target_shape(sizes, copied, allowzero=True))


def _write_reshape(parts: NodeParts) -> None:
    parts.attributes.setdefault("shape", [])  # builders leave empty lists out


builder_method("Reshape", "reshape(args:str, shape:ints)", write=_write_reshape)


@lowers("Reshape", domain=DOMAIN)
def reshape(x: Array, /, *, shape: tuple[int, ...]) -> Array:
    return x.reshape(resolve_shape(x.shape, shape))


builder_method("Slice", "slice(args, ends:ints, starts:ints, axes:ints)")


@lowers("Slice", domain=DOMAIN)
def slice_(
    x: Array, /, *, starts: Sequence[int] = (), ends: Sequence[int] = (), axes: Sequence[int] = (),
    steps: Sequence[int] = (),
) -> Array:  # fmt: skip
    axes = axes or range(len(starts))
    cut = [slice(None)] * x.ndim
    for i, (axis, start, end) in enumerate(zip(axes, starts, ends, strict=True)):
        cut[axis] = slice(start, end, steps[i] if steps else 1)
    return x[tuple(cut)]


operator("Reverse", gradients="g", view=True)
builder_method("Reverse", "reverse(args, dimensions:ints)")


@lowers("Reverse", domain=DOMAIN)
def reverse(x: Array, /, *, dimensions: Sequence[int] = ()) -> Array:
    for d in dimensions:
        if d < 0:
            raise OpError(
                f"ReverseOp '{{op}}' invalid dimension '{d}'. Only positive dimensions are supported", "Reverse"
            )
        if d >= x.ndim:
            raise OpError(f"ReverseOp '{{op}}' invalid dimension '{d}' for input tensor of rank {x.ndim}", "Reverse")
        if list(dimensions).count(d) > 1:
            raise OpError(
                f"Dimension {d} appears multiple times in the list of dimensions of ReverseOp '{{op}}'", "Reverse"
            )
    return namespace(x).flip(x, tuple(dimensions)) if dimensions else x


operator("Subsample", MOVES_DATA, gradients="g", view=True, popxl=as_graphcore(runs=1))
builder_method("Subsample", "subsample(args, strides:ints)")


@lowers("Subsample", domain=DOMAIN)
def subsample(x: Array, /, *, strides: Sequence[int] = ()) -> Array:
    """x[::s0, ::s1, ...]."""
    if 0 in strides:
        raise popart_exception(f"Strides invalid. 0 stride at index {list(strides).index(0)}")
    if strides and len(strides) != x.ndim:
        raise popart_exception(f"Subsample: {len(strides)} strides for a tensor of rank {x.ndim}")
    return x[tuple(slice(None, None, s) for s in strides)]


builder_method("DepthToSpace", "depthtospace(args, blocksize:int, mode:str)")


@lowers("DepthToSpace", domain=DOMAIN)
def depth_to_space(x: Array, /, *, blocksize: int, mode: str = "DCR") -> Array:
    n, c, h, w = x.shape
    b, deep = blocksize, c // blocksize**2
    if mode == "DCR":
        y = x.reshape(n, b, b, deep, h, w).transpose(0, 3, 4, 1, 5, 2)
    elif mode == "CRD":
        y = x.reshape(n, deep, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    else:
        raise popart_exception(f"Unrecognised DepthToSpaceMode {mode}")
    return y.reshape(n, deep, h * b, w * b)


operator("TensorRemap", gradients=gradient(name="TensorRemap"))
builder_method("TensorRemap", "tensorremap(args, remap_type:int=0, debugPrefix:debug='')")


@lowers("TensorRemap", domain=DOMAIN)
def tensor_remap(x: Array, reference: Array | None = None, /, *, remap_type: int = 0) -> Array:
    """A layout hint: the identity."""
    return x


def _write_init(parts: NodeParts) -> None:
    parts.attributes.setdefault("shape", [])
    parts.attributes["tensor_type"] = 0


operator(
    "Init",
    MOVES_DATA | NOT_OUTLINED,
    gradients=(),
    popxl=as_graphcore(parameters="info tensor_type init_type batch_axis"),
)
builder_method(
    "Init",
    "init(shape:ints, data_type:int, init_type:int, batch_axis:int)",
    "init(shape:ints, data_type:int, init_type:int)",
    write=_write_init,
)


@lowers("Init", domain=DOMAIN)
def init(
    *, shape: Sequence[int], data_type: int, tensor_type: int = 0, init_type: int = 0, batch_axis: int = -1
) -> np.ndarray:
    """Zeros, also with NoInit, where the contents are undefined."""
    return np.zeros(shape, ir.DataType[DataType(data_type).name].numpy())


operator("Zeros", gradients=())


@lowers("Zeros", domain=DOMAIN)
def zeros(*, shape: Sequence[int], dtype: int = DataType.FLOAT.value) -> np.ndarray:
    return np.zeros(shape, ir.DataType[DataType(dtype).name].numpy())


operator("ZerosLike", gradients=())


@lowers("ZerosLike", domain=DOMAIN)
def zeros_like(x: Array, /, *, dtype: int | None = None) -> Array:
    return namespace(x).zeros_like(x)


operator("Sort", INDEX_RESULT, gradients=gradient("g y1", name="ScatterDataGrad"))
builder_method("Sort", "sort(args=[], axis:int=-1, descending:int=0, stable:int=0) -> 2")


@lowers("Sort", domain=DOMAIN)
def sort(x: Array, /, *, axis: int = -1, descending: int = 0, stable: int = 0) -> tuple[Array, Array]:
    """Values and INT32 positions along the axis; equal keys keep their order."""
    check_sorted_axis("Sort", axis, x.ndim)
    order = jnp.argsort(x, axis=axis, stable=True, descending=bool(descending)).astype(jnp.int32)
    return jnp.take_along_axis(x, order, axis), order


operator("ReduceMedian", gradients=gradient("g y1", kernel=True), popxl=as_graphcore(runs=1))
builder_method("ReduceMedian", "reducemedian(args, axes:ints?, keepdims:int=1) -> 2")


@lowers("ReduceMedian", domain=DOMAIN)
def reduce_median(x: Array, /, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> tuple[Array, Array]:
    """Lower median and its INT32 position in the flattened reduced axes; of an empty list of axes, of each element."""
    if x.ndim == 0 and axes:
        raise OpError("Reduce input rank must be greater than 0, invalid Reduce {op}.", "ReduceMedian")
    over = list(range(x.ndim)) if axes is None else sorted({normal_axis(a, x.ndim) for a in axes})
    kept = [d for d in range(x.ndim) if d not in over]
    flat = jnp.transpose(x, kept + over).reshape(*(x.shape[d] for d in kept), -1)
    index = jnp.argsort(flat, axis=-1, stable=True)[..., (flat.shape[-1] - 1) // 2]
    value = jnp.take_along_axis(flat, index[..., None], -1)[..., 0]
    shape = [1 if d in over else n for d, n in enumerate(x.shape)] if keepdims else [x.shape[d] for d in kept]
    return value.reshape(shape), index.astype(jnp.int32).reshape(shape)


operator("Histogram", EXPENSIVE, gradients=(), popxl=as_graphcore())


@lowers("Histogram", domain=DOMAIN)
def histogram(x: Array, /, *, levels: Sequence[float], absoluteOfInput: int = 0) -> Array:
    """UINT32 counts of the elements in the intervals between ascending levels; no gradient."""
    flat = lax.stop_gradient(jnp.abs(x) if absoluteOfInput else x).reshape(-1)
    bins = jnp.searchsorted(jnp.asarray(levels, flat.dtype), flat, side="right")
    return jnp.zeros(len(levels) + 1, jnp.uint32).at[bins].add(1)
