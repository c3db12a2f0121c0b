"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ...errors import popart_exception
from ...ops.convolution import check_transposed, transposed
from .. import dtypes
from .._building.create import Out, create, infer, result
from .._building.spec import whole_number, whole_numbers
from .._internal.values import MultiConvOptions
from ..context import gir
from ..tensor import Tensor
from .utils import check_operands, check_pow2scaled

PadType = Literal["not_set", "same_upper", "same_lower", "valid"]
"""Padding of a convolution: explicit; to keep the size, with an odd element at the upper or lower end; or none."""
PAD_NAMES = {"not_set": "NOTSET", "same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}


def pad_name(pad_type: str | None) -> str:
    """ONNX name of a padding rule; ValueError for an unknown one."""
    if pad_type not in PAD_NAMES:
        raise ValueError(f"pad type {pad_type} is not valid, must be not_set, same_upper, same_lower or valid")
    return PAD_NAMES[pad_type]


def multi_conv_options(
    sess_opts: Any,
    attr_param: Any,
    available_memory_proportions: list[float] | None,
    partials_types: list[str] | None,
    enable_conv_dithering: list[int] | None,
) -> MultiConvOptions:
    """Options of a convolution for the cost model."""
    return MultiConvOptions(
        available_memory_proportions or [], partials_types or [], enableConvDithering=enable_conv_dithering or []
    )


def conv(
    t: Tensor,
    weight: Tensor,
    stride: tuple[int, ...] | None = (1, 1),
    padding: tuple[int, ...] | None = (0, 0, 0, 0),
    dilation: tuple[int, ...] | None = (1, 1),
    groups: int | None = 1,
    pad_type: PadType | None = "not_set",
    available_memory_proportions: list[float] | None = None,
    partials_types: list[str] | None = None,
    enable_conv_dithering: list[int] | None = None,
) -> Tensor:
    """Cross-correlation over 1 to 3 spatial axes.

    Parameters
    ----------
    t : Tensor (N, C, spatial...)
    weight : Tensor (M, C / groups, kernel...)
    padding : tuple of int
        All begins, then all ends.
    pad_type : {'not_set', 'same_upper', 'same_lower', 'valid'}
        ONNX's padding rules.
    available_memory_proportions, partials_types, enable_conv_dithering
        For the cost model.

    Raises
    ------
    ValueError
        Unknown `pad_type`.
    popart_exception
        The operands do not fit.
    """
    check_operands(t=t, weight=weight)
    geometry = _geometry(t, weight, stride, padding, dilation, groups, pad_type)
    return _made("Conv", [t, weight], geometry, available_memory_proportions, partials_types, enable_conv_dithering)


def conv_pow2scaled(
    t: Tensor,
    weight: Tensor,
    log2_scale: Tensor,
    stride: tuple[int, ...] | None = (1, 1),
    padding: tuple[int, ...] | None = (0, 0, 0, 0),
    dilation: tuple[int, ...] | None = (1, 1),
    groups: int | None = 1,
    pad_type: PadType | None = "not_set",
    available_memory_proportions: list[float] | None = None,
    enable_conv_dithering: list[int] | None = None,
) -> Tensor:
    """conv(t, weight) * 2**log2_scale of float8 operands, as float16; see `conv`.

    Raises
    ------
    TypeError
        An operand is not float8, or the scale not int32.
    ValueError
        The scale is no scalar.
    """
    check_pow2scaled("conv", t, weight, log2_scale)
    check_operands(t=t, weight=weight, log2_scale=log2_scale)
    geometry = _geometry(t, weight, stride, padding, dilation, groups, pad_type)
    planning = (available_memory_proportions, None, enable_conv_dithering)
    return _made("Conv", [t, weight, log2_scale], geometry, *planning)


def _geometry(
    t: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: Any, pad_type: Any
) -> dict[str, Any]:
    n = t.rank - 2
    if weight.rank != t.rank or n < 1:
        raise popart_exception(f"Conv: data of rank {t.rank} and weights of rank {weight.rank} do not fit")
    return {
        "strides": _per_axis("stride", stride, n, 1),
        "pads": _per_axis("padding", padding, 2 * n, 0),
        "dilations": _per_axis("dilation", dilation, n, 1),
        "group": whole_number("groups", groups or 1),
        "auto_pad": pad_name(pad_type),
    }


def _per_axis(name: str, given: Sequence[int] | None, n: int, default: int) -> list[int]:
    """A value per axis; equal values, such as the two-dimensional defaults, are adapted to the number of axes."""
    listed = [default] * n if given is None else whole_numbers(name, given)
    if len(listed) != n and len(set(listed)) == 1:
        return [listed[0]] * n
    return listed


def _made(kind: str, operands: Sequence[Tensor], attributes: dict[str, Any], *planning: Any) -> Tensor:
    """Append a convolution; with a scale as third operand it is a float8 convolution."""
    scaled = len(operands) > 2
    runs = ("popxl", f"{kind}Pow2Scaled", 1) if scaled else None
    if kind == "ConvTranspose":
        shape = _transposed_shape(operands[0], operands[1], attributes)
    else:
        ((shape, _),) = infer(kind, operands, attributes, runs=runs)
    chosen = multi_conv_options(gir()._options, None, *planning)
    out = Out(f"{kind.lower()}_out", shape, dtypes.float16 if scaled else operands[0].dtype)
    return result(create(kind, operands, [out], attributes, options={"conv": chosen}, runs=runs))


def _transposed_shape(t: Tensor, weight: Tensor, attributes: dict[str, Any]) -> tuple[int, ...]:
    """Shape of a transposed convolution; as in PopART, padding that leaves an empty result fails only when it runs."""
    a = attributes
    check_transposed(t.shape, weight.shape[0], a["group"], weight.shape, 1)
    form = transposed(t.shape[2:], weight.shape[2:], a["strides"], a["dilations"], a["pads"], a["auto_pad"],
                      a["output_padding"], a["output_shape"])  # fmt: skip
    return (t.shape[0], weight.shape[1] * a["group"], *form.sizes(t.shape[2:]))


def conv_transpose(
    t: Tensor,
    weight: Tensor,
    stride: tuple[int, ...] | None = (1, 1),
    padding: tuple[int, ...] | None = (0, 0, 0, 0),
    dilation: tuple[int, ...] | None = (1, 1),
    groups: int | None = 1,
    pad_type: PadType | None = "not_set",
    output_padding: tuple[int, ...] | None = (),
    output_shape: tuple[int, ...] | None = (),
    available_memory_proportions: list[float] | None = None,
    partials_types: list[str] | None = None,
    enable_conv_dithering: list[int] | None = None,
) -> Tensor:
    """ONNX's ConvTranspose; weights are (C, M / groups, kernel...).

    `output_shape` determines the padding when given. See `conv` for the rest.
    """
    check_operands(t=t, weight=weight)
    attributes = _transposed(t, weight, output_padding, output_shape, stride, padding, dilation, groups, pad_type)
    planning = (available_memory_proportions, partials_types, enable_conv_dithering)
    return _made("ConvTranspose", [t, weight], attributes, *planning)


def conv_transpose_pow2scaled(
    t: Tensor,
    weight: Tensor,
    log2_scale: Tensor,
    stride: tuple[int, ...] | None = (1, 1),
    padding: tuple[int, ...] | None = (0, 0, 0, 0),
    dilation: tuple[int, ...] | None = (1, 1),
    groups: int | None = 1,
    pad_type: PadType | None = "not_set",
    output_padding: tuple[int, ...] | None = (),
    output_shape: tuple[int, ...] | None = (),
    available_memory_proportions: list[float] | None = None,
    enable_conv_dithering: list[int] | None = None,
) -> Tensor:
    """conv_transpose(t, weight) * 2**log2_scale of float8 operands, as float16; errors as `conv_pow2scaled`."""
    check_pow2scaled("conv", t, weight, log2_scale)
    check_operands(t=t, weight=weight, log2_scale=log2_scale)
    attributes = _transposed(t, weight, output_padding, output_shape, stride, padding, dilation, groups, pad_type)
    planning = (available_memory_proportions, None, enable_conv_dithering)
    return _made("ConvTranspose", [t, weight, log2_scale], attributes, *planning)


def _transposed(t: Tensor, weight: Tensor, extra: Any, shape: Any, *geometry: Any) -> dict[str, Any]:
    return {
        **_geometry(t, weight, *geometry),
        "output_padding": whole_numbers("output_padding", extra or ()),
        "output_shape": whole_numbers("output_shape", shape or ()),
    }
