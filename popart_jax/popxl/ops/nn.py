"""Pooling, normalisation, resampling, dropout and losses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

from ...errors import popart_exception
from ...model.op_names import listed
from ...ops.dropout import check_ratio
from ...ops.resize import scaled_size
from .. import dtypes
from .._building.create import Out, create, infer, like, result
from .._building.spec import checked_shape, whole_number, whole_numbers
from .._internal.enums import AutoPad, ReductionType
from ..tensor import Tensor, constant
from . import _names, _shapes
from .conv import PAD_NAMES, PadType, pad_name
from .utils import check_operands

__all__ = [
    "average_pool", "batch_norm_inference", "dropout", "group_norm", "interpolate", "layer_norm", "max_pool",
    "nll_loss", "nll_loss_with_softmax_grad", "roi_align", "shaped_dropout",
]  # fmt: skip

Ints = tuple[int, ...] | None


def average_pool(
    t: Tensor, kernel_size: tuple[int, ...], stride: Ints = None, padding: Ints = None, out_pads: Ints = None,
    dilation: Ints = None, in_dilations: Ints = None, auto_pad: PadType | None = "not_set", ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """Mean over windows; padding, and what `in_dilations` puts between elements, does not count.

    `out_pads` (all begins, then all ends) is a border of zeros around the result.
    """
    return _pool("AveragePool", t, kernel_size, stride, padding, out_pads, dilation, in_dilations, auto_pad, ceil_mode)


def max_pool(
    t: Tensor, kernel_size: tuple[int, ...], stride: Ints = None, padding: Ints = None, out_pads: Ints = None,
    dilation: Ints = None, in_dilations: Ints = None, auto_pad: PadType | None = "not_set", ceil_mode: bool = False,
    storage_order: Literal["row", "column"] = "row",
) -> Tensor:  # fmt: skip
    """Maximum over windows, see `average_pool`; `storage_order` only concerns indices, which are not returned."""
    if storage_order not in ("row", "column"):
        raise ValueError(f"storage_order must be 'row' or 'column', got {storage_order!r}.")
    return _pool("MaxPool", t, kernel_size, stride, padding, out_pads, dilation, in_dilations, auto_pad, ceil_mode)


def _pool(
    op_type: str, t: Tensor, kernel: Any, stride: Any, padding: Any, out_pads: Any, dilation: Any, in_dilations: Any,
    auto_pad: Any, ceil_mode: bool,
) -> Tensor:  # fmt: skip
    check_operands(t=t)
    n = len(kernel)
    rule = PAD_NAMES[auto_pad]
    attributes = {
        "kernel_shape": whole_numbers("kernel_size", kernel),
        "strides": whole_numbers("stride", stride or (1,) * n),
        "pads": whole_numbers("padding", padding or (0,) * (2 * n)),
        "dilations": whole_numbers("dilation", dilation or (1,) * n),
        "auto_pad": rule,
        "ceil_mode": int(ceil_mode),
    }
    runs = None
    if any(out_pads or ()) or any(d != 1 for d in in_dilations or ()):
        runs = ("popxl", f"Dilated{op_type}", 1)
        attributes["in_dilations"] = whole_numbers("in_dilations", in_dilations or (1,) * n)
        attributes["out_pads"] = whole_numbers("out_pads", out_pads or (0,) * (2 * n))
    sizes = infer(op_type, [t], attributes, runs=runs)[0][0]
    name = op_type.lower() + "_out"
    return result(create(op_type, [t], [Out(name, sizes, t.dtype)], attributes, runs=runs))


def receptive_attributes(
    strides: Any, pads: Any, out_pads: Any, dilations: Any, in_dilations: Any, auto_pad: Any, ceil_mode: Any
) -> Any:
    """Geometry of a pool as the internal IR holds it."""
    from .._internal.ir.op import ReceptiveOpAttributes

    lists: Any = [list(x or ()) for x in (pads, out_pads, strides, dilations, in_dilations)]
    return ReceptiveOpAttributes(*lists, auto_pad=AutoPad[pad_name(auto_pad)], ceil_mode=bool(ceil_mode))


def batch_norm_inference(
    t: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float = 1e-5, momentum: float = 0.9
) -> Tensor:
    """scale (t - mean) / sqrt(var + epsilon) + bias per channel; the statistics are not changed."""
    check_operands(t=t, scale=scale, bias=bias, mean=mean, var=var)
    if t.rank < 3:
        raise popart_exception(f"batch norm requires X to have a rank >= 3. x has rank {t.rank}")
    channels = (t.shape[1],)
    if any(p.shape != channels for p in (scale, bias, mean, var)):
        raise popart_exception(f"batch_norm_inference: parameters must have shape {list(channels)}")
    attributes = {"epsilon": float(epsilon), "momentum": float(momentum)}
    return result(create("BatchNormalization", [t, scale, bias, mean, var], [like(t, "batch_norm_out")], attributes))


def group_norm(t: Tensor, weight: Tensor, bias: Tensor, num_groups: int, eps: float = 1e-5) -> Tensor:
    """Normalisation of each sample within groups of channels (axis 1), with the biased variance.

    The operator also gives mean and inverse standard deviation, shape (N * num_groups,), which are not returned.
    """
    check_operands(t=t, weight=weight, bias=bias)
    num_groups = whole_number("num_groups", num_groups)
    if t.rank < 2 or num_groups < 1 or t.shape[1] % num_groups:
        raise popart_exception(f"group_norm: {num_groups} groups do not divide the channels of {list(t.shape)}")
    stats = (t.shape[0] * num_groups,)
    outs = [like(t, "group_norm_out"), Out("group_norm_mean", stats, t.dtype),
            Out("group_norm_inv_std_dev", stats, t.dtype)]  # fmt: skip
    attributes = {"num_groups": num_groups, "epsilon": float(eps)}
    return result(create("GroupNormalization", [t, weight, bias], outs, attributes))


def layer_norm(t: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """`group_norm` with one group."""
    return group_norm(t, weight, bias, 1, eps)


def dropout(t: Tensor, seed_tensor: Tensor, p: float) -> Tensor:
    """Each element is 0 with probability p in [0, 1), else t / (1 - p); the seed determines which."""
    check_operands(t=t, seed_tensor=seed_tensor)
    attributes = {"ratio": check_ratio(float(p))}
    return result(create("Dropout", [t, seed_tensor], [like(t, "dropout_out")], attributes))


def shaped_dropout(t: Tensor, seed_tensor: Tensor, shape: Iterable[int], ratio: float) -> Tensor:
    """Dropout whose mask has `shape` and is broadcast to t."""
    check_operands(t=t, seed_tensor=seed_tensor)
    mask = checked_shape(shape)
    if _shapes.aligned("ShapedDropout", mask, t.shape) != t.shape:
        raise popart_exception(f"shaped_dropout: a mask of shape {listed(mask)} does not fit {t!r}")
    attributes = {"shape": list(mask), "ratio": check_ratio(float(ratio))}
    return result(create("ShapedDropout", [t, seed_tensor], [like(t, "shapeddropout_out")], attributes))


def roi_align(
    t: Tensor,
    rois: Tensor,
    batch_index: Tensor,
    output_size: tuple[int, ...],
    spatial_scale: float,
    sampling_ratio: int,
) -> Tensor:
    """Averages of bilinear samples in regions (x1, y1, x2, y2) of feature maps, without half-pixel offset."""
    check_operands(t=t, rois=rois, batch_index=batch_index)
    for operand, rank, what in ((t, 4, "data"), (rois, 2, "rois"), (batch_index, 1, "batch_index")):
        if operand.rank != rank:
            raise popart_exception(f"The size of input {what} must be {rank}")
    if rois.shape[0] != batch_index.shape[0]:
        raise popart_exception(f"roi_align: {rois.shape[0]} regions, but {batch_index.shape[0]} indices of images")
    height, width = whole_numbers("output_size", output_size)
    attributes = {"output_height": height, "output_width": width, "spatial_scale": float(spatial_scale),
                  "sampling_ratio": whole_number("sampling_ratio", sampling_ratio)}  # fmt: skip
    out = Out("roi_align_out", (rois.shape[0], t.shape[1], height, width), t.dtype)
    return result(create("RoiAlign", [t, rois, batch_index], [out], attributes))


InterpolateType = Literal["nearest", "linear", "cubic"]
InterpolateNearestType = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "pytorch"]
InterpolateCoordinateTransformationType = Literal[
    "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"
]


def interpolate(
    t: Tensor,
    scale_factor: tuple[float, ...] | None = (1.0, 1.0, 1.0, 1.0),
    mode: str | None = "nearest",
    nearest_mode: str | None = "round_prefer_floor",
    coordinate_transformation_mode: str | None = "half_pixel",
) -> Tensor:
    """ONNX's Resize by one factor per axis; sizes are rounded down.

    Raises
    ------
    ValueError
        Unknown mode, or not one factor per axis.
    """
    check_operands(t=t)
    for given, known, choices in (
        (mode, get_args(InterpolateType), "nearest, linear or cubic"),
        (nearest_mode, get_args(InterpolateNearestType), "round_prefer_floor, round_prefer_ceil, floor or ceil"),
        (
            coordinate_transformation_mode,
            get_args(InterpolateCoordinateTransformationType),
            "half_pixel, pytorch_half_pixel, align_corners, asymmetric or tf_crop_and_resize",
        ),
    ):
        if given not in known:
            raise ValueError(f"interpolate type {given} is not valid, must be {choices}.")
    scales = [float(s) for s in scale_factor or ()]
    if len(scales) != t.rank:
        raise ValueError(f"scale_factor must have one entry per axis: {len(scales)} entries for rank {t.rank}.")
    shape = tuple(scaled_size(d, s) for d, s in zip(t.shape, scales, strict=True))
    attributes = {"scales": scales, "mode": mode, "nearest_mode": nearest_mode,
                  "coordinate_transformation_mode": coordinate_transformation_mode}  # fmt: skip
    options: dict[str, Any] = {}
    if coordinate_transformation_mode == "tf_crop_and_resize":
        options["unexecutable"] = "Unsupported coordinate transformation mode"
    if mode == "linear":
        options["unexecutable_gradient"] = "Resize mode 'linear' is not supported when training."
    return result(create("Resize", [t], [Out("interpolate_out", shape, t.dtype)], attributes, options=options))


REDUCTION_TYPE = Literal["mean", "sum", "none"]
REDUCTION_MAP = {"mean": ReductionType.Mean, "sum": ReductionType.Sum, "none": ReductionType.NoReduction}


def reduction_name(name: str) -> str:
    """PopART's name of a reduction; ValueError for an unknown one."""
    if name not in REDUCTION_MAP:
        raise ValueError(f"Not a valid reduction: {name}. Must choose from: {', '.join(REDUCTION_MAP)}")
    return REDUCTION_MAP[name].name


