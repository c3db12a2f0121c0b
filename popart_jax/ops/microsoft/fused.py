"""Fused and older forms of ordinary operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import popart_exception
from ..arrays import Array
from ..convolution import conv
from ..dropout import dropout_12
from ..gather import gather_nd
from ..join import pad as pad_11
from ..linalg import gemm
from ..options import DEFAULTS
from ..pooling import max_pool
from ..primitives import times_stored
from ..registry import Context, Key, Options, Static, Training, direct, lowers
from ..sampling import grid_sample
from . import DOMAIN


def gelu(x: Array) -> jax.Array:
    """x Phi(x)."""
    return jax.nn.gelu(x, approximate=False)


def activate(name: str, x: Any, values: Sequence[float] = ()) -> Array:
    """Activation of a fused operator, by name, with its parameters in order (alpha, beta, gamma).

    An unknown name raises popart_exception.
    """
    given: tuple[float | None, ...] = (*values, None, None)
    a, b = given[:2]
    known: dict[str, Callable[[], Array]] = {
        "": lambda: x,
        "Relu": lambda: jax.nn.relu(x),
        "Sigmoid": lambda: jax.nn.sigmoid(x),
        "Tanh": lambda: jnp.tanh(x),
        "LeakyRelu": lambda: jnp.where(x < 0, x * (0.01 if a is None else a), x),
        "Clip": lambda: jnp.clip(x, a, b),
        "HardSigmoid": lambda: jnp.clip(x * (0.2 if a is None else a) + (0.5 if b is None else b), 0, 1),
        "Elu": lambda: jax.nn.elu(x, 1.0 if a is None else a),
        "Gelu": lambda: gelu(x),
        "Silu": lambda: jax.nn.silu(x),
        "QuickGelu": lambda: quick_gelu(x, alpha=1.702 if a is None else a),
    }
    if name not in known:
        raise popart_exception(f"Unknown fused activation {name!r}; known are {sorted(known)[1:]}.")
    return known[name]().astype(x.dtype)


def _copy(x: Array) -> jax.Array:
    return jnp.asarray(x)


direct({"Gelu": gelu, "Inverse": jnp.linalg.inv, "SampleOp": _copy}, domain=DOMAIN)


@lowers("BiasGelu", domain=DOMAIN)
def bias_gelu(x: Array, bias: Array, /) -> jax.Array:
    return gelu(x + bias)


@lowers("FastGelu", domain=DOMAIN)
def fast_gelu(x: Array, bias: Array | None = None, /) -> jax.Array:
    return jax.nn.gelu(x if bias is None else x + bias)


@lowers("QuickGelu", domain=DOMAIN)
def quick_gelu(x: Array, /, *, alpha: float = 1.702) -> Array:
    return x * jax.nn.sigmoid(jnp.asarray(alpha, x.dtype) * x)


@lowers("ScaledSiLU", domain=DOMAIN)
def scaled_silu(x: Array, scale: Array | None = None, /, *, alpha: float = 1.0) -> Array:
    z = x * (jnp.asarray(alpha, x.dtype) if scale is None else scale.reshape(()).astype(x.dtype))
    return z * jax.nn.sigmoid(z)


@lowers("GatedAdd", domain=DOMAIN)
def gated_add(x: Array, y: Array, gate: Array, /) -> Array:
    return x + y * gate


@lowers("SparseToDenseMatMul", domain=DOMAIN)
def sparse_to_dense_matmul(a: Array, b: Array, /, *, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> jax.Array:
    """Sparse initializers are dense when a model is read."""
    return fused_matmul(a, b, alpha=alpha, transA=transA, transB=transB)


@lowers("BiasSplitGelu", domain=DOMAIN)
def bias_split_gelu(x: Array, bias: Array, /) -> jax.Array:
    left, right = jnp.split(x + bias, 2, axis=-1)
    return left * gelu(right)


@lowers("BiasAdd", domain=DOMAIN)
def bias_add(x: Array, bias: Array, skip: Array, /) -> Array:
    return x + bias + skip


@lowers("BiasSoftmax", domain=DOMAIN)
def bias_softmax(x: Array, bias: Array, /, *, is_inner_broadcast: int, axis: int = 1) -> jax.Array:
    """Softmax over all dimensions from `axis` on, of data plus a bias that is broadcast."""
    axis %= x.ndim
    if not is_inner_broadcast and bias.ndim == x.ndim - axis:
        bias = bias.reshape((1,) * axis + bias.shape)
    total = x + bias
    return jax.nn.softmax(total, axis=tuple(range(axis, x.ndim)))


@lowers("BiasDropout", domain=DOMAIN)
def bias_dropout(
    x: Array, bias: Array, residual: Array | None = None, ratio: Array | None = None, training_mode: Static = None, /,
    *, seed: float | None = None, key: Key, training: Training = False, walk: Context,
) -> tuple[Array, Array]:  # fmt: skip
    y, mask = dropout_12(x + bias, ratio, training_mode, seed=seed, key=key, training=training, walk=walk)
    return (y if residual is None else y + residual), mask


@lowers("FusedConv", domain=DOMAIN)
def fused_conv(
    x: Array, w: Array, b: Array | None = None, z: Array | None = None, /, *, activation: str = "",
    activation_params: Sequence[float] = (), auto_pad: str = "NOTSET", dilations: Sequence[int] = (), group: int = 1,
    kernel_shape: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Array:  # fmt: skip
    """Convolution, optional sum, activation."""
    y = conv(
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return activate(activation, y if z is None else y + z, activation_params)


def _last(x: Any) -> jax.Array:
    return jnp.moveaxis(x, 1, -1)


def _first(x: Any) -> jax.Array:
    return jnp.moveaxis(x, -1, 1)


@lowers("NhwcConv", domain=DOMAIN)
@lowers("NhwcFusedConv", domain=DOMAIN)
def nhwc_fused_conv(
    x: Array, w: Array, b: Array | None = None, z: Array | None = None, /, *, activation: str = "",
    activation_params: Sequence[float] = (), auto_pad: str = "NOTSET", dilations: Sequence[int] = (), group: int = 1,
    kernel_shape: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> jax.Array:  # fmt: skip
    """Channels-last data with weights (M, C/group, ...)."""
    return _last(fused_conv(
        _first(x), w, b, None if z is None else _first(z), activation=activation, activation_params=activation_params,
        auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides,
    ))  # fmt: skip


@lowers("NhwcMaxPool", domain=DOMAIN)
def nhwc_max_pool(
    x: Array, /, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (), options: Options = DEFAULTS,
) -> jax.Array:  # fmt: skip
    return _last(max_pool(
        _first(x), kernel_shape=kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, pads=pads,
        strides=strides, options=options,
    ))  # fmt: skip


def _turned(x: Array, trans: int, batch: int) -> Array:
    """Operand of FusedMatMul: `batch` moves the first dimension before the last, then `trans` swaps the last two."""
    if batch and x.ndim > 2:
        x = jnp.moveaxis(x, 0, -2)
    return x.swapaxes(-1, -2) if trans and x.ndim > 1 else x


@lowers("TransposeMatMul", domain=DOMAIN)
@lowers("FusedMatMul", domain=DOMAIN)
def fused_matmul(
    a: Array, b: Array, /, *, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0,
    transBatchB: int = 0,
) -> jax.Array:  # fmt: skip
    left = _turned(a, transA, transBatchA)
    as_stored = transB and b.ndim == 2 and left.shape[-1:] == b.shape[-1:]
    product = times_stored(left, b) if as_stored else jnp.matmul(left, _turned(b, transB, transBatchB))
    return product * jnp.asarray(alpha, product.dtype)


@lowers("FusedMatMulActivation", domain=DOMAIN)
def fused_matmul_activation(
    a: Array, b: Array, /, *, activation: str, activation_alpha: float | None = None,
    activation_axis: int | None = None, activation_beta: float | None = None,
    activation_gamma: float | None = None, alpha: float = 1.0, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0,
) -> Array:  # fmt: skip
    y = fused_matmul(a, b, alpha=alpha, transA=transA, transB=transB, transBatchA=transBatchA, transBatchB=transBatchB)
    if activation == "Softmax":
        return jax.nn.softmax(y, axis=-1 if activation_axis is None else activation_axis)
    return activate(activation, y, [v for v in (activation_alpha, activation_beta) if v is not None])


@lowers("FusedGemm", domain=DOMAIN)
def fused_gemm(
    a: Array, b: Array, c: Array | None = None, /, *, activation: str = "",
    activation_alpha: float | None = None, activation_beta: float | None = None,
    activation_gamma: float | None = None, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
    transB: int = 0,
) -> Array:  # fmt: skip
    y = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return activate(activation, y, [v for v in (activation_alpha, activation_beta) if v is not None])


@lowers("GemmFastGelu", domain=DOMAIN)
def gemm_fast_gelu(x: Array, w: Array, bias: Array | None = None, /) -> jax.Array:
    return fast_gelu(jnp.matmul(x, w), bias)


lowers("GatherND", domain=DOMAIN, takes="")(gather_nd)


@lowers("ExpandDims", domain=DOMAIN)
def expand_dims(x: Array, axis: Static, /) -> jax.Array:
    return jnp.expand_dims(x, int(np.reshape(axis, ())))


@lowers("Trilu", domain=DOMAIN)
def trilu(x: Array, k: Static = None, /, *, upper: int = 1) -> jax.Array:
    return (jnp.triu if upper else jnp.tril)(x, 0 if k is None else int(np.reshape(k, ())))


@lowers("Pad", domain=DOMAIN)
def pad(x: Array, pads: Static, value: Array | None = None, /, *, mode: str = "constant") -> Array:
    return pad_11(x, np.reshape(pads, (-1,)), value, mode=mode)


@lowers("Range", domain=DOMAIN)
def range_(start: Static, limit: Static, delta: Static = None, /) -> np.ndarray:
    step = np.ones((), start.dtype) if delta is None else delta
    first, last, by = (np.reshape(v, ()).item() for v in (start, limit, step))
    return np.arange(first, last, by, dtype=start.dtype)


@lowers("GridSample", domain=DOMAIN)
def grid_sample_1(
    x: Array, grid: Array, /, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> jax.Array:
    return grid_sample(x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


@lowers("CDist", domain=DOMAIN)
def cdist(a: Array, b: Array, /, *, metric: str = "sqeuclidean") -> jax.Array:
    """Distances of all rows."""
    squares = jnp.square(a[:, None] - b[None]).sum(-1)
    return squares if metric == "sqeuclidean" else jnp.sqrt(jnp.where(squares == 0, 1, squares)) * (squares != 0)


def _complex(x: Any) -> jax.Array:
    return jax.lax.complex(x[..., 0], x[..., 1])


def _parts(z: jax.Array) -> jax.Array:
    return jnp.stack([z.real, z.imag], -1)


@lowers("ComplexMul", domain=DOMAIN)
def complex_mul(a: Array, b: Array, /) -> jax.Array:
    return _parts(_complex(a) * _complex(b)).astype(a.dtype)


@lowers("ComplexMulConj", domain=DOMAIN)
def complex_mul_conj(a: Array, b: Array, /) -> jax.Array:
    return _parts(_complex(a) * _complex(b).conj()).astype(a.dtype)


def _not_finite(x: Array) -> jax.Array:
    return ~jnp.isfinite(x)


@lowers("IsAllFinite", domain=DOMAIN)
def is_all_finite(*xs: Array, isinf_only: int = 0, isnan_only: int = 0) -> jax.Array:
    test = jnp.isinf if isinf_only else jnp.isnan if isnan_only else _not_finite
    return ~jnp.stack([test(x).any() for x in xs]).any()
