"""Infers types of a node's outputs while a model is built: by ONNX's inference for ai.onnx, else by the translation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import shape_inference

from ..errors import popart_exception
from ..logs import module_logger
from ..model.dtypes import element_type
from ..model.op_names import listed
from ..model.tensor_info import _TensorInfoCore
from . import known as memory
from .description import UNKNOWN, Description, Operand, Type, describe
from .description import known as known
from .own_rules import own_shape
from .schema_methods import schema
from .traced import traced

MANY = 2**31 - 1
_ATTRIBUTES_WITHOUT_VALUE = (ir.AttributeType.GRAPH, ir.AttributeType.TENSOR)
_TRACED = ("BatchNormalization", "Dropout", "Upsample")
"""PopART differs from ONNX's inference: statistics of training; a mask that is always BOOL; opset 6, which has none."""
_FAILURES = (
    shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
    IndexError,
    TypeError,
    KeyError,
    ZeroDivisionError,
)


def arity(domain: str, op: str, version: int) -> tuple[int, int, int]:
    """Least and most inputs, and most outputs, of an operator."""
    if domain == "ai.graphcore":
        noted = memory.recall("arity", domain, op, version)
        return _declared_arity(domain, op, version) if noted is None else tuple(noted)
    found = schema(op, version)
    return found.min_input, found.max_input, found.max_output


def _declared_arity(domain: str, op: str, version: int) -> tuple[int, int, int]:
    from ..ops.registry import resolve  # imports JAX

    row = resolve(domain, op, version)
    assert row is not None
    found = row.least_inputs, MANY if row.variadic else len(row.inputs), MANY
    memory.note((domain, op, version), found, "arity", domain, op, version)
    return found


def set_type(value: ir.Value, dtype: ir.DataType | None, shape: tuple[int, ...] | None) -> None:
    """Set the known parts of a tensor's type."""
    if dtype is not None:
        value.type = ir.TensorType(dtype)
    if shape is not None:
        value.shape = ir.Shape(shape)


def tensor_info(value: ir.Value) -> _TensorInfoCore | None:
    """Tensor info of a value, None if it is not known."""
    dtype, shape = known(value)
    return None if dtype is None or shape is None else _TensorInfoCore(element_type(dtype).data_type, list(shape))


def infer(node: ir.Node, version: int) -> None:
    """Set types and shapes of the node's outputs, where they follow from the inputs.

    A negative dimension that follows raises popart_exception.
    """
    for value, (dtype, shape) in zip(node.outputs, _types(node, version), strict=False):
        if shape is not None and any(d < 0 for d in shape):
            raise popart_exception(
                f"Output '{value.name}' of node '{node.name or ''}' has invalid shape, {listed(shape)}. Values must be "
                "non-negative in each shape dimension."
            )
        set_type(value, dtype, shape)


def _types(node: ir.Node, version: int) -> Sequence[Type]:
    if node.op_type == "Constant" and node.domain == "":
        tensor = node.attributes["value"].value
        node.outputs[0].const_value = tensor
        return [(tensor.dtype, tuple(tensor.shape.numpy()))]
    described = describe(node, version)
    own = own_shape(described)
    if own is not None and described.operands[0] is not None:
        return [(described.operands[0].dtype, own)]
    plain = not any(kind in _ATTRIBUTES_WITHOUT_VALUE for _, kind, _ in described.attributes)
    return _inferred(described) if plain else _infer(described)


def _infer(node: Description) -> Sequence[Type]:
    stated: Sequence[Type] = [UNKNOWN] * node.outputs
    if node.domain == "" and node.op not in _TRACED:
        try:
            stated = _onnx(node)
        except _FAILURES as err:
            module_logger("builder").info("Shape inference of %s failed: %s", node.op, err)
    holds_graph = any(kind is ir.AttributeType.GRAPH for _, kind, _ in node.attributes)
    if holds_graph or all(shape is not None for _, shape in stated):
        return stated
    found = traced(node) or (_infer_alike(node) if node.domain == "" else ()) or [UNKNOWN] * node.outputs
    return [(a[0] or b[0], b[1] if a[1] is None else a[1]) for a, b in zip(stated, found, strict=True)]


