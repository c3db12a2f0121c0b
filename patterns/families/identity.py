"""Ops that leave values unchanged: replaced by Identity, then removed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from .._context import Context, static_shape
from .._core import Outcome, Refused, Renamed, rewrites
from ..facts import (
    attribute_float,
    attribute_int,
    attribute_ints,
    attribute_string,
    ints_of,
    permutation,
    real_inputs,
    same_type,
)

CHECKPOINT = "__recompute_output_in_backward_pass"


Check = Callable[[ir.Node, Context], bool]
_CHECKS: dict[str, Check] = {}


def _changes_nothing_if(*ops: str) -> Callable[[Check], Check]:
    """Register the decorated function as the condition under which these ops are the identity."""

    def register(check: Check) -> Check:
        _CHECKS.update(dict.fromkeys(ops, check))
        return check

    return register


@_changes_nothing_if("Cast")
def _same_dtype(node: ir.Node, context: Context) -> bool:
    source = node.inputs[0]
    return source is not None and source.dtype == ir.DataType(attribute_int(node, "to", 0))


@_changes_nothing_if("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand")
def _same_shape(node: ir.Node, context: Context) -> bool:
    """A change of shape to the same static shape, or a Reshape whose constant target is the input's shape."""
    source = node.inputs[0]
    shape = static_shape(source)
    if shape is None:
        return False
    target = static_shape(node.outputs[0])
    if node.op_type == "Reshape" and target is None:
        wanted = ints_of(node, "shape", 1, context)
        keep_zero = attribute_int(node, "allowzero", 0)
        target = wanted and tuple(
            shape[i] if d == 0 and not keep_zero else d for i, d in enumerate(wanted[: len(shape)])
        )
        return target == shape and len(wanted or ()) == len(shape)
    return target == shape


@_changes_nothing_if("Dropout")
def _no_drop(node: ir.Node, context: Context) -> bool:
    """Dropout that keeps everything: ratio 0, or no training."""
    if any(context.use_count(o) or context.is_protected(o) for o in node.outputs[1:]):
        return False
    ratio, training = attribute_float(node, "ratio", 0.5), context.mode == "training"
    if len(node.inputs) > 1 and "ratio" not in node.attributes:  # opset 12: ratio and training_mode are inputs
        given = context.constant(node.inputs[1])
        flag = context.constant(node.inputs[2]) if len(node.inputs) > 2 else np.array(False)
        if flag is None or (bool(flag) and given is None):
            return False
        ratio, training = (0.5 if given is None else float(given)), bool(flag)
    return ratio == 0.0 or not training


@_changes_nothing_if("ShapedDropout")
def _drops_nothing(node: ir.Node, context: Context) -> bool:
    """ShapedDropout of ratio 0; without training the operator stays in the graph, as upstream."""
    return attribute_float(node, "ratio", 0.5) == 0.0


@_changes_nothing_if("Transpose")
def _identity_permutation(node: ir.Node, context: Context) -> bool:
    shape = static_shape(node.inputs[0])
    perm = attribute_ints(node, "perm") if shape is None else permutation(node, len(shape))
    return perm is not None and perm == tuple(range(len(perm)))


@_changes_nothing_if("Pad")
def _zero_pads(node: ir.Node, context: Context) -> bool:
    pads = ints_of(node, "pads", 1, context)
    return pads is not None and not any(pads)


@_changes_nothing_if("Sum", "Concat", "Max", "Min", "Mean")
def _one_input(node: ir.Node, context: Context) -> bool:
    return len(real_inputs(node)) == 1


@_changes_nothing_if("Subsample")
def _unit_strides(node: ir.Node, context: Context) -> bool:
    return all(s == 1 for s in attribute_ints(node, "strides") or (0,))


@_changes_nothing_if("Scale")
def _unit_scale(node: ir.Node, context: Context) -> bool:
    return attribute_float(node, "scale", 1.0) == 1.0


@_changes_nothing_if("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
def _reduces_nothing(node: ir.Node, context: Context) -> bool:
    """Every reduced axis has length 1 and stays."""
    shape = static_shape(node.inputs[0])
    if shape is None or attribute_int(node, "keepdims", 1) != 1:
        return False
    axes = ints_of(node, "axes", 1, context)
    if axes is None:
        return "axes" not in node.attributes and len(node.inputs) < 2 and all(d == 1 for d in shape)
    return all(shape[a] == 1 for a in axes)


@_changes_nothing_if("IdentityLoss")
def _loss_of_scalar(node: ir.Node, context: Context) -> bool:
    rank = static_shape(node.inputs[0])
    return attribute_string(node, "reduction", "Mean") in ("None", "NoReduction") or rank == ()


@_changes_nothing_if("Tile")
def _tiles_once(node: ir.Node, context: Context) -> bool:
    repeats = ints_of(node, "repeats", 1, context)
    return repeats is not None and all(r == 1 for r in repeats)


@_changes_nothing_if("Slice")
def _whole_slice(node: ir.Node, context: Context) -> bool:
    """A slice of full size is the whole input unless it runs backwards."""
    source = node.inputs[0]
    if source is None or not same_type(source, node.outputs[0]):
        return False
    steps = ints_of(node, "steps", 4, context)
    has_steps = "steps" in node.attributes or len(node.inputs) > 4
    return not has_steps or (steps is not None and all(s > 0 for s in steps))


@rewrites("OpToIdentity", *_CHECKS, stages=("model", "view"))
def op_to_identity(node: ir.Node, context: Context) -> Outcome:
    """An op that cannot change its single input becomes Identity."""
    if not _CHECKS[node.op_type](node, context):
        return None
    source = real_inputs(node)[0]
    return [context.op("Identity", source, like=source), *[None] * (len(node.outputs) - 1)]


def _is_identity(node: ir.Node, context: Context) -> bool:
    return node.op_type == "Identity" or _CHECKS[node.op_type](node, context)


@rewrites("PreUniRepl", "Identity", "Pad", "Sum", "Concat", stages=("model", "view"))
def remove_after_sole_use(node: ir.Node, context: Context) -> Outcome:
    """The producer of the input writes the output directly."""
    if not _is_identity(node, context):
        return None
    source = real_inputs(node)[0]
    producer = source.producer()
    if producer is None or producer.graph is not node.graph:
        return Refused(f"tensor '{source.name}' is not computed in this graph")
    if CHECKPOINT in node.attributes:
        return Refused("it marks a recomputation checkpoint")
    if not context.only_used_once(source):
        return Refused(f"tensor '{source.name}' is read elsewhere, or must keep its name")
    return Renamed(source)


@rewrites("PostNRepl", "Identity", "Pad", "Sum", "Concat", stages=("model", "view"))
def remove_copy(node: ir.Node, context: Context) -> Outcome:
    """Readers of the output read the input instead."""
    if not _is_identity(node, context):
        return None
    if CHECKPOINT in node.attributes:
        return Refused("it marks a recomputation checkpoint")
    return real_inputs(node)[0]


@rewrites("PostNRepl", "AddArg0Grad", "AddArg1Grad", "SumArgGrad", "SubArg0Grad")
def remove_copied_gradient(node: ir.Node, context: Context) -> Outcome:
    """The gradient of Add or Sum for an operand of full shape is the incoming gradient."""
    gradient = node.inputs[0]
    assert gradient is not None
    if not same_type(gradient, node.outputs[0]):
        return Refused("the operand was broadcast")
    return gradient
