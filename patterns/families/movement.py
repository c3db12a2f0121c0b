"""Data movement: Split, Slice, Cast and Expand, transposes that cancel, Upsample."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx_ir as ir

from .._context import Context, Shape, dims, static_shape
from .._core import Outcome, Refused, rewrites
from ..facts import (
    attribute_int,
    attribute_string,
    input_at,
    ints_of,
    known,
    permutation,
    real_inputs,
    reshape,
    slice_of,
)


@rewrites("SplitOp", "Split")
def split_to_slices(node: ir.Node, context: Context) -> Outcome:
    """One Slice per output."""
    source = node.inputs[0]
    shape = static_shape(source)
    if source is None or shape is None:
        return Refused("shapes are not static")
    axis = attribute_int(node, "axis", 0) % len(shape)
    sizes = ints_of(node, "split", 1, context)
    if sizes is None and input_at(node, 1) is not None:
        return Refused("the sizes are computed while running")
    sizes = sizes or _even(shape[axis], len(node.outputs))
    bounds = np.cumsum([0, *sizes])
    return [slice_of(context, source, axis, int(a), int(b)) for a, b in pairwise(bounds)]


def _even(length: int, parts: int) -> Shape:
    """ONNX's equal split: pieces of the ceiling, the last one smaller."""
    size = -(-length // parts)
    return tuple(min(size, length - size * i) for i in range(parts))


@rewrites("Slice2SliceSubsample", "Slice")
def strided_slice(node: ir.Node, context: Context) -> Outcome:
    """A slice with |step| > 1: unit steps, in the direction of the step, then every |step|-th element."""
    source = node.inputs[0]
    shape, out = static_shape(source), static_shape(node.outputs[0])
    steps = ints_of(node, "steps", 4, context)
    if steps is None or all(abs(s) == 1 for s in steps):
        return None
    starts, ends = ints_of(node, "starts", 1, context), ints_of(node, "ends", 2, context)
    if source is None or shape is None or out is None or starts is None or ends is None:
        return Refused("shapes or bounds are not static")
    axes = ints_of(node, "axes", 3, context) or tuple(range(len(starts)))
    unit = [1 if s > 0 else -1 for s in steps]
    fine, stride = list(shape), [1] * len(shape)
    for axis, start, end, step, direction in zip(axes, starts, ends, steps, unit, strict=True):
        fine[axis] = len(range(*slice(start, _open_end(end, direction), direction).indices(shape[axis])))
        stride[axis] = abs(step)
    sliced = context.graphcore(
        "Slice", source, like=source, shape=fine, axes=axes, starts=starts, ends=ends, steps=tuple(unit)
    )
    return context.graphcore("Subsample", sliced, like=node.outputs[0], strides=tuple(stride))


def _open_end(end: int, direction: int) -> int | None:
    """ONNX writes "past the first element" of a backward slice as a very negative number."""
    return None if direction < 0 and end < -(2**30) else end


@rewrites("ExpandCast", "Cast", stages=("model", "view"))
def cast_before_expand(node: ir.Node, context: Context) -> Outcome:
    """Cast(Expand(x)) becomes Expand(Cast(x)): fewer elements are converted."""
    middle = node.inputs[0]
    expand = None if middle is None else middle.producer()
    if middle is None or expand is None or expand.op_type != "Expand":
        return None
    if not context.only_used_once(middle):
        return Refused(f"tensor '{middle.name}' is needed elsewhere")
    to = ir.DataType(node.attributes["to"].as_int())
    cast = context.op("Cast", expand.inputs[0], like=expand.inputs[0], dtype=to, attrs=dict(node.attributes))
    return context.op("Expand", cast, *expand.inputs[1:], like=node.outputs[0], attrs=dict(expand.attributes))


@rewrites("TransposeToIdentityOrReshapePattern", "Transpose")
def cancel_transposes(node: ir.Node, context: Context) -> Outcome:
    """Transpose, (Identity | Reshape), Transpose that leaves the elements in order becomes Identity or Reshape."""
    middle = node.inputs[0]
    between = None if middle is None else middle.producer()
    if between is None or between.op_type not in ("Transpose", "Identity", "Reshape"):
        return None
    first = between if between.op_type == "Transpose" else _producer(between.inputs[0])
    if first is None or first.op_type != "Transpose":
        return None
    if not (known(node) and known(first)):
        return Refused("shapes are not static")
    source, middle_shape, last_shape = real_inputs(first)[0], static_shape(first.outputs[0]), static_shape(middle)
    assert middle_shape is not None
    assert last_shape is not None
    order = _element_order(
        permutation(first, len(middle_shape)), middle_shape, last_shape, permutation(node, len(last_shape))
    )
    if order is None:
        return Refused("the transposes do not undo each other")
    out = dims(node.outputs[0])
    if out == static_shape(source):
        return context.op("Identity", source, like=source)
    return reshape(context, source, out)


def _producer(value: ir.Value | None) -> ir.Node | None:
    return None if value is None else value.producer()


def _element_order(first: Shape, middle: Shape, last: Shape, second: Shape) -> bool | None:
    """True when transposing by `first`, reshaping `middle` to `last` and transposing by `second` keeps the order.

    Both shapes are cut into common factors (when that is possible), which the transposes only permute; factors of
    length 1 do not matter.
    """
    cuts_a, cuts_b = _cuts(middle), _cuts(last)
    cuts = sorted(cuts_a | cuts_b)
    if any(b % a for a, b in pairwise(cuts)):
        return None
    factors = [b // a for a, b in pairwise(cuts)]
    ends = cuts[1:]  # counted from the innermost element outwards
    labels = list(reversed(range(len(factors))))  # outermost factor first
    after_first = _groups(middle, ends, labels)
    source: list[list[int]] = [[] for _ in first]
    for axis, group in zip(first, after_first, strict=True):
        source[axis] = group
    original = [f for group in source for f in group]
    last_groups = _groups(last, ends, labels)
    final = [f for axis in second for f in last_groups[axis]]
    return original == final or None


def _cuts(shape: Shape) -> set[int]:
    """Products of trailing dimensions, 1 included."""
    return {int(p) for p in np.cumprod([1, *reversed(shape)])}


def _groups(shape: Shape, ends: list[int], labels: list[int]) -> list[list[int]]:
    """For each axis the factors it is made of, outermost first."""
    groups: list[list[int]] = []
    low = 1
    for length in reversed(shape):
        high = low * length
        groups.append([i for i in labels if low < ends[i] <= high])
        low = high
    return list(reversed(groups))


_SCALES_ARE_AN_INPUT = 9  # opset; the op list that `ir_view` shows has them as an attribute all the same


@rewrites("UpsampleToResize", "Upsample")
def upsample_to_resize(node: ir.Node, context: Context) -> Outcome:
    """Resize with the same scales and mode, as opset 10 has it."""
    if "scales" in node.attributes and context.opset < _SCALES_ARE_AN_INPUT:
        return Refused("scales are an attribute: an opset before 9")
    given = {name: node.attributes[name].value for name in ("scales",) if name in node.attributes}
    mode = attribute_string(node, "mode", "nearest")
    return context.op("Resize", *node.inputs, like=node.outputs[0], mode=mode, **given)


@rewrites("ZerosLikeOpPattern", "ZerosLike")
def zeros_like(node: ir.Node, context: Context) -> Outcome:
    """Zeros with the static shape and dtype of the input."""
    source = node.inputs[0]
    shape = static_shape(source)
    if source is None or shape is None or source.dtype is None:
        return Refused("shape or dtype is not static")
    dtype = attribute_int(node, "dtype", int(source.dtype))
    return context.graphcore("Zeros", like=node.outputs[0], attrs={"shape": shape, "dtype": dtype})


@rewrites("RandomUniformLikeOpPattern", "RandomUniformLike")
def random_uniform_like(node: ir.Node, context: Context) -> Outcome:
    """RandomUniform with the static shape and dtype of the input."""
    return _random_like(node, context, "RandomUniform")


@rewrites("RandomNormalLikeOpPattern", "RandomNormalLike")
def random_normal_like(node: ir.Node, context: Context) -> Outcome:
    """RandomNormal with the static shape and dtype of the input."""
    return _random_like(node, context, "RandomNormal")


def _random_like(node: ir.Node, context: Context, op_type: str) -> Outcome:
    source = node.inputs[0]
    shape = static_shape(source)
    if source is None or shape is None or source.dtype is None:
        return Refused("shape or dtype is not static")
    own = {n: a for n, a in node.attributes.items() if n != "dtype" and not n.startswith("__")}
    dtype = attribute_int(node, "dtype", int(source.dtype))
    return context.op(op_type, like=node.outputs[0], attrs={**own, "shape": shape, "dtype": dtype})


@rewrites("SplitGather", "Gather")
def split_gather(node: ir.Node, context: Context) -> Outcome:
    """A Gather whose result is read on several virtual graphs is repeated on each of them."""
    output = node.outputs[0]
    places = sorted({attribute_int(n, "__ipu_number", -1) for n in output.consumers()})
    if len(places) < 2:
        return None
    if context.is_protected(output):
        return Refused(f"tensor '{output.name}' must keep its name")
    home = attribute_int(node, "__ipu_number", -1)
    result: ir.Value | None = None
    for place in places:
        attributes = {**node.attributes, "__ipu_number": place}
        copy = context.op("Gather", *node.inputs, like=output, attrs=attributes)
        if place == home or result is None:
            result = copy
        for reader, index in [(u.node, u.idx) for u in output.uses()]:
            if attribute_int(reader, "__ipu_number", -1) == place:
                reader.replace_input_with(index, copy)
    return result
