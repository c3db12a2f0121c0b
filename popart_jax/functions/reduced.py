"""A model in half precision: FLOAT tensors become float16 or bfloat16, except where only float32 is accurate enough."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx_ir as ir

from ..errors import popart_exception
from ..ops.registry import resolve
from .choice import operand_name

_HALVES = {
    np.dtype(np.float16): ir.DataType.FLOAT16,
    np.dtype(ml_dtypes.bfloat16): ir.DataType.BFLOAT16,
}
_TYPE_ATTRIBUTES = ("to", "dtype")
FLOAT = ir.DataType.FLOAT


def storage_type(dtype: Any) -> np.dtype:
    """The NumPy type of the argument `dtype` of `to_jax`.

    Raises popart_exception where it is not a floating point type of 8 to 64 bits.
    """
    try:
        kind = np.dtype(jnp.dtype(dtype))
    except TypeError as err:
        raise popart_exception(f"dtype: {dtype!r} is no type of numbers, such as 'bfloat16'.") from err
    if not jnp.issubdtype(kind, np.floating):
        raise popart_exception(f"dtype: parameters are floating point numbers, got {kind}.")
    return kind


def check_width(dtype: np.dtype, wide: bool) -> None:
    """Refuse 64 bits for a model without 64-bit types, because JAX would cut its arrays to 32 bits.

    Raises popart_exception, which says what to do.
    """
    if dtype.itemsize == 8 and not wide:
        raise popart_exception(
            "dtype: float64 is for models with 64-bit types, and this one has none.\n"
            "  fix: leave dtype out; a model is computed in the types of its file, or in half precision."
        )


def reduce_precision(model: ir.Model, dtype: np.dtype, keep: Collection[str] = ()) -> tuple[str, ...]:
    """Turn a model's FLOAT tensors into half precision, in place; returns the stored ones that stay float32.

    Operands that are parameters of an operator (scales of Resize and of quantisation), and `keep` (running statistics),
    stay float32. 8-bit types change nothing here: such parameters are only stored in them and computed in float32.
    """
    half = _HALVES.get(dtype)
    if half is None:
        return ()
    graphs = [model.graph, *model.graph.subgraphs()]
    fixed = {v for g in graphs for node in g for v in _steering(node, model)}
    kept: list[str] = []
    for graph in graphs:
        for name, value in graph.initializers.items():
            if value in fixed or name in keep:
                kept += [name] if value.dtype is FLOAT else []
            else:
                _convert(value, half)
        for value in graph.inputs:
            _convert(value, half)
        for node in graph:
            _convert_node(node, half, fixed)
    return tuple(kept)


def given_half(graph: ir.Graph, params: Mapping[str, Any], inputs: Mapping[str, Any]) -> np.dtype | None:
    """The half precision that a call asks for by its arrays: the type of all its float32 weights and inputs, if one.

    It is JAX's own promotion, with the model as one operator: where any of them is float32, so is the computation.
    Python's numbers and whole numbers have no say, nor have inputs alone.
    """
    stored = [graph.initializers.get(name) for name in params]
    weights = {x.dtype for v, x in zip(stored, params.values(), strict=True) if _is_float(v) and hasattr(x, "dtype")}
    if len(weights) != 1 or (kind := np.dtype(*weights)) not in _HALVES:
        return None
    declared = {v.name: v for v in graph.inputs}
    fed = {x.dtype for n, x in inputs.items() if _is_float(declared.get(n)) and _has_width(x)}
    return kind if fed <= {kind} else None


def in_half(model: ir.Model, dtype: np.dtype, keep: Collection[str] = ()) -> ir.Model:
    """A copy of a model in half precision; see `reduce_precision`."""
    copy = model.clone()
    reduce_precision(copy, dtype, keep)
    return copy


def is_half(x: Any) -> bool:
    """Whether an array is of half precision."""
    return getattr(x, "dtype", None) in _HALVES


def _is_float(value: ir.Value | None) -> bool:
    return value is not None and value.dtype is FLOAT


def _has_width(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, np.inexact)


def _convert(value: ir.Value, half: ir.DataType) -> None:
    if value.dtype is not FLOAT:
        return
    value.type = ir.TensorType(half)
    if (held := value.const_value) is not None:  # converted where it is read: most weights come with the call
        convert = partial(_converted, held, half)
        value.const_value = ir.LazyTensor(convert, half, shape=ir.Shape(held.shape.numpy()), name=held.name, cache=True)


def _converted(tensor: Any, half: ir.DataType) -> ir.Tensor[Any]:
    return ir.Tensor(tensor.numpy().astype(half.numpy()), dtype=half, name=tensor.name)


def _convert_node(node: ir.Node, half: ir.DataType, fixed: Collection[ir.Value]) -> None:
    if any(v in fixed for v in node.outputs):
        return
    for name in _TYPE_ATTRIBUTES:
        if name in node.attributes and node.attributes[name].value == FLOAT.value:
            node.attributes[name] = ir.AttrInt64(name, half.value)
    for name in ("value_float", "value_floats"):
        if name in node.attributes:
            tensor = ir.Tensor(np.asarray(node.attributes.pop(name).value, np.float32))
            node.attributes["value"] = ir.AttrTensor("value", tensor)
    held = node.attributes.get("value")
    if held is not None and held.type is ir.AttributeType.TENSOR and held.value.dtype is FLOAT:
        node.attributes["value"] = ir.AttrTensor("value", _converted(held.value, half))
    for value in node.outputs:
        if value.dtype is FLOAT:
            value.type = ir.TensorType(half)


def _steering(node: ir.Node, model: ir.Model) -> list[ir.Value]:
    """Operands of a node that are parameters of the operator rather than data."""
    row = resolve(node.domain, node.op_type, node.version or model.opset_imports.get(node.domain, 1))
    quantises = "Quantize" in node.op_type
    found: list[ir.Value] = []
    for i, value in enumerate(node.inputs):
        is_scale = quantises and "scale" in operand_name(node, i, model.opset_imports)
        if value is not None and (is_scale or (row is not None and row.is_static(i))):
            found.append(value)
    return found
