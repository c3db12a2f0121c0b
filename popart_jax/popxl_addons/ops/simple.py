"""Operators that are one custom class upstream and one JAX function here."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ... import popxl
from ...ops.arrays import Array
from ...popxl import custom_ops


def _square_sum(x: Array, inverse_scale: Array, /) -> Array:
    return jnp.sum(jnp.square(x.astype(jnp.float32))) * inverse_scale.reshape(()).astype(jnp.float32)


_GRAD_REDUCE_SQUARE_ADD = custom_ops.define("GradReduceSquareAdd", _square_sum, names=("grad_reduce_square_add_out",))


def grad_reduce_square_add(t: popxl.Tensor, loss_scaling: int | float | popxl.Tensor) -> popxl.Tensor:
    """sum(t^2) / loss_scaling^2 in float32.

    Parameters
    ----------
    t : Tensor
        float16 or float32.
    """
    if isinstance(loss_scaling, popxl.Tensor):
        inverse = 1 / (loss_scaling * loss_scaling)
    else:
        inverse = popxl.constant(1 / (loss_scaling * loss_scaling), popxl.float32)
    return _GRAD_REDUCE_SQUARE_ADD.single(t, inverse)


def _identity(x: Array, /, *, bs: int = 1) -> Array:
    return x


_LINEAR_LAYOUT = custom_ops.define("LinearLayout", _identity, names=("linear_layout_out",), gradient=True, reads=())


def linear_layout(t: popxl.Tensor, bs: int = 1) -> popxl.Tensor:
    """The same values; on an IPU spread linearly over the tiles, `bs` elements together."""
    return _LINEAR_LAYOUT.single(t, bs=bs)


def _sparse_matmul(x: Array, /, *, data: Any, indices: Any, indptr: Any, cols: int) -> Array:
    """x @ csr in float32, by one gather and one scatter-add over the stored elements."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    products = x[..., rows].astype(jnp.float32) * jnp.asarray(np.asarray(data, np.float32))
    out = jnp.zeros((*x.shape[:-1], cols), jnp.float32)
    return out.at[..., np.asarray(indices, np.int32)].add(products).astype(x.dtype)


_SPARSE_MATMUL = custom_ops.define("SparseMatmul", _sparse_matmul, names=("dense_sparse_matmul_out",))


def dense_const_sparse_matmul(lhs: popxl.Tensor, rhs: Any, output_cols: int) -> popxl.Tensor:
    """lhs @ rhs with a constant SciPy CSR matrix.

    Parameters
    ----------
    lhs : Tensor (..., m, k)
        float16 or float32.
    rhs : scipy.sparse.csr_matrix (k, output_cols)

    Raises
    ------
    RuntimeError
        Another dtype.
    """
    if lhs.dtype not in (popxl.float16, popxl.float32):
        raise RuntimeError(f"dense_const_sparse_matmul takes float16 or float32, got {lhs.dtype}")
    return _SPARSE_MATMUL.single(
        lhs,
        data=[float(v) for v in rhs.data],
        indices=[int(v) for v in rhs.indices],
        indptr=[int(v) for v in rhs.indptr],
        cols=int(output_cols),
    )


def random_sparse(dense: np.ndarray, density: float = 0.5) -> np.ndarray:
    """Zero each element of `dense`, in place, with probability 1 - `density`, but never all of them."""
    cleared = np.random.binomial(1, 1 - density, dense.shape).astype(bool)
    if cleared.size and cleared.all():
        cleared.flat[np.random.randint(cleared.size)] = False
    dense[cleared] = 0
    return dense