def _ignored(ignore_index: int | None) -> int | None:
    return None if ignore_index is None else whole_number("ignore_index", ignore_index)


def _check_labels(op_type: str, probs: Tensor, labels: Tensor) -> None:
    if not labels.dtype.is_int:
        raise popart_exception(
            "Expected the label tensor NllOp to be an integer data type (fixed point), not the case for input with "
            f"info: {_shapes.info(labels)}. This error for Op {_names.short(op_type)}. "
        )
    if probs.rank < 1 or probs.shape[:-1] != labels.shape:
        raise popart_exception(
            f"The label tensor ({_shapes.info(labels)}) must have shape {listed(probs.shape[:-1])} to match all but "
            f"the final dimension of the probabilities tensor ({_shapes.info(probs)}) in Op {_names.short(op_type)}. "
        )


def nll_loss(
    probs: Tensor, labels: Tensor, ignore_index: int | None = None, reduction: str = "mean", log_prob: bool = False
) -> Tensor:
    """-log of the probability of each label, reduced.

    Parameters
    ----------
    probs : Tensor (..., C)
    labels : Tensor (...)
    ignore_index : int, optional
        Samples with this label count nothing.
    reduction : {'mean', 'sum', 'none'}
    log_prob : bool
        `probs` are logarithms already.

    Raises
    ------
    ValueError
        Unknown reduction.
    """
    check_operands(probs=probs, labels=labels)
    attributes: dict[str, Any] = {
        "reduction": reduction_name(reduction),
        "inputIsLogProbability": int(bool(log_prob)),
        "ignoreIndex": _ignored(ignore_index),
    }
    _check_labels("Nll", probs, labels)
    out = Out("loss", labels.shape if reduction == "none" else (), probs.dtype)
    return result(create("Nll", [probs, labels], [out], attributes))


def nll_loss_with_softmax_grad(
    probs: Tensor,
    labels: Tensor,
    loss_grad: float | Tensor = 1,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    """The loss of softmax probabilities and its gradient with respect to the softmax's input.

    The leading axes of `probs` count as one, and labels have any shape with that many elements.

    Returns
    -------
    (loss, dx)
        dx = (probs - onehot(labels)) * loss_grad, for 'mean' divided by the number of samples that count.
    """
    if not isinstance(loss_grad, Tensor):
        loss_grad = constant(loss_grad, dtypes.float32)
    check_operands(probs=probs, labels=labels, loss_grad=loss_grad)
    attributes: dict[str, Any] = {
        "reduction": reduction_name(reduction),
        "ignoreIndex": _ignored(ignore_index),
    }
    outs = [Out("loss", labels.shape if reduction == "none" else (), probs.dtype), like(probs, "dx")]
    op = create("NlllWithSoftmaxGradDirect", [probs, labels, loss_grad], outs, attributes)
    return result(op), result(op, 1)
