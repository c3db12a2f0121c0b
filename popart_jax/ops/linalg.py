"""Matrix products, Einsum and Det."""

from __future__ import annotations

import re

import jax.numpy as jnp
import numpy as np

from ..errors import OpError, popart_exception
from ..model.dtypes import element_type
from .arrays import Array, device_dtype, dtype_name, is_float, listed
from .elementwise import check_frames, legacy_align
from .float8_products import has_float8, of_float8
from .operator import EXPENSIVE, PRODUCT, ROUNDS, as_onnx, gradient, operator
from .primitives import times_stored
from .registry import OutputType, direct, lowers

operator("Det", ranks="X 2+")
direct({"Det": jnp.linalg.det}, 11)


def _promoted(shape: tuple[int, ...], left: bool) -> str:
    full = shape if len(shape) > 1 else ((1, *shape) if left else (*shape, 1))
    return listed(full)


operator(
    "MatMul",
    PRODUCT | EXPENSIVE | ROUNDS,
    gradients=[gradient("g x1", name="MatMulLhsGrad"), gradient("g x0", of=1, name="MatMulRhsGrad")],
    batch="product",
    popxl=as_onnx(
        9,
        runs=13,
        base="MatMulBaseOp",
        parameters="available_memory_proportion serialisation output_type partials_type",
    ),
)


@lowers("MatMul", 1)
def annotated_matmul(x: Array, y: Array, /, *, named: OutputType = "") -> Array:
    """`matmul`, computed in the type of PopART's annotation if there is one."""
    return matmul(x, y, element_type(named).onnx.numpy() if named else None)


@lowers("MatMul", 1, popart=True)
def popart_matmul(x: Array, y: Array, power: Array | None = None, /, *, named: OutputType = "") -> Array:
    """Products of float8 operands have a power of two as third input, and give FLOAT16."""
    if has_float8(x, y):
        return of_float8("MatMul", matmul, x, y, power)
    if power is not None:
        raise OpError("Log2 scale input tensor not accepted for non-FLOAT8 input types in op {Op}", "MatMul")
    return annotated_matmul(x, y, named=named)


def matmul(x: Array, y: Array, dtype: np.dtype | None = None) -> Array:
    """Matrix product in the operands' common type (or `dtype`); 16-bit floats are accumulated in 32 bits.

    Scalars, and contracted sizes or types that differ, raise popart_exception.
    """
    if device_dtype(x.dtype) != device_dtype(y.dtype):
        raise popart_exception(f"MatMul takes operands of one type, not {dtype_name(x)} and {dtype_name(y)}; cast one.")
    for i, (operand, side) in enumerate(((x, "lhs"), (y, "rhs"))):
        if np.ndim(operand) == 0:
            raise OpError(f"{{Op}} doesn't support scalar tensor {{{i}}} as the {side} input", "MatMul")
    if x.shape[-1] != y.shape[-2 if y.ndim > 1 else 0]:
        raise OpError(
            f"{{Op}} contracting dimensions unequal: lhs '{{0}}' {_promoted(x.shape, True)}, rhs '{{1}}' "
            f"{_promoted(y.shape, False)}",
            "MatMul",
        )
    check_frames("MatMul", x.shape[:-2], y.shape[:-2])
    return jnp.matmul(x, y, preferred_element_type=dtype)


operator("Gemm", ROUNDS, ranks="A 2 B 2 C 0-2")


def _matrix_product(a: Array, b: Array, turned: int) -> Array:
    """a b, or a b' where b is `turned`."""
    fits = a.shape[-1:] == b.shape[-1:] and a.dtype == b.dtype  # `matmul` says what does not
    return times_stored(a, b) if turned and fits else matmul(a, b.T if turned else b)


@lowers("Gemm", 7)
def gemm(
    a: Array, b: Array, c: Array | None = None, /, *,
    alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,
) -> Array:  # fmt: skip
    """alpha * A' B' + beta * C; factors of 1 are skipped."""
    if a.ndim != 2 or b.ndim != 2:
        raise popart_exception(f"Gemm: A and B of ranks {a.ndim} and {b.ndim}; expected matrices")
    product = _matrix_product(a.T if transA else a, b, transB)
    kind = product.dtype
    if not is_float(product) and not (float(alpha).is_integer() and float(beta).is_integer()):
        product = product.astype(jnp.result_type(float))  # integers times a fraction are truncated at the end
    product = product if alpha == 1 else product * np.asarray(alpha, product.dtype)
    if c is None or beta == 0:
        return product.astype(kind)
    return (product + (c if beta == 1 else c * np.asarray(beta, product.dtype))).astype(kind)


@lowers("Gemm", 1)
def gemm_1(
    a: Array, b: Array, c: Array, /, *,
    alpha: float = 1.0, beta: float = 1.0, broadcast: int = 0, transA: int = 0, transB: int = 0,
) -> Array:  # fmt: skip
    product = _matrix_product(a.T if transA else a, b, transB)
    aligned = legacy_align(product, c, broadcast, None)
    return product * np.asarray(alpha, product.dtype) + aligned * np.asarray(beta, product.dtype)


@lowers("Einsum", 12)
def einsum(*xs: Array, equation: str) -> Array:
    plain = equation.replace(" ", "")
    if not _EQUATION.fullmatch(plain):
        raise popart_exception(f"Einsum: equation {equation!r}; expected letters, commas, '...' and one '->' at most")
    return jnp.einsum(plain, *xs).astype(xs[0].dtype)


_EQUATION = re.compile(r"(?:[A-Za-z,]|\.\.\.)*(?:->(?:[A-Za-z]|\.\.\.)*)?")
