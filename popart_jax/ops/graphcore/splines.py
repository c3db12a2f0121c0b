"""Spline bases and weights of graph convolutions (SplineCNN, Fey et al. 2018); no gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import popart_exception
from ..builder_methods import builder_method
from ..operator import operator
from ..registry import lowers
from .losses import DOMAIN


def _basis(f: jax.Array, degree: int) -> list[jax.Array]:
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


def _check_rank(name: str, x: jax.Array, rank: int) -> None:
    if x.ndim != rank:
        raise popart_exception(f"The {name} tensor is not a {rank}-D tensor but has shape {list(x.shape)}")


operator("SplineBasis", gradients=())
builder_method("SplineBasis", "splinebasis(args=[], degree:int) -> 2")


@lowers("SplineBasis", domain=DOMAIN)
def spline_basis(pseudo, kernel_size, is_open_spline, /, *, degree=0):
    _check_rank("pseudo", pseudo, 2)
    _check_rank("kernel_size", kernel_size, 1)
    _check_rank("is_open_spline", is_open_spline, 1)
    if not 0 <= degree <= 3:
        raise popart_exception(f"SplineBasis: degree {degree} must be between 0 and 3")
    if degree == 0:
        raise popart_exception("SplineBasis: there is no kernel for degree 0")
    sizes = jnp.asarray(kernel_size, jnp.int32)
    n, dims = degree + 1, pseudo.shape[1]
    v = pseudo * (sizes - degree * jnp.asarray(is_open_spline).astype(jnp.int32)).astype(pseudo.dtype)
    floor = jnp.floor(v)
    values = jnp.stack(_basis(v - floor, degree), axis=-1)  # (E, D, degree + 1)
    strides = jnp.concatenate([jnp.ones(1, jnp.int32), jnp.cumprod(sizes)[:-1].astype(jnp.int32)])
    s = jnp.arange(n**dims)
    basis, index = jnp.ones((pseudo.shape[0], n**dims), pseudo.dtype), jnp.zeros((pseudo.shape[0], n**dims), jnp.int32)
    for d in range(dims):
        m = s // n**d % n
        basis = basis * values[:, d, m]
        index = index + (floor[:, d, None].astype(jnp.int32) + m) % sizes[d] * strides[d]
    return lax.stop_gradient(basis), index


operator("SplineWeighting", gradients=())
builder_method("SplineWeighting", "splineweighting(args=[])")


@lowers("SplineWeighting", domain=DOMAIN)
def spline_weighting(x, weight, basis, weight_index, /):
    """out[e, o] = sum over s, i of basis[e, s] x[e, i] weight[index[e, s], i, o]."""
    _check_rank("input", x, 2)
    _check_rank("weight", weight, 3)
    _check_rank("basis", basis, 2)
    _check_rank("weight_index", weight_index, 2)
    if not x.dtype == weight.dtype == basis.dtype:
        raise popart_exception("SplineWeighting: input, weight and basis have different data types")
    return lax.stop_gradient(jnp.einsum("es,ei,esio->eo", basis, x, jnp.asarray(weight)[weight_index]))
