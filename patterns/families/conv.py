"""Convolutions whose weights are flipped: the data gradient and ConvTranspose."""

from __future__ import annotations

import onnx_ir as ir

from .._context import Context, Shape, static_shape
from .._core import Outcome, Refused, rewrites
from ..facts import attribute_int, attribute_ints, input_at


@rewrites("ConvDataGrad", "ConvDataGrad")
def conv_data_gradient(node: ir.Node, context: Context) -> Outcome:
    """Reads (g, W): a Conv of g, dilated by the stride, with the flipped weights."""
    return _backward_conv(node, context)


@rewrites("ConvTranspose", "ConvTranspose")
def conv_transpose(node: ir.Node, context: Context) -> Outcome:
    """A Conv on flipped weights with the strides as input dilation; a bias is added behind."""
    result = _backward_conv(node, context)
    bias = input_at(node, 2)
    if isinstance(result, ir.Value) and bias is not None:
        return context.graphcore("AddBias", result, bias, like=node.outputs[0])
    return result


def _backward_conv(node: ir.Node, context: Context) -> ir.Value | Refused:
    """The transpose of a convolution, as a Conv whose `inDilations` spread the input.

    Per spatial axis, for a kernel that spans k elements after dilation, stride s, lower pad p, m elements in and n
    out: lower pad k-1-p, upper pad n - (m-1)*s - 1 + p (negative pads cut).
    """
    source, weights = node.inputs[0], node.inputs[1]
    small, kernel, large = static_shape(source), static_shape(weights), static_shape(node.outputs[0])
    if source is None or weights is None or small is None or kernel is None or large is None:
        return Refused("shapes are not static")
    rank = len(small) - 2
    strides = attribute_ints(node, "strides") or (1,) * rank
    dilations = attribute_ints(node, "dilations") or (1,) * rank
    groups = attribute_int(node, "group", 1)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel[2:], dilations, strict=True))
    lower = _lower_pads(node, small[2:], large[2:], strides, spans)
    low = tuple(k - 1 - p for k, p in zip(spans, lower, strict=True))
    high = tuple(n - (m - 1) * s - 1 + p for n, m, s, p in zip(large[2:], small[2:], strides, lower, strict=True))
    flipped_shape = (kernel[1] * groups, kernel[0] // groups, *kernel[2:])
    flipped = context.graphcore("ConvFlipWeights", weights, like=weights, shape=flipped_shape, group=groups)
    return context.op(
        "Conv",
        source,
        flipped,
        like=node.outputs[0],
        dilations=dilations,
        group=groups,
        inDilations=strides,
        kernel_shape=kernel[2:],
        pads=low + high,
        strides=(1,) * rank,
    )


def _lower_pads(node: ir.Node, small: Shape, large: Shape, strides: Shape, spans: Shape) -> Shape:
    """The lower half of `pads`; for ConvTranspose with `output_shape` the total is shared out as ONNX says."""
    rank = len(small)
    auto = node.attributes.get("auto_pad")
    mode = "NOTSET" if auto is None else auto.as_string()
    if mode == "VALID":
        return (0,) * rank
    if mode == "NOTSET" and "output_shape" not in node.attributes:
        return (attribute_ints(node, "pads") or (0,) * (2 * rank))[:rank]
    extra = attribute_ints(node, "output_padding") or (0,) * rank
    totals = [
        max(s * (m - 1) + e + k - n, 0) for s, m, e, k, n in zip(strides, small, extra, spans, large, strict=True)
    ]
    return tuple(t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in totals)
