"""Checks of convolution and pooling parameters while building."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import onnx_ir as ir

from ..errors import popart_exception
from ..model.op_names import listed
from .schema_methods import schema


@cache
def _window(op: str, version: int) -> tuple[bool, bool, int | None]:
    """Whether an ai.onnx operator has a window, whether it is transposed, and the position of its weight operand."""
    found = schema(op, version)
    names = [formal.name.lower() for formal in found.inputs]
    back = "output_shape" in found.attributes or "output_shape" in names
    return "kernel_shape" in found.attributes, back, names.index("w") if "w" in names else None


def check_window(
    op: str, domain: str, version: int, operands: Sequence[ir.Value | None], attributes: Mapping[str, Any]
) -> None:
    """Check the window of a convolution or pooling, if the shape of its data is known.

    Raises popart_exception for a parameter list of the wrong length, a kernel unlike the weights, or a negative output
    size.
    """
    if op == "MultiConv":
        _check_multi_conv(operands, attributes)
        return
    if domain or not operands or operands[0] is None:
        return
    has_window, back, position = _window(op, version)
    if not has_window:
        return
    weights = None if position is None else operands[position]
    spatial = _sizes(operands[0])
    if spatial is None:
        return
    if not spatial:
        raise popart_exception("Input tensor has no spatial dimensions")
    kernel = list(attributes.get("kernel_shape") or ())
    inferred = _sizes(weights) if weights is not None else None
    if kernel and inferred is not None and kernel != list(inferred):
        raise popart_exception(
            f"kernel_shape, {listed(kernel)}, does not match inferred shape from weight input "
            f"'{weights.name if weights is not None else ''}', {listed(inferred)}"
        )
    check_parameters(
        spatial,
        () if back or _is_padded(attributes) else kernel or list(inferred or ()),  # a transposed window enlarges
        strides=attributes.get("strides") or (),
        dilations=attributes.get("dilations") or (),
        pads=attributes.get("pads") or (),
        ceil=bool(attributes.get("ceil_mode", 0)),
    )


def _is_padded(attributes: Mapping[str, Any]) -> bool:
    """Whether the operator adds what padding it needs, so that any window fits."""
    return str(attributes.get("auto_pad") or "").startswith("SAME")


_MULTI_CONV_LISTS = {
    "strides": "strides",
    "dilations": "dilations",
    "inDilations": "in_dilations",
    "pads": "pads",
    "outPads": "out_pads",
}


def _check_multi_conv(operands: Sequence[ir.Value | None], attributes: Mapping[str, Any]) -> None:
    """Check each convolution of a MultiConv; its parameter lists are still one list per convolution."""
    for i in range(0, len(operands), 3):
        data, weights = operands[i], operands[i + 1]
        spatial = _sizes(data) if data is not None else None
        if spatial is None:
            continue
        if not spatial:
            raise popart_exception("Input tensor has no spatial dimensions")
        given = {own: attributes[name][i // 3] for name, own in _MULTI_CONV_LISTS.items() if attributes.get(name)}
        kernel = _sizes(weights) if weights is not None else None
        check_parameters(spatial, list(kernel or ()), **given)


def _sizes(value: ir.Value) -> tuple[int, ...] | None:
    if value.shape is None or not all(isinstance(d, int) for d in value.shape):
        return None
    return tuple(d for d in value.shape if isinstance(d, int))[2:]


def check_parameters(
    spatial: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    in_dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    out_pads: Sequence[int] = (),
    ceil: bool = False,
) -> None:
    """Check window parameters against the spatial sizes; empty lists stand for defaults.

    Raises popart_exception for a list of the wrong length, a stride or dilation of 0, or a negative output size.
    """
    rank = len(spatial)
    for name, values in (("strides", strides), ("dilations", dilations), ("inDilations", in_dilations)):
        if values and len(values) != rank:
            raise popart_exception(f"Length of {name} vector {len(values)} != number of spatial dimensions {rank}")
        if 0 in values:
            raise popart_exception(
                f"{name[0].upper()}{name[1:]} invalid. 0 {name[:-1]} at index {list(values).index(0)}"
            )
    for values in (pads, out_pads):
        if values and len(values) != 2 * rank:
            raise popart_exception(
                f"Padding vector (length {len(values)}) does not have 2 values for each spatial dimension {rank}"
            )
    if len(kernel) != rank:
        return
    found: list[int] = []
    for d in range(rank):
        spread = (in_dilations[d] if in_dilations else 1) * (spatial[d] - 1) + 1
        padded = spread + (pads[d] + pads[d + rank] if pads else 0)
        free = padded - ((dilations[d] if dilations else 1) * (kernel[d] - 1) + 1)
        stride = strides[d] if strides else 1
        size = (
            (-(-free // stride) if ceil else free // stride) + 1 + (out_pads[d] + out_pads[d + rank] if out_pads else 0)
        )
        found.append(size)
    if min(found) < 0:
        raise popart_exception(f"Window parameter values combine to give invalid spatial output shape: {listed(found)}")
