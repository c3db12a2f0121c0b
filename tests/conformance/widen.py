"""A float32 model as a float64 one, so that the reference evaluator's differences are exact."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

_TYPE_ATTRIBUTES = {"to", "dtype", "stash_type", "output_dtype"}


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with every FLOAT tensor, type and type attribute made DOUBLE."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _graph(copy.graph)
    for function in copy.functions:
        for node in function.node:
            _node(node)
    return copy


def _graph(graph: onnx.GraphProto) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        _type(value.type)
    for tensor in graph.initializer:
        _tensor(tensor)
    for node in graph.node:
        _node(node)


def _type(kind: onnx.TypeProto) -> None:
    which = kind.WhichOneof("value")
    if which == "tensor_type" and kind.tensor_type.elem_type == TensorProto.FLOAT:
        kind.tensor_type.elem_type = TensorProto.DOUBLE
    elif which in ("sequence_type", "optional_type"):
        _type(getattr(kind, which).elem_type)


def _tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float64"), tensor.name))


def _node(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.DOUBLE
        elif attribute.HasField("t"):
            _tensor(attribute.t)
        elif attribute.HasField("g"):
            _graph(attribute.g)
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            value = np.asarray(attribute.f if attribute.name == "value_float" else list(attribute.floats), np.float64)
            attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(value)))
