"""Shape inference of one node while a model is built: ONNX's own for ai.onnx, our rules for ai.graphcore."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import shape_inference

from ..errors import popart_exception
from ..logs import module_logger
from ..model.dtypes import element_type
from ..model.tensor_info import _TensorInfoCore
from .graphcore_rules import RULES, Operands
from .traced import known as known
from .traced import traced

_SHAPE_TYPES = (ir.DataType.INT64, ir.DataType.INT32)
_KNOWN_VALUE_LIMIT = 1024  # elements of an integer constant that inference may look at
_KNOWN_SCALES_LIMIT = 8  # the same for other types, such as scales of Resize


@cache
def schema(op: str, version: int) -> onnx.defs.OpSchema:
    """ONNX schema of an operator at an opset version; of a deprecated one, the last before that."""
    found = onnx.defs.get_schema(op, version, "")
    return schema(op, found.since_version - 1) if found.deprecated else found


@cache
def _schema_in_force(op: str, version: int) -> tuple[onnx.defs.OpSchema, int]:
    """Schema of an operator and an opset version in which it is not deprecated."""
    found = schema(op, version)
    deprecated = onnx.defs.get_schema(op, version, "").deprecated
    return found, found.since_version if deprecated else version


def arity(domain: str, op: str, version: int) -> tuple[int, int, int]:
    """Least and most inputs, and most outputs, of an operator."""
    if domain == "ai.graphcore":
        rule = RULES[op]
        return rule.low, rule.high, rule.outputs
    found = schema(op, version)
    return found.min_input, found.max_input, found.max_output


def set_type(value: ir.Value, dtype: ir.DataType | None, shape: tuple[int, ...] | None) -> None:
    """Enter what is known about a tensor."""
    if dtype is not None:
        value.type = ir.TensorType(dtype)
    if shape is not None:
        value.shape = ir.Shape(shape)


def tensor_info(value: ir.Value) -> _TensorInfoCore | None:
    """Tensor info of a value, None if it is not known."""
    dtype, shape = known(value)
    return None if dtype is None or shape is None else _TensorInfoCore(element_type(dtype).data_type, list(shape))


def infer(node: ir.Node, version: int) -> None:
    """Enter types and shapes of the node's outputs, where they follow from the inputs.

    Raises
    ------
    popart_exception
        An inferred dimension is negative.
    """
    try:
        found = _graphcore(node) if node.domain == "ai.graphcore" else _onnx(node, version)
    except _FAILURES as err:
        module_logger("builder").info(
            "Shape inference of %s failed: %s", node.outputs[0].name if node.outputs else node, err
        )
        found = {}
    if node.domain == "" and any(found.get(v.name or "", _UNKNOWN)[1] is None for v in node.outputs):
        found = {**found, **{name: _merged(found.get(name), kind) for name, kind in traced(node, version).items()}}
    for value in node.outputs:
        dtype, shape = found.get(value.name or "", _UNKNOWN)
        if shape is not None and any(d < 0 for d in shape):
            raise popart_exception(
                f"Node {node.op_type} (name '{node.name}') has an invalid shape {list(shape)} for output "
                f"'{value.name}': "
                "dimensions cannot be negative"
            )
        set_type(value, dtype, shape)


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
_Type = tuple[ir.DataType | None, tuple[int, ...] | None]
_Found = Mapping[str, _Type]
_UNKNOWN: _Type = (None, None)


def _merged(stated: _Type | None, found: _Type) -> _Type:
    """What ONNX states, completed by what tracing found."""
    dtype, shape = stated or _UNKNOWN
    return dtype or found[0], found[1] if shape is None else shape


def _graphcore(node: ir.Node) -> _Found:
    rule = RULES.get(node.op_type)
    if rule is None:
        return {}
    types = [known(v) for v in node.inputs]
    results = rule.infer(Operands(types, node, len(node.outputs)))
    return {v.name or "": r for v, r in zip(node.outputs, results, strict=False)}


def _onnx(node: ir.Node, version: int) -> _Found:
    if node.op_type == "Constant":
        tensor = node.attributes["value"].value
        node.outputs[0].const_value = tensor
        return {node.outputs[0].name or "": (tensor.dtype, tuple(tensor.shape.numpy()))}
    added = _OWN_RULES.get(node.op_type)
    if added is not None and (found := added(node)):
        return found
    proto = onnx.NodeProto(op_type=node.op_type, name=node.name or "")
    proto.input.extend([(v.name or "") if v is not None else "" for v in node.inputs])
    proto.output.extend([v.name or "" for v in node.outputs])
    for attribute in node.attributes.values():
        if not attribute.name.startswith("__"):
            proto.attribute.append(ir.to_proto(_from_the_front(attribute, node)))
    types = {v.name: _type_proto(v) for v in node.inputs if v is not None and v.dtype is not None and v.name}
    data = {v.name: _data(v) for v in node.inputs if v is not None and v.name and _is_known(v)}
    found, valid = _schema_in_force(node.op_type, version)
    results = shape_inference.infer_node_outputs(found, proto, types, data, {}, _imports(valid), 4)
    return {name: _from_proto(result) for name, result in results.items()}


def _from_the_front(attribute: ir.Attr, node: ir.Node) -> ir.Attr:
    """Axes counted from the front: ONNX's rules of the old opsets know no others."""
    rank = _rank_of_axes(node)
    if attribute.name not in ("axis", "axes") or rank is None:
        return attribute
    counted = np.asarray(attribute.value)
    if counted.size == 0 or counted.min() >= 0:
        return attribute
    counted = np.where(counted < 0, counted + rank, counted).tolist()
    return ir.Attr(attribute.name, attribute.type, counted)


