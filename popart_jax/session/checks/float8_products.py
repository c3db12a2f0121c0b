"""What PopART asks of products of float8 operands besides their types: partial sums and results in half precision."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ...errors import popart_exception
from ...execution import Type
from ...model.attribute_names import PARTIALS_TYPE
from ...model.dtypes import element_type
from ...ops.float8_products import is_float8


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
