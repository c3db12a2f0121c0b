"""MatMul in PopART's grouped form, and its gradients."""

from __future__ import annotations

import math

import onnx_ir as ir

from .._context import Context, Shape, dims, static_shape
from .._core import Outcome, Refused, rewrites
from ..facts import broadcast, reshape, sum_to, transpose


@rewrites("MatMulOp", "MatMul")
def grouped_matmul(node: ir.Node, context: Context) -> Outcome:
    """Operands become [groups, rows, columns]; batch axes of one operand only join its rows or columns."""
    lhs, rhs = node.inputs[0], node.inputs[1]
    a, b = static_shape(lhs), static_shape(rhs)
    if lhs is None or rhs is None or a is None or b is None:
        return Refused("shapes are not static")
    if len(a) == len(b) == 3 and a[0] == b[0]:
        return None
    wide_a, wide_b = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    rank = max(len(wide_a), len(wide_b))
    left, right = _pad(wide_a, rank), _pad(wide_b, rank)
    groups = [i for i in range(rank - 2) if left[i] == right[i]]
    rows = [i for i in range(rank - 2) if left[i] != right[i] and right[i] == 1]
    columns = [i for i in range(rank - 2) if left[i] != right[i] and left[i] == 1]
    g, m, k, n = math.prod(left[i] for i in groups), left[-2], left[-1], right[-1]
    lhs3 = _arrange(context, lhs, left, [*groups, *columns, *rows, rank - 2, rank - 1], (g, _size(left, rows) * m, k))
    rhs3 = _arrange(
        context, rhs, right, [*groups, *rows, rank - 2, *columns, rank - 1], (g, k, _size(right, columns) * n)
    )
    product = (g, _size(left, rows) * m, _size(right, columns) * n)
    flat = context.op("MatMul", lhs3, rhs3, like=lhs, shape=product, attrs=_own_attributes(node))
    spread = [left[i] for i in groups] + [left[i] for i in rows] + [m] + [right[i] for i in columns] + [n]
    order = [*groups, *rows, rank - 2, *columns, rank - 1]
    inverse = [order.index(i) for i in range(rank)]
    if inverse != sorted(inverse):
        flat = transpose(context, reshape(context, flat, spread), inverse)
    return reshape(context, flat, static_shape(node.outputs[0]) or _product_shape(a, b, left, right))


def _pad(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


def _size(shape: Shape, axes: list[int]) -> int:
    return math.prod(shape[i] for i in axes)


def _product_shape(a: Shape, b: Shape, left: Shape, right: Shape) -> Shape:
    batch = broadcast(left[:-2], right[:-2])
    return (*batch, *([left[-2]] if len(a) > 1 else []), *([right[-1]] if len(b) > 1 else []))


def _arrange(context: Context, value: ir.Value, padded: Shape, order: list[int], target: Shape) -> ir.Value:
    """Transpose (if the order of axes longer than 1 changes) and reshape to three axes."""
    long = [i for i in order if padded[i] != 1]
    if long != sorted(long):
        if static_shape(value) != padded:
            value = reshape(context, value, padded)
        value = transpose(context, value, order)
    return reshape(context, value, target)


@rewrites("MatMulLhsGradOp", "MatMulLhsGrad")
def left_gradient(node: ir.Node, context: Context) -> Outcome:
    """dA = g @ Bᵀ, summed over batch axes that A lacks; reads (g, B)."""
    gradient, rhs = node.inputs
    if gradient is None or rhs is None or not _matrices(gradient, rhs, node.outputs[0]):
        return Refused("an operand is no matrix, or shapes are not static")
    return _gradient_product(context, node, gradient, _swap(context, rhs), 1)


@rewrites("MatMulRhsGradOp", "MatMulRhsGrad")
def right_gradient(node: ir.Node, context: Context) -> Outcome:
    """dB = Aᵀ @ g, summed over batch axes that B lacks; reads (g, A)."""
    gradient, lhs = node.inputs
    if gradient is None or lhs is None or not _matrices(gradient, lhs, node.outputs[0]):
        return Refused("an operand is no matrix, or shapes are not static")
    return _gradient_product(context, node, _swap(context, lhs), gradient, 2)


def _gradient_product(context: Context, node: ir.Node, a: ir.Value, b: ir.Value, passes: int) -> ir.Value:
    operand, left, right = node.outputs[0], dims(a), dims(b)
    shape = (*broadcast(left[:-2], right[:-2]), left[-2], right[-1])
    attributes = {**_own_attributes(node), "fully_connected_pass": passes}
    product = context.op("MatMul", a, b, like=operand, shape=shape, attrs=attributes)
    return sum_to(context, product, operand)


def _own_attributes(node: ir.Node) -> dict[str, ir.Attr]:
    return {name: a for name, a in node.attributes.items() if name == "fully_connected_pass"}


def _matrices(*values: ir.Value) -> bool:
    shapes = [static_shape(v) for v in values]
    return all(s is not None and len(s) >= 2 for s in shapes)


def _swap(context: Context, value: ir.Value) -> ir.Value:
    rank = len(dims(value))
    return transpose(context, value, [*range(rank - 2), rank - 1, rank - 2])
