"""Matrix products."""

from __future__ import annotations

from ...errors import popart_exception
from .. import dtypes
from .._building.create import Out, create, result
from ..context import gir
from ..tensor import Tensor
from . import _shapes
from .utils import check_operands, check_pow2scaled

__all__ = ["matmul", "matmul_pow2scaled"]


def matmul(
    lhs: Tensor,
    rhs: Tensor,
    available_memory_proportion: float | None = None,
    output_type: dtypes.dtype | None = None,
    partials_type: dtypes.dtype | None = None,
) -> Tensor:
    """Matrix product by NumPy's rules.

    Parameters
    ----------
    available_memory_proportion : float, optional
        For the cost model.
    output_type : popxl.dtype, optional
        Type of the result.
    partials_type : float16 or float32, optional
        Type in which products are accumulated.

    Raises
    ------
    ValueError
        Another `partials_type`.
    popart_exception
        The operands do not fit.
    """
    check_operands(lhs=lhs, rhs=rhs)
    if partials_type not in (None, dtypes.float16, dtypes.float32):
        raise ValueError(f"dtype {partials_type} is not valid, must be float16 or float32")
    _check_float8(lhs, rhs)
    if lhs.dtype != rhs.dtype:
        _shapes.broadcast("MatMul", lhs, rhs)
    partials = _partials(partials_type)
    options = {"available_memory_proportion": available_memory_proportion, "partials_type": partials}
    out = Out("matmul_out", _shapes.matmul(lhs, rhs), output_type or lhs.dtype)
    if output_type in (None, lhs.dtype):
        return result(create("MatMul", [lhs, rhs], [out], options=options))
    return result(
        create("MatMul", [lhs, rhs], [out], {"to": output_type}, options=options, runs=("popxl", "MatMulTo", 1))
    )


def _check_float8(lhs: Tensor, rhs: Tensor) -> None:
    """Refuse float8 operands: they need a float8 partner and a scale, which `matmul` lacks (popart_exception)."""
    eight = [t.dtype._is_float8 for t in (lhs, rhs)]
    if any(eight) and not all(eight):
        other = rhs if eight[0] else lhs
        raise popart_exception(
            f"Invalid operand type: {other.dtype._pb_dtype.name} in op MatMul.  If using a FLOAT8 input, all op "
            "operands must be a FLOAT8 type"
        )
    if all(eight):
        raise popart_exception("Log2 scale input tensor must be provided for FLOAT8 input types in op MatMul")


def _partials(given: dtypes.dtype | None) -> str:
    if given is not None:
        return "HALF" if given == dtypes.float16 else "FLOAT"
    option = str(getattr(gir()._options, "partialsTypeMatMuls", ""))
    if option.lower() not in ("", "float", "half"):
        raise ValueError(f"str {option} is not valid, must be 'float' or 'half'")
    return "HALF" if option.lower() == "half" else "FLOAT"


def matmul_pow2scaled(
    lhs: Tensor, rhs: Tensor, log2_scale: Tensor, available_memory_proportion: float | None = None
) -> Tensor:
    """(lhs @ rhs) * 2**log2_scale of float8 operands, as float16.

    Raises
    ------
    TypeError
        An operand is not float8, or the scale not int32.
    ValueError
        The scale is no scalar.
    """
    check_pow2scaled("matmul", lhs, rhs, log2_scale)
    check_operands(lhs=lhs, rhs=rhs, log2_scale=log2_scale)
    out = Out("matmul_pow2scaled_out", _shapes.matmul(lhs, rhs), dtypes.float16)
    options = {"available_memory_proportion": available_memory_proportion, "partials_type": "HALF"}
    op = create("MatMul", [lhs, rhs, log2_scale], [out], options=options, runs=("popxl", "MatMulPow2Scaled", 1))
    return result(op)
