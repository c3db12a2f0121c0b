"""What PopART asks of matrix products and convolutions: of float8 operands, and of products computed in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ...errors import popart_exception
from ...execution import Type
from ...model.attribute_names import PARTIALS_TYPE, SERIALIZE_FACTOR, SERIALIZE_MODE
from ...model.dtypes import element_type
from ...ops.float8_products import is_float8

# Mode of `Builder.setSerializeMatMul`: operand, its axis counted from the end, and what PopART calls that dimension.
_DIMENSIONS = {
    "input_channels": (0, -2, "input channels dim"),
    "output_channels": (1, -1, "output channels dim"),
    "reducing_dim": (0, -1, "reducing dimension"),
}


def check_float8_products(graph: ir.Graph, types: Mapping[str, Type], matmul_partials: str) -> None:
    """Raise popart_exception for the first product with partial sums or results of another type.

    `matmul_partials` is the session's type for matrix products. A convolution is refused only if it names another type:
    it has none of its own otherwise.
    """
    for node in graph:
        if node.op_type not in ("MatMul", "Conv") or not any(_has_float8(v, types) for v in node.inputs):
            continue
        is_matmul = node.op_type == "MatMul"
        named = node.attributes.get_string("__output_type", "")
        if is_matmul and named and element_type(named).lower != "float16":
            raise popart_exception(
                f"Invalid output type: {element_type(named).lower}. Output type must be float16 for FLOAT8_* matmul "
                "operands. "
            )
        partials = node.attributes.get_string(PARTIALS_TYPE, matmul_partials if is_matmul else "half")
        if partials.lower() == "half":
            continue
        if is_matmul:
            raise popart_exception(
                f"Invalid partials type: MatMulPartialsType::{partials.upper()}. Partials type must be "
                "MatMulPartialsType::HALF for FLOAT8_* matmul operands. "
            )
        raise popart_exception(
            f"Invalid partials type: {partials}. Partials type must be half for FLOAT8 conv operand types. "
        )


def _has_float8(value: ir.Value | None, types: Mapping[str, Type]) -> bool:
    kind = types.get(value.name or "") if value is not None else None
    return kind is not None and is_float8(kind.dtype)


def check_serialised_matmuls(graph: ir.Graph, types: Mapping[str, Type]) -> None:
    """Raise popart_exception for a MatMul with an unknown mode, or a factor that does not divide its dimension."""
    for node in graph:
        mode = node.attributes.get(SERIALIZE_MODE)
        factor = node.attributes.get(SERIALIZE_FACTOR)
        if node.op_type != "MatMul" or mode is None or factor is None or mode.as_string() == "none":
            continue
        if mode.as_string() not in _DIMENSIONS:
            raise popart_exception(f"Unsupport matmul serialisation mode {mode.as_string()}")
        operand, axis, words = _DIMENSIONS[mode.as_string()]
        shapes = [types[v.name].shape for v in node.inputs[:2] if v is not None and v.name and v.name in types]
        if len(shapes) < 2:
            continue
        _check_ranks(node, shapes)
        extent, parts = _extent(shapes[operand], operand, axis), factor.as_int()
        if parts < 1:
            raise popart_exception(
                f"Invalid serialisation factor {parts}. Serialisation factor must be a non-zero positive integer."
            )
        if extent % parts:
            raise popart_exception(
                f"Invalid serialisation factor {parts} for {words} {extent}. {mode.as_string()} dim should be "
                "a multiple of the serialisation factor "
            )


def _check_ranks(node: ir.Node, shapes: Sequence[tuple[int, ...]]) -> None:
    """Refuse ranks that PopART can't slice: it takes matrices and batches of them, of the same rank on both sides."""
    for value, shape in zip(node.inputs, shapes, strict=False):
        if value is not None and len(shape) not in (2, 3):
            raise popart_exception(
                f"{value.name} must have rank 2 or 3 for matmul serialization. \n"
                "Please squeeze or reshape for serialization."
            )
    if len(shapes[0]) != len(shapes[1]):
        raise popart_exception("matmuls must have equal rank for matmul serialization")


def _extent(shape: tuple[int, ...], operand: int, axis: int) -> int:
    """Size of an operand's axis; a vector is a single row on the left and a single column on the right."""
    matrix = ((1, *shape), (*shape, 1))[operand] if len(shape) < 2 else shape
    return matrix[axis]
