"""What has a gradient, what is trained, what is updated by copy.

Source: the gradients in PopART's operator list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import jax.numpy as jnp
import onnx_ir as ir

from ...errors import popart_exception
from ...execution import Type
from ...lowering.interpreter import names
from ...lowering.resolve import captures, find, label

STOPS = frozenset({
    "Abort", "Bucketize", "CopyVarUpdate", "CtcBeamSearchDecoder", "Detach", "Histogram", "IncrementMod", "Init",
    "LossScaleUpdate", "Nop", "NormalizeImage", "PackedDataBlock", "ScaledAdd", "SequenceSlice", "SplineBasis",
    "SplineWeighting", "UnaryZeroGrad", "Zeros", "ZerosLike", "ArgMax", "ArgMin", "Constant", "ConstantOfShape",
    "IsInf", "IsNaN", "Loop", "PRelu", "RandomNormal", "RandomUniform", "Scan", "Shape",
})  # fmt: skip
_BETWEEN_REPLICAS = frozenset({"ReplicatedAllReduce", "ReplicatedAllReduceInplace"})
REFUSES = frozenset({"BinaryConstScalar", "Square", "RandomNormalLike", "RandomUniformLike"})
_WITHOUT_GRADIENT = frozenset({
    "And", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXnor", "BitwiseXor", "CastThenPow2Scale", "Equal",
    "Greater", "Less", "Not", "Or", "Pow2ScaleThenCast",
})  # fmt: skip
_LOSSES_OF_ANY_TYPE = frozenset({"IdentityLoss", "L1"})
_DIFFERENTIABLE = {
    "BatchNormalization": slice(3),
    "Clip": slice(1),
    "Dropout": slice(1),
    "Pad": slice(1),
    "Resize": slice(1),
    "RoiAlign": slice(1),
    "Upsample": slice(1),
    "Fmod": slice(1),
    "OneHot": slice(2, 3),
}


def with_gradient(graph: ir.Graph, loss: str, types: Mapping[str, Type], replicas: int = 1) -> frozenset[str]:
    """Tensors of the main graph from which a differentiable path leads to the loss; none passes between replicas.

    Raises
    ------
    popart_exception
        The path crosses an operator without gradient that PopART refuses to train through.
    """
    known = names(graph)
    stops = STOPS | _BETWEEN_REPLICAS if replicas > 1 else STOPS
    reached: dict[ir.Value, None] = {known[loss]: None}
    pending = [known[loss]]
    while pending:
        node = pending.pop().producer()
        if node is None or node.op_type in stops:
            continue
        sources = [v for v in _differentiable_inputs(node) if v not in reached and _is_float(v, types)]
        _refuse(node, sources)
        for value in sources:
            reached[value] = None
            pending.append(value)
    return frozenset(v.name for v in reached if v.name)


def _refuse(node: ir.Node, sources: list[ir.Value]) -> None:
    """Raise where a gradient is asked of an operator that has none and does not just end the path."""
    if sources and node.op_type == "Pad" and node.attributes.get_string("mode", "constant") != "constant":
        raise popart_exception(f"Node '{label(node)}' does not support PadGradOp when mode is not \"constant\"")
    asked = [node] if sources and node.op_type in REFUSES else []
    if node.op_type in _LOSSES_OF_ANY_TYPE:
        producer = node.inputs[0].producer() if node.inputs[0] is not None else None
        asked += [producer] if producer is not None and producer.op_type in _WITHOUT_GRADIENT else []
    for one in asked:
        raise popart_exception(
            f"The loss needs the gradient of node '{label(one)}', but {one.op_type} does not have a valid grad op "
            f"corresponding to its output {one.outputs[0].name}"
        )


def _differentiable_inputs(node: ir.Node) -> Iterable[ir.Value]:
    op_type = "Fmod" if node.op_type == "Mod" and node.attributes.get_int("fmod", 0) else node.op_type
    read = _DIFFERENTIABLE.get(op_type, slice(None))
    yield from (v for v in node.inputs[read] if v is not None)
    yield from captures(node)


def _is_float(value: ir.Value, types: Mapping[str, Type]) -> bool:
    kind = types.get(value.name or "")
    return kind is not None and jnp.issubdtype(kind.dtype, jnp.floating)


def check_loss(graph: ir.Graph, loss: str, types: Mapping[str, Type]) -> None:
    """Raise unless the loss is a tensor with at most one element that some operator makes.

    Raises
    ------
    popart_exception
        It is not.
    """
    value = names(graph).get(loss)
    if value is None:
        raise popart_exception(f"Could not find loss tensor '{loss}' in main graph tensors")
    if value.producer() is None:
        raise popart_exception(f"Tensor loss '{loss}' does not have a producer Op")
    shape = types[loss].shape if loss in types else ()
    if len(shape) > 1 or any(d > 1 for d in shape):
        raise popart_exception(
            f"Invalid loss tensor '{loss}'. It must be a scalar tensor, but it has shape {list(shape)}.\n"
            "  fix: reduce it, for instance with identityloss."
        )


def copied_variables(graph: ir.Graph, training: bool) -> dict[str, str]:
    """Variables that take the value of another tensor: batch norm statistics and targets of copyvarupdate."""
    copies: dict[str, str] = {}
    for node in graph:
        pairs: tuple[tuple[ir.Value | None, ir.Value | None], ...] = ()
        if node.op_type == "CopyVarUpdate":
            pairs = ((node.inputs[0], node.inputs[1]),)
        elif node.op_type == "BatchNormalization" and training and _trains_statistics(node):
            pairs = tuple(zip(node.inputs[3:5], node.outputs[1:3], strict=False))
        for target, source in pairs:
            if target is not None and source is not None and target.name in graph.initializers:
                copies[target.name or ""] = source.name or ""
    return copies


def _trains_statistics(node: ir.Node) -> bool:
    if len(node.outputs) < 3 or not all(v.name for v in node.outputs[1:3]):
        return False
    return len(node.outputs) == 5 or bool(node.attributes.get_int("training_mode", 0))


def draws_numbers(graph: ir.Graph, opsets: Mapping[str, int], training: bool) -> bool:
    """Whether some node, nested ones included, draws random numbers."""
    for node in ir.traversal.RecursiveGraphIterator(graph):
        row = find(node, opsets)
        if row is None or "key" not in row.context.values():
            continue
        if node.op_type != "Dropout" or training or len(node.inputs) > 2:
            return True
    return False
