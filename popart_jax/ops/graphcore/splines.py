"""Spline bases and weights of graph convolutions (SplineCNN, Fey et al. 2018); no gradients."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from ...errors import popart_exception, until_compiled
from ..arrays import Array
from ..builder_methods import builder_method
from ..operator import operator
from ..registry import lowers
from .losses import DOMAIN


def _basis(f: Array, degree: int) -> list[Array]:
    """B-spline values of the fraction f for every m in 0..degree."""
    if degree == 1:
        return [1 - f, f]
    if degree == 2:
        return [0.5 * f * f - f + 0.5, -f * f + f + 0.5, 0.5 * f * f]
    cube = f**3
    return [
        (1 - f) ** 3 / 6,
        (3 * cube - 6 * f * f + 4) / 6,
        (-3 * cube + 3 * f * f + 3 * f + 1) / 6,
        cube / 6,
    ]


def _check_rank(op: str, name: str, x: Array, rank: int) -> None:
    if x.ndim != rank:
        again = name[0].upper() + name[1:]
        raise popart_exception(
            f"{op}Op::setup: {name} tensor is not a {rank}-D tensor. {again} tensor rank = {x.ndim}."
        )


operator("SplineBasis", gradients=())
builder_method("SplineBasis", "splinebasis(args=[], degree:int) -> 2")


@lowers("SplineBasis", domain=DOMAIN)
def spline_basis(
    pseudo: Array, kernel_size: Array, is_open_spline: Array, /, *, degree: int = 0
) -> tuple[Array, Array]:
    if not 0 <= degree <= 3:
        raise popart_exception(f"SplineBasisOp degree = {degree} is not valid: must be between 0 and 3.")
    _check_rank("SplineBasis", "pseudo", pseudo, 2)
    _check_rank("SplineBasis", "kernelSize", kernel_size, 1)
    _check_rank("SplineBasis", "isOpenSpline", is_open_spline, 1)
    if degree == 0:
        error = popart_exception("SplineBasis: there is no kernel for degree 0")
        raise until_compiled(error, pseudo[:, :1], jnp.zeros((pseudo.shape[0], 1), jnp.int32))
    sizes = jnp.asarray(kernel_size, jnp.int32)
    n, dims = degree + 1, pseudo.shape[1]
    v = pseudo * (sizes - degree * jnp.asarray(is_open_spline).astype(jnp.int32)).astype(pseudo.dtype)
    floor = jnp.floor(v)
    values = jnp.stack(_basis(v - floor, degree), axis=-1)  # (E, D, degree + 1)
    strides = jnp.concatenate([jnp.ones(1, jnp.int32), jnp.cumprod(sizes)[:-1].astype(jnp.int32)])
    s = jnp.arange(n**dims, dtype=jnp.int32)
    basis, index = jnp.ones((pseudo.shape[0], n**dims), pseudo.dtype), jnp.zeros((pseudo.shape[0], n**dims), jnp.int32)
    for d in range(dims):
        m = s // n**d % n
        basis = basis * values[:, d, m]
        index = index + (floor[:, d, None].astype(jnp.int32) + m) % sizes[d] * strides[d]
    return lax.stop_gradient(basis), index


operator("SplineWeighting", gradients=())
builder_method("SplineWeighting", "splineweighting(args=[])")


@lowers("SplineWeighting", domain=DOMAIN)
def spline_weighting(x: Array, weight: Array, basis: Array, weight_index: Array, /) -> Array:
    """out[e, o] = sum over s, i of basis[e, s] x[e, i] weight[index[e, s], i, o]."""
    for name, value, rank in (("input", x, 2), ("weight", weight, 3), ("basis", basis, 2),
                              ("weightIndex", weight_index, 2)):  # fmt: skip
        _check_rank("SplineWeighting", name, value, rank)
    for name, value in (("weight", weight), ("basis", basis)):
        if value.dtype != x.dtype:
            raise popart_exception(
                f"SplineWeightingOp::setup: The input and {name} tensors have different data types. The input tensor "
                f"data type = {x.dtype}. The {name} tensor data type = {value.dtype}."
            )
    return lax.stop_gradient(jnp.einsum("es,ei,esio->eo", basis, x, jnp.asarray(weight)[weight_index]))
