"""Quantisation-aware training: rewrites a quantised model so that gradients pass through its rounding.

An operator on quantised data becomes the float operator between DequantizeLinear and QuantizeLinear, and these two
become the operators of `lowering.kernels.straight_through`, which store integers as float32. Operators between them
that move or bound data (Reshape, MaxPool, Concat, Clip, ...) then pass on gradients too. Results do not change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ..errors import popart_exception
from ..lowering.kernels import DOMAIN
from ..lowering.passes.channels_last import take_over
from ..ops.quantize import INTEGER_ARITHMETIC
from ..ops.registry import resolve
from .choice import operand_name, schema_of

_LINEAR = "QLinear"
_WHOLE = "whole"  # metadata of values that hold integers as float32: their quantised type
_QUANTIZE, _DEQUANTIZE = ("axis", "block_size", "saturate"), ("axis", "block_size", "output_dtype")


def expand(model: ir.Model) -> None:
    """Replace operators on quantised data by float operators, in place; popart_exception if one has none."""
    for graph in model.graphs():
        for node in list(graph):
            if node.op_type.startswith(_LINEAR) or node.op_type == "QGemm":
                _expand(graph, node, model.opset_imports)


def pass_rounding(model: ir.Model) -> None:
    """Let gradients pass through an expanded model's rounding, in place; popart_exception where none can pass."""
    model.opset_imports[DOMAIN] = 1
    for graph in model.graphs():
        for node in list(graph):
            _replace_one(graph, node, model.opset_imports)
        for value in list(graph.outputs):
            _whole_output(graph, value)


def _replace_one(graph: ir.Graph, node: ir.Node, opsets: Mapping[str, int]) -> None:
    match node.op_type:
        case "QuantizeLinear":
            to = _result_type(node)
            kept = [*_attributes(node, _QUANTIZE), ir.AttrInt64("to", to.value)]
            _mark(_take_form(graph, node, "StraightThroughQuantize", kept), to)
        case "DequantizeLinear":
            _take_form(graph, node, "StraightThroughDequantize", _attributes(node, _DEQUANTIZE))
        case "DynamicQuantizeLinear":
            _mark(_take_form(graph, node, "StraightThroughDynamicQuantize", []), ir.DataType.UINT8)
        case "MatMulInteger" | "ConvInteger":
            centred = [_centred(graph, node, i) for i in (0, 1)]
            new = ir.Node("", node.op_type.removesuffix("Integer"), centred, list(node.attributes.values()))
            _take_place(graph, node, new)
            new.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        case name if "Integer" in name or name.startswith("DynamicQuantize"):
            raise _refusal(node)
        case _ if node.domain != DOMAIN:
            types = [v.metadata_props[_WHOLE] for v in node.inputs if v is not None and _WHOLE in v.metadata_props]
            if types:
                _follow(graph, node, ir.DataType[types[0]], opsets)


def _follow(graph: ir.Graph, node: ir.Node, dtype: ir.DataType, opsets: Mapping[str, int]) -> None:
    """Let an operator take integers stored as float32: what must have their type, and what has it, is stored so too."""
    if node.op_type in INTEGER_ARITHMETIC:
        raise _refusal(node)
    schema = schema_of(node, opsets)

    def kind(formals: Sequence[Any], at: int) -> str:
        return formals[min(at, len(formals) - 1)].type_str

    inputs = list(enumerate(node.inputs))
    stored = {v for _, v in inputs if v is not None and _WHOLE in v.metadata_props}
    kinds = {kind(schema.inputs, i) for i, v in inputs if v in stored} if schema is not None else set[str]()
    for i, value in inputs:
        if value is not None and value not in stored and schema is not None and kind(schema.inputs, i) in kinds:
            as_float = [ir.AttrInt64("to", ir.DataType.FLOAT.value)]
            node.replace_input_with(i, _before(graph, node, "Cast", [value], as_float))
    for i, value in enumerate(node.outputs):
        if schema is None or kind(schema.outputs, i) in kinds:
            _mark(value, dtype)


def _mark(value: ir.Value, dtype: ir.DataType) -> None:
    """Record that a value holds integers of a type, stored as float32."""
    value.metadata_props[_WHOLE] = dtype.name
    value.type = ir.TensorType(ir.DataType.FLOAT)


def _attributes(node: ir.Node, names: Collection[str]) -> list[Any]:
    return [node.attributes[n] for n in names if n in node.attributes]


def _take_form(graph: ir.Graph, node: ir.Node, form: str, attributes: list[Any]) -> ir.Value:
    new = ir.Node(DOMAIN, form, list(node.inputs), attributes, name=node.name, num_outputs=len(node.outputs))
    _take_place(graph, node, new)
    return new.outputs[0]


def _take_place(graph: ir.Graph, node: ir.Node, new: ir.Node) -> None:
    graph.insert_before(node, new)
    for old, value in zip(node.outputs, new.outputs, strict=True):
        take_over(old, value)
    graph.remove(node, safe=True)


def _result_type(node: ir.Node) -> ir.DataType:
    """The type that a QuantizeLinear rounds to."""
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    if zero is None:
        return ir.DataType(node.attributes.get_int("output_dtype", 0) or ir.DataType.UINT8.value)
    dtype = zero.const_value.dtype if zero.const_value is not None else zero.dtype
    if dtype is None:
        raise popart_exception(f"straight_through: node '{node.name}' rounds to a type that the model does not say.")
    return dtype