def _infer_alike(node: Description) -> Sequence[Type]:
    """Types of the results if operands of one type parameter had the first one's: a session alone asks for types."""
    formals = schema(node.op, node.version).inputs
    first: dict[str, ir.DataType] = {}
    alike: list[Operand | None] = []
    for i, x in enumerate(node.operands):
        if x is not None and x.dtype is not None:
            dtype = first.setdefault(formals[min(i, len(formals) - 1)].type_str, x.dtype)
            x = x if dtype is x.dtype else replace(x, dtype=dtype, data=None)
        alike.append(x)
    return () if tuple(alike) == node.operands else _infer(replace(node, operands=tuple(alike)))


_inferred = lru_cache(maxsize=4096)(_infer)  # the layers of a network repeat


def _onnx(node: Description) -> Sequence[Type]:
    """The output types by ONNX's inference."""
    proto = onnx.NodeProto(op_type=node.op)
    present = {f"in{i}": x for i, x in enumerate(node.operands) if x is not None}
    outputs = [f"out{i}" for i in range(node.outputs)]
    proto.input.extend("" if x is None else f"in{i}" for i, x in enumerate(node.operands))
    proto.output.extend(outputs)
    proto.attribute.extend(ir.to_proto(_from_the_front(attribute, node)) for attribute in node.ir_attributes())
    types = {name: _type_proto(x) for name, x in present.items() if x.dtype is not None}
    data = {name: onnx.numpy_helper.from_array(a, name) for name, x in present.items() if (a := x.array()) is not None}
    found, valid = _schema_in_force(node.op, node.version)
    results = shape_inference.infer_node_outputs(found, proto, types, data, {}, _imports(valid), 4)
    return [_from_proto(results[name]) if name in results else UNKNOWN for name in outputs]


@cache
def _schema_in_force(op: str, version: int) -> tuple[onnx.defs.OpSchema, int]:
    """Schema of an operator and an opset version in which it is not deprecated."""
    found = schema(op, version)
    deprecated = onnx.defs.get_schema(op, version, "").deprecated
    return found, found.since_version if deprecated else version


@cache
def _imports(version: int) -> list[onnx.OperatorSetIdProto]:
    return [onnx.helper.make_opsetid("", version)]


def _from_the_front(attribute: ir.Attr, node: Description) -> ir.Attr:
    """The attribute with axes counted from the front: ONNX's inference for old opsets takes no negative ones."""
    rank = _rank_of_axes(node)
    if attribute.name not in ("axis", "axes") or rank is None:
        return attribute
    counted = np.asarray(attribute.value)
    if counted.size == 0 or counted.min() >= 0:
        return attribute
    counted = np.where(counted < 0, counted + rank, counted).tolist()
    return ir.Attr(attribute.name, attribute.type, counted)


def _rank_of_axes(node: Description) -> int | None:
    """Rank of the tensor that the axes of a node refer to."""
    first = node.operands[0] if node.operands else None
    if first is None or first.sizes is None or node.op == "OneHot":
        return None
    rank = len(first.sizes)
    return rank + len(node.attribute("axes") or ()) if node.op == "Unsqueeze" else rank


def _type_proto(operand: Operand) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    assert operand.dtype is not None
    proto.tensor_type.elem_type = operand.dtype.value
    if operand.sizes is not None:
        proto.tensor_type.shape.SetInParent()
        for size in operand.sizes:
            dim = proto.tensor_type.shape.dim.add()
            if isinstance(size, int):
                dim.dim_value = size
            elif size:
                dim.dim_param = size
    return proto


def _from_proto(proto: Any) -> Type:
    kind = proto.tensor_type
    dtype = ir.DataType(kind.elem_type) if kind.elem_type else None
    if not kind.HasField("shape"):
        return dtype, None
    if not all(d.HasField("dim_value") for d in kind.shape.dim):
        return dtype, None
    return dtype, tuple(d.dim_value for d in kind.shape.dim)
