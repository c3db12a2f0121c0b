"""Sums: two terms, terms that are pads, scaling by -1, binary ops with a scalar."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import onnx_ir as ir

from .._context import Context, Shape, dims, static_shape
from .._core import Outcome, Refused, rewrites
from ..facts import attribute_float, attribute_int, attribute_ints, attribute_string, ints_of, real_inputs


class ScalarOp(IntEnum):
    """Values of BinaryConstScalar's attribute `op`."""

    Add = 0
    Sub = 1
    Mul = 2
    Div = 3
    Pow = 4


@rewrites("SumToAdd", "Sum")
def sum_to_add(node: ir.Node, context: Context) -> Outcome:
    """Sum of exactly two inputs becomes Add."""
    terms = real_inputs(node)
    if len(terms) != 2:
        return Refused(f"{len(terms)} inputs")
    return context.op("Add", *terms, like=node.outputs[0])


@rewrites("NegativeOneScale", "Scale")
def negative_one_scale(node: ir.Node, context: Context) -> Outcome:
    """Scale by -1 becomes Neg."""
    factor = attribute_float(node, "scale", 1.0)
    if factor != -1.0:
        return Refused(f"the scale is {factor:g}")
    return context.op("Neg", node.inputs[0], like=node.outputs[0])


@rewrites("DecomposeBinaryConstScalar", "BinaryConstScalar")
def decompose_binary_const_scalar(node: ir.Node, context: Context) -> Outcome:
    """The scalar becomes a constant tensor, first or second operand as `scalar_in_index` says."""
    source = node.inputs[0]
    assert source is not None
    number = attribute_int(node, "op", 0)
    if not 0 <= number < len(ScalarOp):
        return Refused(f"op number {number}")
    if source.dtype is None:
        return Refused("input dtype unknown")
    scalar = context.constant_op(np.array(attribute_float(node, "value", 0.0), source.dtype.numpy()))
    operands = (source, scalar) if attribute_int(node, "scalar_in_index", 1) else (scalar, source)
    return context.op(ScalarOp(number).name, *operands, like=node.outputs[0])


@rewrites("PadSum", "Sum", "Add")
def sum_of_pads(node: ir.Node, context: Context) -> Outcome:
    """Zero pads along one axis that tile it without overlap: their sum is the concatenation of the padded tensors."""
    terms = real_inputs(node)
    pads = [_pad_of(term, context) for term in terms]
    if len(terms) < 2 or not any(pads):
        return None
    found = [p for p in pads if p is not None]
    if len(found) < len(pads):
        return Refused("an operand is no zero Pad, or is read elsewhere")
    axes = {axis for _, axis, _ in found}
    length = static_shape(node.outputs[0])
    if len(axes) != 1 or length is None:
        return Refused("the operands are padded along different axes")
    axis = axes.pop()
    found.sort(key=lambda p: p[2])
    position = 0
    for source, _, start in found:
        if start != position:
            return Refused("the padded tensors overlap or leave a gap")
        position += dims(source)[axis]
    if position != length[axis]:
        return Refused("the padded tensors leave a gap")
    return context.op("Concat", *(p[0] for p in found), like=node.outputs[0], axis=axis)


def _pad_of(term: ir.Value, context: Context) -> tuple[ir.Value, int, int] | None:
    """(source, axis, start) when `term` is a zero Pad along one axis that only the sum reads."""
    node = term.producer()
    if node is None or node.op_type not in ("Pad", "SliceGrad") or not context.only_used_once(term):
        return None
    source = node.inputs[0]
    shape = static_shape(source)
    pads = ints_of(node, "pads", 1, context) if node.op_type == "Pad" else _around(node, shape, static_shape(term))
    if source is None or pads is None or shape is None or min(pads) < 0:
        return None
    fill = context.static(node.inputs[2]) if len(node.inputs) > 2 else np.array(attribute_float(node, "value", 0.0))
    if attribute_string(node, "mode", "constant") != "constant" or fill is None or np.any(fill):
        return None
    return _one_axis(source, pads, len(shape))


def _around(node: ir.Node, part: Shape | None, whole: Shape | None) -> Shape | None:
    """How many zeros a slice's gradient puts before and after the slice, if its steps are 1."""
    starts, steps = attribute_ints(node, "starts"), attribute_ints(node, "steps") or ()
    if part is None or whole is None or starts is None or any(s != 1 for s in steps):
        return None
    before = [0] * len(whole)
    for axis, start in zip(attribute_ints(node, "axes") or range(len(starts)), starts, strict=True):
        before[axis] = min(max(start + whole[axis] if start < 0 else start, 0), whole[axis])
    return (*before, *(w - p - b for w, p, b in zip(whole, part, before, strict=True)))


def _one_axis(source: ir.Value, pads: Shape, rank: int) -> tuple[ir.Value, int, int] | None:
    axes = [a for a in range(rank) if pads[a] or pads[a + rank]]
    return (source, axes[0], pads[axes[0]]) if len(axes) == 1 else None
