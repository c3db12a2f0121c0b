"""Reading and writing by run-time indices."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

from ...enums import ScatterReduction
from ...errors import popart_exception
from .. import dtypes
from .._building.create import Out, create, like, result
from .._building.spec import whole_number, whole_numbers
from ..tensor import Constant, Tensor
from .utils import axis_or, axis_within, check_operands, handle_negative_axis

__all__ = [
    "dynamic_slice", "dynamic_update", "dynamic_update_", "gather", "groupedgather", "onehot", "scaled_add",
    "scaled_add_", "scatter", "scatter_reduce", "tied_gather",
]  # fmt: skip


def gather(
    t: Tensor, indices: Tensor, axis: int = 0, available_memory_proportion: float | None = None, zero_OOR: bool = False
) -> Tensor:
    """Slices of `t` along an axis; out-of-range indices (negative ones too) give zeros with `zero_OOR`."""
    return groupedgather(t, indices, axis, 1, available_memory_proportion, zero_OOR)


def groupedgather(
    t: Tensor,
    indices: Tensor,
    axis: int = 0,
    group_size: int | None = 1,
    available_memory_proportion: float | None = None,
    zero_OOR: bool = False,
) -> Tensor:
    """`gather`, independently for each of `group_size` leading groups."""
    return _gather("Gather", t, indices, axis, group_size or 1, available_memory_proportion, zero_OOR, "gather_out")


def tied_gather(
    t: Tensor, indices: Tensor, axis: int = 0, available_memory_proportion: float | None = None, zero_OOR: bool = False
) -> Tensor:
    """`gather` whose operand shares its layout with a matrix product (a matter of cost only)."""
    return _gather("PopartTiedGather", t, indices, axis, 1, available_memory_proportion, zero_OOR, "tiedgather_out")


def _gather(
    op_type: str, t: Tensor, indices: Tensor, axis: int, groups: int, amp: float | None, zero: bool, name: str
) -> Tensor:
    check_operands(t=t, indices=indices)
    if not indices.dtype.is_int:
        raise TypeError(f"The indices of a gather must be whole numbers, got {indices!r}.")
    lead = 1 if _at_least_one(groups) > 1 else 0
    axis = axis_or("GatherOp::setup axis = {axis} is outside the acceptable range {bounds}", t, axis)
    if lead and (t.shape[0] != groups or indices.shape[0] != groups):
        raise popart_exception(
            f"groupedgather: leading axes of {list(t.shape)}, {list(indices.shape)} must be {groups}"
        )
    if lead and axis == 0:
        axis = 1
    shape = (*t.shape[:axis], *indices.shape[lead:], *t.shape[axis + 1 :])
    attributes = {"axis": axis, "group_size": groups, "zero_oor": int(zero)}
    options = {"available_memory_proportion": amp}
    return result(create(op_type, [t, indices], [Out(name, shape, t.dtype)], attributes, options=options))


def _at_least_one(group_size: int) -> int:
    number = whole_number("group_size", group_size)
    if number < 1:
        raise ValueError(f"`group_size` must be at least 1, got {group_size}.")
    return number


def scatter(
    t: Tensor, indices: Tensor, values: Tensor, axis: int = 0, available_memory_proportion: float | None = None
) -> Tensor:
    """A copy of `t` with elements replaced along an axis (ONNX's ScatterElements)."""
    check_operands(t=t, indices=indices, values=values)
    options = {"available_memory_proportion": available_memory_proportion}
    attributes = {"axis": axis_within("scatter", t, axis)}
    return result(create("Scatter", [t, indices, values], [like(t, "scatter_out")], attributes, options=options))


ScatterReductionType = Literal["sum", "min", "max", "none"]
reduction_dict = {
    "sum": ScatterReduction.Sum,
    "min": ScatterReduction.Min,
    "max": ScatterReduction.Max,
    "none": ScatterReduction.NoReduction,
}


def scatter_reduce(
    data: Tensor,
    indices: Tensor,
    reduction: str,
    initial_values: Tensor | None = None,
    axis: int = 0,
    axis_size: int | None = None,
    enable_index_broadcast: int = True,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """Elements of `data` reduced into `axis_size` slots that the indices choose.

    Parameters
    ----------
    reduction : {'sum', 'max', 'min', 'none'}
    initial_values : Tensor, optional
        What is reduced into; otherwise zeros.
    enable_index_broadcast : bool
        Indices of one axis hold for whole slices.

    Raises
    ------
    ValueError
        Neither `initial_values` nor `axis_size`; unknown reduction.
    """
    return grouped_scatter_reduce(
        data,
        indices,
        reduction,
        initial_values,
        axis,
        axis_size,
        1,
        bool(enable_index_broadcast),
        available_memory_proportion,
    )


def grouped_scatter_reduce(
    data: Tensor,
    indices: Tensor,
    reduction: str,
    initial_values: Tensor | None = None,
    axis: int = 0,
    axis_size: int | None = None,
    group_size: int = 1,
    enable_index_broadcast: bool = True,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """`scatter_reduce`, independently for each of `group_size` leading groups."""
    operands = {"data": data, "indices": indices}
    if initial_values is not None:
        operands["initial_values"] = initial_values
    if axis_size is None and initial_values is None:
        raise ValueError("One of initial_values and axis_size must be specified")
    if reduction not in reduction_dict:
        raise ValueError(f"The reduction must be one of {list(reduction_dict)}.")
    check_operands(**operands)
    axis = axis_or("ScatterReduceOp::setup axis = {axis} is outside the acceptable range {bounds}", data, axis)
    if _at_least_one(group_size) > 1 and axis == 0:
        axis = 1
    whole = data if initial_values is None else initial_values  # the data may be a smaller block
    if whole.rank != data.rank:
        raise popart_exception(f"scatter_reduce: {whole!r} and {data!r} differ in rank")
    if initial_values is not None and axis_size not in (None, whole.shape[axis]):
        raise popart_exception(f"scatter_reduce: axis_size {axis_size} is not that of {whole!r}")
    axis_size = whole_number("axis_size", whole.shape[axis] if axis_size is None else axis_size)
    shape = (*whole.shape[:axis], axis_size, *whole.shape[axis + 1 :])
    attributes: dict[str, Any] = {
        "axis": axis,
        "axis_size": axis_size,
        "reduction": reduction,
        "group_size": group_size,
        "enable_index_broadcast": int(enable_index_broadcast),
    }
    options = {"available_memory_proportion": available_memory_proportion}
    out = Out("scatterreduce_out", shape, data.dtype)
    return result(create("ScatterReduce", list(operands.values()), [out], attributes, options=options))


def onehot(t: Tensor, num_classes: Tensor, values: Tensor, axis: int) -> Tensor:
    """values[1] where the class index matches, values[0] elsewhere; `num_classes` is a constant.

    Raises
    ------
    popart_exception
        The number of classes is no constant.
    """
    check_operands(t=t, num_classes=num_classes, values=values)
    if not isinstance(num_classes, Constant):
        raise popart_exception(f"onehot: num_classes must be a constant, {num_classes!r} is not")
    depth = int(num_classes._host.reshape(()))
    at = axis_within("onehot", t, axis, more=1)
    shape = (*t.shape[:at], depth, *t.shape[at:])
    return result(create("OneHot", [t, num_classes, values], [Out("onehot_out", shape, values.dtype)], {"axis": at}))


def dynamic_slice(t: Tensor, index: Tensor, axes: list[int], sizes: list[int], no_overlap: bool) -> Tensor:
    """The window of `sizes` along `axes` that starts at a run-time index."""
    check_operands(t=t, index=index)
    axes, sizes = [axis_within("dynamic_slice", t, a) for a in axes], whole_numbers("sizes", sizes)
    if len(axes) != len(sizes):
        raise popart_exception(f"dynamic_slice: axes {list(axes)} and sizes {list(sizes)} differ in number")
    shape = list(t.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    attributes = {"axes": axes, "sizes": sizes, "no_overlap": int(no_overlap)}
    return result(create("DynamicSlice", [t, index], [Out("dynamic_slice_out", tuple(shape), t.dtype)], attributes))


def dynamic_update(
    t: Tensor, index: Tensor, t_update: Tensor, axes: Iterable[int], sizes: Iterable[int], no_overlap: bool
) -> Tensor:
    """A copy of `t` whose window at a run-time index is `t_update`."""
    return _dynamic_update("DynamicUpdate", t, index, t_update, axes, sizes, no_overlap)


def dynamic_update_(
    t: Tensor, index: Tensor, t_update: Tensor, axes: Iterable[int], sizes: Iterable[int], no_overlap: bool
) -> Tensor:
    """`dynamic_update` in place."""
    return _dynamic_update("DynamicUpdateInplace", t, index, t_update, axes, sizes, no_overlap)


def _dynamic_update(
    op_type: str,
    t: Tensor,
    index: Tensor,
    t_update: Tensor,
    axes: Iterable[int],
    sizes: Iterable[int],
    no_overlap: bool,
) -> Tensor:
    check_operands(t=t, index=index, t_update=t_update)
    inplace = "Inplace" in op_type
    windows = {"axes": [handle_negative_axis(t, a) for a in axes], "sizes": whole_numbers("sizes", sizes)}
    attributes = {**windows, "no_overlap": int(no_overlap)}
    out = like(t, "dynamicupdateinplace_out" if inplace else "dynamic_update_out")
    return result(create(op_type, [t, index, t_update], [out], attributes))


def scaled_add(X: Tensor, Y: Tensor, a: float | Tensor = 1.0, b: float | Tensor = 1.0) -> Tensor:
    """a X + b Y, without broadcasting, in the type of X."""
    return _scaled_add("ScaledAdd", X, Y, a, b)


def scaled_add_(X: Tensor, Y: Tensor, a: float | Tensor = 1.0, b: float | Tensor = 1.0) -> Tensor:
    """X <- a X + b Y."""
    return _scaled_add("ScaledAddLhsInplace", X, Y, a, b)


def _scaled_add(op_type: str, X: Tensor, Y: Tensor, a: float | Tensor, b: float | Tensor) -> Tensor:
    inplace = "Inplace" in op_type
    scales = {"a": a, "b": b}
    tensors = {k: v for k, v in scales.items() if isinstance(v, Tensor)}
    numbers = {k: dtypes.builtins.float(v) for k, v in scales.items() if not isinstance(v, Tensor)}
    check_operands(X=X, Y=Y, **tensors)
    if X.shape != Y.shape:
        raise popart_exception(f"ScaledAdd: shapes {list(X.shape)} and {list(Y.shape)} differ")
    out = like(X, f"scaled_add__{X.name}" if inplace else "scaled_add_out")
    inputs = [X, Y, tensors.get("a"), tensors.get("b")]
    while inputs[-1] is None:
        inputs.pop()
    return result(create(op_type, inputs, [out], numbers, options=_unsupported_scales(tensors, numbers)))


def _unsupported_scales(tensors: Collection[str], numbers: Mapping[str, float]) -> dict[str, str]:
    """The option "unexecutable" for factors that no session runs: a tensor beside a number other than `a` = 1."""
    if "a" in tensors and "b" not in tensors:
        return {"unexecutable": "Unsupported tensor scale0 with non-tensor scale1."}
    if "b" in tensors and numbers.get("a", 1) != 1:
        return {"unexecutable": f"Unsupported scale0 {numbers['a']:g} with tensor scale1."}
    return {}