def _rank_of_axes(node: ir.Node) -> int | None:
    """Rank of the tensor that the axes of a node refer to."""
    first = node.inputs[0] if node.inputs else None
    if first is None or first.shape is None or node.op_type == "OneHot":
        return None
    rank = len(first.shape)
    return rank + len(node.attributes["axes"].value) if node.op_type == "Unsqueeze" else rank


@cache
def _imports(version: int) -> list[onnx.OperatorSetIdProto]:
    return [onnx.helper.make_opsetid("", version)]


def _same_as_input(node: ir.Node) -> _Found:
    return {node.outputs[0].name or "": known(node.inputs[0])}


def _same_as_both(node: ir.Node) -> _Found:
    """Operands of one type and shape; everything else is left to ONNX."""
    first, second = known(node.inputs[0]), known(node.inputs[1])
    return {node.outputs[0].name or "": first} if first == second and None not in first else {}


def _batch_norm(node: ir.Node) -> _Found:
    """ONNX says nothing about the statistics that training adds."""
    dtype, shape = known(node.inputs[0])
    if shape is None:
        return {}
    own = [(dtype, shape), *[(dtype, shape[1:2])] * 4]
    return {v.name or "": t for v, t in zip(node.outputs, own, strict=False)}


def _dropout(node: ir.Node) -> _Found:
    """The mask is BOOL in every opset."""
    data = known(node.inputs[0])
    return {v.name or "": t for v, t in zip(node.outputs, (data, (ir.DataType.BOOL, data[1])), strict=False)}


def _upsample(node: ir.Node) -> _Found:
    """Opset 6 has no inference function."""
    dtype, shape = known(node.inputs[0])
    if shape is None or "height_scale" not in node.attributes:
        return {}
    scales = (1.0, 1.0, node.attributes["height_scale"].value, node.attributes["width_scale"].value)
    return {node.outputs[0].name or "": (dtype, tuple(int(d * s) for d, s in zip(shape, scales, strict=True)))}


_UNARY = (
    "Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Identity", "LeakyRelu", "Log", "LogSoftmax", "Neg",
    "Reciprocal", "Relu", "Sigmoid", "Sign", "Sin", "Softmax", "Softplus", "Sqrt", "Tanh",
)  # fmt: skip
_BINARY = ("Add", "Div", "Mul", "Pow", "Sub")
_OWN_RULES: dict[str, Callable[[ir.Node], _Found]] = {
    "BatchNormalization": _batch_norm,
    "Dropout": _dropout,
    "Upsample": _upsample,
    **dict.fromkeys(_UNARY, _same_as_input),  # these two only save time
    **dict.fromkeys(_BINARY, _same_as_both),
}


def _type_proto(value: ir.Value) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    assert value.dtype is not None
    proto.tensor_type.elem_type = value.dtype.value
    if value.shape is not None:
        proto.tensor_type.shape.SetInParent()
        for d in value.shape:
            dim = proto.tensor_type.shape.dim.add()
            if isinstance(d, int):
                dim.dim_value = d
            elif d.value is not None:
                dim.dim_param = str(d.value)
    return proto


def _is_known(value: ir.Value) -> bool:
    """Whether inference may look at the value: shapes, axes, scales, not weights."""
    tensor = value.const_value
    if tensor is None:
        return False
    return tensor.size <= (_KNOWN_VALUE_LIMIT if tensor.dtype in _SHAPE_TYPES else _KNOWN_SCALES_LIMIT)


def _data(value: ir.Value) -> onnx.TensorProto:
    assert value.const_value is not None
    return onnx.numpy_helper.from_array(np.asarray(value.const_value.numpy()), value.name)


def _from_proto(proto: Any) -> tuple[ir.DataType | None, tuple[int, ...] | None]:
    kind = proto.tensor_type
    dtype = ir.DataType(kind.elem_type) if kind.elem_type else None
    if not kind.HasField("shape"):
        return dtype, None
    if not all(d.HasField("dim_value") for d in kind.shape.dim):
        return dtype, None
    return dtype, tuple(d.dim_value for d in kind.shape.dim)
