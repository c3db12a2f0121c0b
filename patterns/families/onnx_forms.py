"""ONNX ops that PopART builds from others when it reads a model. They apply whatever the selection says."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from .._context import Context, static_shape
from .._core import Outcome, Refused, rewrites
from ..catalogue import Row, declare
from ..facts import attribute_float, attribute_int, attribute_string, input_at, real_inputs, reshape, scalar, transpose
from ..operators import GRAPHCORE
from .gradients import Algebra

NAME = "OnnxForms"
declare(Row(NAME, "Composite ONNX ops are built from PopART's own when a model is read.", None, kind="always"))

FORMULAS: dict[str, Callable[[Algebra, ir.Value], ir.Value]] = {
    "Tan": lambda o, x: o.Div(o.Sin(x), o.Cos(x)),
    "Asinh": lambda o, x: o.Log(o.Add(x, o.Sqrt(o.plus(o.Square(x), 1.0)))),
    "Acosh": lambda o, x: o.Log(o.Add(x, o.Sqrt(o.plus(o.Square(x), -1.0)))),
    "Atanh": lambda o, x: o.Scale(o.Log(o.Div(o.plus(x, 1.0), o.Sub(scalar(o.context, 1.0, x), x))), scale=0.5),
    "Acos": lambda o, x: o.Sub(scalar(o.context, math.pi / 2, x), o.Asin(x)),
}


@rewrites(NAME, *FORMULAS)
def formula(node: ir.Node, context: Context) -> Outcome:
    """Inverse and hyperbolic functions as formulas."""
    return FORMULAS[node.op_type](Algebra(context), *real_inputs(node))


@rewrites(NAME, "Mod", "Remainder")
def remainder(node: ir.Node, context: Context) -> Outcome:
    """fmod for fmod=1, else fmod(fmod(a, b) + b, b): the sign of the divisor."""
    a, b = real_inputs(node)
    if static_shape(a) is None or static_shape(b) is None:
        return Refused("shapes are not static")
    wanted = node.outputs[0]
    inner = context.graphcore("Fmod", a, b, like=wanted)
    if node.op_type == "Mod" and attribute_int(node, "fmod", 0):
        return inner
    return context.graphcore("Fmod", context.op("Add", inner, b, like=wanted), b, like=wanted)


@rewrites(NAME, "Gemm")
def gemm(node: ir.Node, context: Context) -> Outcome:
    """alpha * matmul + beta * C, with transposes where asked; factors of 1 are left out."""
    a, b = node.inputs[0], node.inputs[1]
    if a is None or b is None or static_shape(a) is None or static_shape(b) is None:
        return Refused("shapes are not static")
    a = transpose(context, a, (1, 0)) if attribute_int(node, "transA", 0) else a
    b = transpose(context, b, (1, 0)) if attribute_int(node, "transB", 0) else b
    result = context.op("MatMul", a, b, like=node.outputs[0])
    result = _scaled(context, result, attribute_float(node, "alpha", 1.0))
    addend = input_at(node, 2)
    if addend is None:
        return result
    return context.op("Add", result, _scaled(context, addend, attribute_float(node, "beta", 1.0)), like=result)


def _scaled(context: Context, value: ir.Value, factor: float) -> ir.Value:
    return value if factor == 1.0 else context.graphcore("Scale", value, like=value, scale=factor)


@rewrites(NAME, "Conv", "ConvTranspose")
def convolution_bias(node: ir.Node, context: Context) -> Outcome:
    """The bias is an AddBias behind the convolution."""
    bias = input_at(node, 2)
    if bias is None:
        return None
    product = context.op(
        node.op_type, *node.inputs[:2], like=node.outputs[0], domain=node.domain, attrs=dict(node.attributes)
    )
    return context.graphcore("AddBias", product, bias, like=node.outputs[0])


@rewrites(NAME, "DepthToSpace")
def depth_to_space(node: ir.Node, context: Context) -> Outcome:
    """Reshape, Transpose, Reshape."""
    source = node.inputs[0]
    shape, size = static_shape(source), attribute_int(node, "blocksize", 1)
    mode = attribute_string(node, "mode", "DCR")
    if source is None or shape is None or mode not in ("DCR", "CRD"):
        return Refused("the shape is not static, or the mode is unknown")
    n, c, h, w = shape
    deep = c // size**2
    split, perm = ((n, size, size, deep, h, w), (0, 3, 4, 1, 5, 2)) if mode == "DCR" else (
        (n, deep, size, size, h, w), (0, 1, 4, 2, 5, 3))  # fmt: skip
    return reshape(context, transpose(context, reshape(context, source, split), perm), (n, deep, h * size, w * size))


@rewrites(NAME, "SpaceToDepth")
def space_to_depth(node: ir.Node, context: Context) -> Outcome:
    """Reshape, Transpose, Reshape."""
    source = node.inputs[0]
    shape, size = static_shape(source), attribute_int(node, "blocksize", 1)
    if source is None or shape is None or attribute_string(node, "mode", "DCR") != "DCR":
        return Refused("the shape is not static, or the mode is another one")
    n, c, h, w = shape
    blocks = reshape(context, source, (n, c, h // size, size, w // size, size))
    moved = transpose(context, blocks, (0, 3, 5, 1, 2, 4))
    return reshape(context, moved, (n, c * size**2, h // size, w // size))


@rewrites(NAME, "MultiConv")
def multi_convolution_bias(node: ir.Node, context: Context) -> Outcome:
    """Inputs are (data, weights, bias) triples; each bias becomes an AddBias behind its output."""
    outputs = node.outputs
    if len(node.inputs) != 3 * len(outputs) or not any(node.inputs[2::3]):
        return None
    pairs = [v for i in range(len(outputs)) for v in node.inputs[3 * i : 3 * i + 2]]
    typed = [(o.dtype, None if o.shape is None else o.shape.numpy()) for o in outputs]
    products = context.ops("MultiConv", pairs, domain=GRAPHCORE, results=typed, **node.attributes)
    biases = node.inputs[2::3]
    return [
        p if b is None else context.graphcore("AddBias", p, b, like=o)
        for p, b, o in zip(products, biases, outputs, strict=True)
    ]
