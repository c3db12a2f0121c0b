"""Helpers that many rewrites share: attributes of nodes, axes, permutations, broadcasts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from ._context import Context, Shape, dims, static_shape


def attribute_int(node: ir.Node, name: str, default: int) -> int:
    """An INT attribute, or the default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def attribute_float(node: ir.Node, name: str, default: float) -> float:
    """A FLOAT attribute, or the default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_float()


def attribute_string(node: ir.Node, name: str, default: str) -> str:
    """A STRING attribute, or the default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_string()


def attribute_ints(node: ir.Node, name: str) -> Shape | None:
    """An INTS attribute; None when not given."""
    attribute = node.attributes.get(name)
    return None if attribute is None else tuple(attribute.as_ints())


def ints_of(node: ir.Node, name: str, position: int, context: Context) -> Shape | None:
    """A list that older opsets give as attribute `name` and newer ones as input `position`; None when not known."""
    given = attribute_ints(node, name)
    if given is not None:
        return given
    value = input_at(node, position)
    array = context.static(value)
    return None if array is None else tuple(int(i) for i in array.reshape(-1))


def input_at(node: ir.Node, position: int) -> ir.Value | None:
    """An input by position; None when left out."""
    return node.inputs[position] if position < len(node.inputs) else None


def real_inputs(node: ir.Node) -> list[ir.Value]:
    """The inputs that are present."""
    return [v for v in node.inputs if v is not None]


def same_type(a: ir.Value, b: ir.Value) -> bool:
    """Equal and known dtype and static shape."""
    return (
        a.dtype is not None
        and a.dtype == b.dtype
        and static_shape(a) is not None
        and static_shape(a) == static_shape(b)
    )


def permutation(node: ir.Node, rank: int) -> Shape:
    """Permutation of a Transpose; reversal of the axes when not given."""
    return attribute_ints(node, "perm") or tuple(reversed(range(rank)))


def broadcast_axes(shape: Shape, wide: Shape) -> Shape:
    """Axes of `wide` that NumPy broadcasting stretched to get there from `shape`."""
    lead = len(wide) - len(shape)
    return tuple(range(lead)) + tuple(
        lead + i for i, (d, w) in enumerate(zip(shape, wide[lead:], strict=True)) if d == 1 and w != 1
    )


def broadcast(a: Shape, b: Shape) -> Shape:
    """NumPy broadcast of two shapes that are known to agree."""
    rank = max(len(a), len(b))
    padded = [(1,) * (rank - len(s)) + s for s in (a, b)]
    return tuple(y if x == 1 else x for x, y in zip(*padded, strict=True))


def sum_to(context: Context, gradient: ir.Value, target: ir.Value) -> ir.Value:
    """Sum `gradient` over the axes along which `target` was broadcast, giving target's shape."""
    wide, shape = static_shape(gradient), static_shape(target)
    if wide is None or shape is None or wide == shape:
        return gradient
    axes = broadcast_axes(shape, wide)
    reduced = tuple(d for i, d in enumerate(wide) if i not in axes)
    result = (
        context.op("ReduceSum", gradient, like=gradient, shape=reduced, axes=axes, keepdims=0) if axes else gradient
    )
    return result if reduced == shape else reshape(context, result, shape)


def reshape(context: Context, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """PopART's Reshape, whose target is an attribute."""
    return context.graphcore("Reshape", value, like=value, shape=shape, attrs={"shape": tuple(shape)})


def known(node: ir.Node) -> bool:
    """All inputs and outputs have static shapes."""
    return all(static_shape(v) is not None for v in (*real_inputs(node), *node.outputs))


def elementwise(context: Context, op_type: str, *operands: ir.Value, domain: str = "", **attributes: Any) -> ir.Value:
    """An elementwise op; the output has the broadcast shape and the dtype of the first operand."""
    shapes = [static_shape(v) for v in operands]
    shape = None if None in shapes else reduce(broadcast, [s for s in shapes if s is not None])
    return context.op(op_type, *operands, domain=domain, dtype=operands[0].dtype, shape=shape, **attributes)


def scalar(context: Context, number: float, like: ir.Value) -> ir.Value:
    """A constant of rank 0 with the dtype of `like`."""
    dtype = ir.DataType.FLOAT if like.dtype is None else like.dtype
    return context.constant_op(np.array(number, dtype.numpy()))


def transpose(context: Context, value: ir.Value, perm: Sequence[int]) -> ir.Value:
    """A Transpose of the value."""
    shape = dims(value)
    return context.op("Transpose", value, like=value, shape=[shape[p] for p in perm], perm=tuple(perm))


def slice_of(context: Context, value: ir.Value, axis: int, start: int, stop: int, **keywords: Any) -> ir.Value:
    """Unit-step slice along one axis."""
    shape = list(dims(value))
    shape[axis] = stop - start
    return context.graphcore(
        "Slice", value, like=value, shape=shape, axes=(axis,), starts=(start,), ends=(stop,), **keywords
    )