def _centred(graph: ir.Graph, node: ir.Node, at: int) -> ir.Value:
    """An integer operand minus its zero point, as float32."""
    as_float = [ir.AttrInt64("to", ir.DataType.FLOAT.value)]
    parts = [node.inputs[at], node.inputs[at + 2] if len(node.inputs) > at + 2 else None]
    cast = [_before(graph, node, "Cast", [p], as_float) for p in parts if p is not None]
    return cast[0] if len(cast) == 1 else _before(graph, node, "Sub", cast)


def _before(
    graph: ir.Graph, node: ir.Node, op: str, inputs: list[Any], attributes: Any = (), version: int | None = None
) -> ir.Value:
    new = ir.Node("", op, inputs, attributes, version=version)
    graph.insert_before(node, new)
    (value,) = new.outputs
    value.name = f"{node.outputs[0].name}/{op}{len(list(graph))}"
    return value


def _refusal(node: ir.Node) -> popart_exception:
    return popart_exception(
        f"straight_through: node '{node.name}' is a {node.op_type}, through which no gradient can be passed.\n"
        "  fix: quantise the model in the QDQ format."
    )


def _expand(graph: ir.Graph, node: ir.Node, opsets: Mapping[str, int]) -> None:
    """Replace ``QLinearX`` by X between DequantizeLinear and QuantizeLinear; a bias has the product of their scales."""
    data, result, bias = _parsed(node, opsets)
    name = "Gemm" if node.op_type == "QGemm" else node.op_type.removeprefix(_LINEAR)
    row = resolve("", name, opsets.get("", 1))
    if row is None or result is None or "channels_last" in node.attributes:
        raise _refusal(node)
    real: list[ir.Value] = []
    for number, (value, scale, zero) in enumerate(data):
        axis = ir.AttrInt64("axis", _axis(node, number))
        real.append(_before(graph, node, "DequantizeLinear", [value, scale, zero], [axis]))
    if bias is not None:
        scales = [scale for _, scale, _ in data]
        unit = ir.Value(name=f"{bias.name}_scale", const_value=ir.Tensor(_product(node, scales)))
        graph.register_initializer(unit)
        real.append(_before(graph, node, "DequantizeLinear", [bias, unit], [ir.AttrInt64("axis", 0)]))
    attributes = [
        a for n, a in node.attributes.items() if n in row.attributes and not (name == "Gemm" and n == "alpha")
    ]
    y = _before(graph, node, name, real, attributes, node.attributes.get_int("opset", None))
    _take_place(graph, node, ir.Node("", "QuantizeLinear", [y, *result], name=node.name))


def _parsed(node: ir.Node, opsets: Mapping[str, int]) -> tuple[list[tuple[Any, Any, Any]], tuple[Any, Any] | None, Any]:
    """Data with scale and zero point, scale and zero point of the result, and the bias.

    Data are followed by their own scale; a scale that follows no data is the result's; data without scale are the bias.
    """
    names = [operand_name(node, i, opsets).lower() for i in range(len(node.inputs))]
    names += ["", "", ""]
    values = [*node.inputs, None, None, None]
    data: list[tuple[Any, Any, Any]] = []
    result, bias, i = None, None, 0
    while i < len(node.inputs):
        variadic = node.op_type == "QLinearConcat" and i >= 2
        if "scale" in names[i] and not variadic:
            result, i = (values[i], values[i + 1]), i + 2
        elif variadic or names[i + 1] == f"{names[i]}_scale":
            data.append((values[i], values[i + 1], values[i + 2]))
            i += 3
        else:
            bias, i = values[i], i + 1
    return data, result, bias


def _axis(node: ir.Node, number: int) -> int:
    """The axis along which the scales of an operand run, if it has several."""
    if node.op_type.endswith("Conv"):
        return 0
    if not number:
        return -2 if node.op_type == "QLinearMatMul" else 0
    return 0 if node.attributes.get_int("transB", 0) else -1


def _product(node: ir.Node, scales: list[Any]) -> np.ndarray:
    known = [s.const_value for s in scales if s is not None]
    if None in known:
        raise popart_exception(f"straight_through: node '{node.name}' has scales that are computed, and a bias.")
    alpha = node.attributes.get_float("alpha", 1.0)
    return np.asarray(np.prod([k.numpy().reshape(-1) for k in known], axis=0) * np.float32(alpha), np.float32)


def _whole_output(graph: ir.Graph, value: ir.Value) -> None:
    """Cast an output that was declared as integers back to its type."""
    node = value.producer()
    if node is None or _WHOLE not in value.metadata_props:
        return
    dtype = ir.DataType[value.metadata_props.pop(_WHOLE)]
    cast = ir.Node("", "Cast", [value], [ir.AttrInt64("to", dtype.value)])
    graph.insert_after(node, cast)
    (new,) = cast.outputs
    new.name, value.name = value.name, f"{value.name}/real"
    new.shape, new.type = value.shape, ir.TensorType(dtype)
    graph.outputs[graph.outputs.index(value)] = new
