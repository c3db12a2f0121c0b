"""ONNX attributes as the Python values that translations take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import Any

import numpy as np
import onnx_ir as ir

from ..buffers import truths
from ..errors import popart_exception
from ..ops.registry import Lowering

_PLAIN = {ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING, ir.AttributeType.TYPE_PROTO}
_SET_BY_1 = {"ceil_mode", "interleaved", "is_causal", "keepdims", "largest", "noop_with_empty_axes", "sorted"}
_ZERO_OR_ONE = {"center_point_box", "fmod", "storage_order"}
_BOOLEANS = {
    "enableReducedClassesInLabel", "inputIsLogProbability", "noOverlap", "print_gradient", "zeroInfinity", "zeroUnused",
}  # fmt: skip
_LISTS = {ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS}


def array(tensor: ir.TensorProtocol) -> np.ndarray:
    """Elements of a tensor; texts as Python strings."""
    if tensor.dtype is ir.DataType.STRING:
        try:
            texts = [t.decode() if isinstance(t, bytes) else t for t in tensor.numpy().reshape(-1).tolist()]
        except UnicodeDecodeError as err:
            raise popart_exception(f"Tensor '{tensor.name}' holds text that is no UTF-8: {err.object[:40]!r}.") from err
        return np.asarray(texts, object).reshape(tensor.shape.numpy())
    return truths(tensor.numpy())


def to_python(attr: ir.Attr, subgraph: Callable[[ir.Graph], Any]) -> Any:
    """Value of one attribute: numbers and text as they are, lists as tuples, tensors as NumPy, graphs as functions."""
    if attr.type in _PLAIN:
        return attr.value
    if attr.type in _LISTS:
        return tuple(attr.value)
    if attr.type is ir.AttributeType.TENSOR:
        return array(attr.value)
    if attr.type is ir.AttributeType.TENSORS:
        return tuple(array(t) for t in attr.value)
    if attr.type is ir.AttributeType.GRAPH:
        return subgraph(attr.value)
    if attr.type is ir.AttributeType.GRAPHS:
        return tuple(subgraph(g) for g in attr.value)
    return attr.value


def keywords(node: ir.Node, lowering: Lowering, subgraph: Callable[[ir.Graph], Any]) -> Mapping[str, Any]:
    """The attributes of `node` that its translation takes; PopART's `__` annotations and unknown ones stay out.

    Raises TypeError where a required attribute is missing (by the translation's own call), popart_exception where a
    flag is neither 0 nor 1.
    """
    return {
        _parameter(name): _flag(attr) if attr.type is ir.AttributeType.INT else to_python(attr, subgraph)
        for name, attr in node.attributes.items()
        if _parameter(name) in lowering.attributes and not attr.is_ref()
    }


def _flag(attr: ir.Attr) -> int:
    """The value of an integer attribute; flags, for which ONNX defines 0 and 1 only, follow ONNX Runtime or PopART."""
    if attr.name in _BOOLEANS and attr.value not in (0, 1):
        raise popart_exception(f"Can not convert int {attr.value} to bool. Value needs to be 0 or 1")
    if attr.name in _ZERO_OR_ONE and attr.value not in (0, 1):
        raise popart_exception(f"the attribute '{attr.name}' is {attr.value}; it has to be 0 or 1")
    return int(attr.value == 1) if attr.name in _SET_BY_1 else attr.value


def _parameter(name: str) -> str:
    """Name of the translation's parameter for an attribute: Python keywords get an underscore (`lambda_`)."""
    return f"{name}_" if iskeyword(name) else name
