"""Batch normalisation behind a convolution, folded into the weights for inference."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from .._context import Context, static_shape
from .._core import Outcome, Refused, rewrites
from ..catalogue import Row, declare
from ..facts import attribute_float, attribute_int, elementwise, input_at, scalar

declare(
    Row("ConvBatchNormFold", "Conv then BatchNormalization with given statistics becomes one Conv.", kind="own")
)  # fmt: skip
PRECISE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


@rewrites("ConvBatchNormFold", "BatchNormalization", stages=("model",), modes=("inference",))
def fold_batch_norm(node: ir.Node, context: Context) -> Outcome:
    """scale, bias, mean and var enter the weight and bias of the Conv in front.

    W' = W * s and b' = (b - mean) * s + B with s = scale / sqrt(var + epsilon), one s per output channel. The folding
    is written as ops on the weights, which are computed when weights are loaded: so the host may still change them.
    """
    source = node.inputs[0]
    conv = None if source is None else source.producer()
    if source is None or conv is None or conv.op_type != "Conv":
        return None
    if len([o for o in node.outputs if o.name]) != 1 or attribute_int(node, "training_mode", 0):
        return Refused("it normalises with the statistics of the batch")
    if not attribute_int(node, "spatial", 1):
        return Refused("each place has its own statistics")
    if not context.only_used_once(source):
        return Refused(f"tensor '{source.name}' is read elsewhere, or must keep its name")
    scale, shift, mean, variance = node.inputs[1:5]
    weight, bias = conv.inputs[1], input_at(conv, 2)
    shape = static_shape(weight)
    if scale is None or shift is None or mean is None or variance is None or weight is None or shape is None:
        return Refused("an input is missing, or the shape of the weights is unknown")
    if not all(v is None or _is_given(v) for v in (scale, shift, mean, variance, weight, bias)):
        return Refused("a weight or statistic is computed while running")
    if any(v.dtype not in PRECISE for v in (scale, variance, weight)):
        return Refused("narrow weights would lose precision")
    epsilon = scalar(context, attribute_float(node, "epsilon", 1e-5), variance)
    deviation = context.op("Sqrt", elementwise(context, "Add", variance, epsilon), like=variance)
    factor = elementwise(context, "Div", scale, deviation)
    column = (shape[0], *[1] * (len(shape) - 1))
    per_channel = context.op("Reshape", factor, context.constant_op(np.array(column)), like=factor, shape=column)
    folded = elementwise(context, "Mul", weight, per_channel)
    centred = context.op("Neg", mean, like=mean) if bias is None else elementwise(context, "Sub", bias, mean)
    offset = elementwise(context, "Add", elementwise(context, "Mul", centred, factor), shift)
    return context.op("Conv", conv.inputs[0], folded, offset, like=node.outputs[0], attrs=dict(conv.attributes))


def _is_given(value: ir.Value) -> bool:
    """An initializer or the output of a Constant node."""
    producer = value.producer()
    return value.const_value is not None if producer is None else producer.op_type == "Constant"
