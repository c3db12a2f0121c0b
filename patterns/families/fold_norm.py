"""Batch normalisation behind a convolution, folded into the weights for inference."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from .._context import Context
from .._core import Outcome, Refused, rewrites
from ..catalogue import Row, declare
from ..facts import attribute_float, attribute_int, input_at

declare(Row("ConvBatchNormFold", "Conv then BatchNormalization with constant statistics becomes one Conv.", kind="own"))


@rewrites("ConvBatchNormFold", "BatchNormalization", stages=("model",), modes=("inference",))
def fold_batch_norm(node: ir.Node, context: Context) -> Outcome:
    """scale, bias, mean and var enter the weight and bias of the Conv in front; computed in float64.

    W' = W * s and b' = (b - mean) * s + B with s = scale / sqrt(var + epsilon), one s per output channel.
    """
    source = node.inputs[0]
    conv = None if source is None else source.producer()
    if source is None or conv is None or conv.op_type != "Conv":
        return None
    if len([o for o in node.outputs if o.name]) != 1 or attribute_int(node, "training_mode", 0):
        return Refused("it normalises with the statistics of the batch")
    if not context.only_used_once(source):
        return Refused(f"tensor '{source.name}' is read elsewhere, or must keep its name")
    numbers = [context.constant(v) for v in (*node.inputs[1:5], conv.inputs[1])]
    bias_value = input_at(conv, 2)
    bias = np.zeros(()) if bias_value is None else context.constant(bias_value)
    if bias is None or any(n is None for n in numbers):
        return Refused("a weight or statistic may change between runs")
    scale, shift, mean, variance, weight = (np.asarray(n) for n in numbers)
    if weight.dtype not in (np.float32, np.float64):
        return Refused(f"weights of type {weight.dtype} would lose precision")
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + attribute_float(node, "epsilon", 1e-5))
    folded = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
    offset = (bias - mean) * factor + shift
    constants = [context.constant_op(a.astype(weight.dtype)) for a in (folded, offset)]
    return context.op("Conv", conv.inputs[0], *constants, like=node.outputs[0], attrs=dict(conv.attributes))
