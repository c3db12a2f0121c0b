"""Quantised operators: QLinear*, dynamic quantisation, weights in 2 to 8 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...errors import popart_exception
from ..arrays import Array
from ..operator import ELEMENTWISE, operator
from ..pooling import average_pool
from ..quantize import (
    dequantize_linear,
    dynamic_quantize_linear,
    in_range,
    integer_product,
    matmul_integer,
    qlinear_conv,
    quantize_linear,
    quantized,
)
from ..registry import Gap, lowers
from . import DOMAIN
from .attention import _FILTER, self_attention
from .fused import _first, _last
from .norm import embed_layer_norm


def real(x: Any, scale: Any, zero: Any) -> jax.Array:
    """(x - zero) * scale in float32, parameters broadcast."""
    shifted = x.astype(jnp.int32) - (0 if zero is None else zero.astype(jnp.int32))
    return shifted.astype(jnp.float32) * jnp.asarray(scale, jnp.float32)


def whole(y: Any, scale: Any, zero: Any, dtype: Any) -> Any:
    """Quantise a result: real numbers to integers."""
    return quantized(y, jnp.asarray(scale).reshape(()), None if zero is None else zero.reshape(()), np.dtype(dtype))


def shifted(steps: Any, zero: Any, dtype: Any) -> Any:
    """round(steps + zero), where `whole` rounds first: ONNX Runtime's sums, products and pools break ties this way."""
    return in_range(steps if zero is None else steps + zero.astype(jnp.float32), None, np.dtype(dtype))


lowers("QuantizeLinear", domain=DOMAIN, takes="axis")(quantize_linear)
lowers("DequantizeLinear", domain=DOMAIN, takes="axis")(dequantize_linear)


@lowers("QLinearAdd", domain=DOMAIN)
def qlinear_add(
    a: Array, a_scale: Array, a_zero: Gap, b: Array, b_scale: Array, b_zero: Gap, c_scale: Array,
    c_zero: Array | None = None, /,
) -> Array:  # fmt: skip
    return shifted(real(a, a_scale / c_scale, a_zero) + real(b, b_scale / c_scale, b_zero), c_zero, a.dtype)


operator("QLinearAdd", ELEMENTWISE)


@lowers("QLinearMul", domain=DOMAIN)
def qlinear_mul(
    a: Array, a_scale: Array, a_zero: Gap, b: Array, b_scale: Array, b_zero: Gap, c_scale: Array,
    c_zero: Array | None = None, /,
) -> Array:  # fmt: skip
    product = mul_integer(a, a_zero, b, b_zero).astype(jnp.float32)
    return shifted(product * (a_scale * b_scale / c_scale), c_zero, a.dtype)


operator("QLinearMul", ELEMENTWISE)
operator("QLinearSigmoid", ELEMENTWISE)


@lowers("QLinearSigmoid", domain=DOMAIN)
def qlinear_sigmoid(x: Array, x_scale: Array, x_zero: Gap, y_scale: Array, y_zero: Array | None = None, /) -> Array:
    return whole(jax.nn.sigmoid(real(x, x_scale, x_zero)), y_scale, y_zero, x.dtype)


operator("QLinearLeakyRelu", ELEMENTWISE)


@lowers("QLinearLeakyRelu", domain=DOMAIN)
def qlinear_leaky_relu(
    x: Array, x_scale: Array, x_zero: Gap, y_scale: Array, y_zero: Array | None = None, /, *, alpha: float = 0.01
) -> Array:
    return whole(jax.nn.leaky_relu(real(x, x_scale, x_zero), alpha), y_scale, y_zero, x.dtype)


@lowers("QLinearSoftmax", domain=DOMAIN)
def qlinear_softmax(
    x: Array, x_scale: Array, x_zero: Gap, y_scale: Array, y_zero: Array, /, *, opset: int, axis: int = -1
) -> Array:
    """Before opset 13 softmax runs over all dimensions from `axis` on; a probability of 1 is floor(1 / scale) steps."""
    over = tuple(range(axis % x.ndim, x.ndim)) if opset < 13 else axis
    steps = jnp.floor(1 / jnp.asarray(y_scale, jnp.float32))
    return whole(jax.nn.softmax(real(x, x_scale, x_zero), axis=over) * steps, jnp.float32(1), y_zero, x.dtype)


@lowers("QLinearAveragePool", domain=DOMAIN)
def qlinear_average_pool(
    x: Array, x_scale: Array, x_zero: Gap, y_scale: Array, y_zero: Array | None = None, /, *,
    kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0, channels_last: int = 0,
    count_include_pad: int = 0, pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Array:  # fmt: skip
    data = real(x, x_scale, x_zero)
    y = average_pool(
        _first(data) if channels_last else data, kernel_shape=kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, pads=pads, strides=strides,
    )  # fmt: skip
    y = _last(y) if channels_last else y
    # A scalar divisor would become a factor, which rounds differently.
    steps = y / lax.optimization_barrier(jnp.broadcast_to(y_scale, y.shape))
    return shifted(steps, y_zero, x.dtype)


@lowers("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(
    x: Array, x_scale: Array, x_zero: Array, y_scale: Array, y_zero: Array, /, *, channels_last: int = 0
) -> Array:
    axes = tuple(range(1, x.ndim - 1) if channels_last else range(2, x.ndim))
    return whole(real(x, x_scale, x_zero).mean(axes, keepdims=True), y_scale, y_zero, x.dtype)


@lowers("QLinearReduceMean", domain=DOMAIN)
def qlinear_reduce_mean(
    x: Array, x_scale: Array, x_zero: Gap, y_scale: Array, y_zero: Array | None = None, /, *, axes: Sequence[int],
    keepdims: int,
) -> Array:  # fmt: skip
    return whole(real(x, x_scale, x_zero).mean(tuple(axes), keepdims=bool(keepdims)), y_scale, y_zero, x.dtype)


@lowers("ReduceSumInteger", domain=DOMAIN)
def reduce_sum_integer(x: Array, /, *, axes: Sequence[int], keepdims: int) -> Array:
    dtype = jnp.int32 if jnp.issubdtype(x.dtype, jnp.signedinteger) else jnp.uint32
    return x.astype(dtype).sum(tuple(axes), keepdims=bool(keepdims), dtype=dtype)


@lowers("QLinearConcat", domain=DOMAIN)
def qlinear_concat(y_scale: Array, y_zero: Array, /, *inputs: Array, axis: int) -> Array:
    """Inputs come as data, scale, zero point."""
    parts = [real(*inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
    return whole(jnp.concatenate(parts, axis), y_scale, y_zero, inputs[0].dtype)


@lowers("QLinearWhere", domain=DOMAIN)
def qlinear_where(
    condition: Array, x: Array, x_scale: Array, x_zero: Array, y: Array, y_scale: Array, y_zero: Array,
    z_scale: Array, z_zero: Array, /,
) -> Array:  # fmt: skip
    chosen = jnp.where(condition, real(x, x_scale, x_zero), real(y, y_scale, y_zero))
    return whole(chosen, z_scale, z_zero, x.dtype)


@lowers("QLinearConv", domain=DOMAIN)
def qlinear_conv_1(
    x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array, y_scale: Array, y_zero: Array,
    b: Array | None = None, /, *, auto_pad: str = "NOTSET", channels_last: int = 0, dilations: Sequence[int] = (),
    group: int = 1, kernel_shape: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Array:  # fmt: skip
    y = qlinear_conv(
        _first(x) if channels_last else x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b, auto_pad=auto_pad,
        dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return _last(y) if channels_last else y


@lowers("QGemm", domain=DOMAIN)
def qgemm(
    a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array, c: Array | None = None,
    y_scale: Array | None = None, y_zero: Array | None = None, /, *, alpha: float = 1.0, transA: int = 0,
    transB: int = 0,
) -> Array:  # fmt: skip
    """Integer product plus an INT32 bias in units of a_scale * b_scale; quantised if y_scale is given."""
    product = integer_product(a.T if transA else a, b.T if transB else b, a_zero, b_zero)
    total = (product + (0 if c is None else c)).astype(jnp.float32) * (alpha * a_scale * b_scale)
    return total if y_scale is None else whole(total, y_scale, y_zero, a.dtype)


@lowers("MatMulInteger16", domain=DOMAIN)
def matmul_integer_16(a: Array, b: Array, /) -> jax.Array:
    return jnp.matmul(a.astype(jnp.int32), b.astype(jnp.int32))


@lowers("MulInteger", domain=DOMAIN)
def mul_integer(a: Array, a_zero: Gap, b: Array, b_zero: Array | None = None, /) -> Array:
    left, right = (
        x.astype(jnp.int32) - (0 if z is None else z.astype(jnp.int32)) for x, z in ((a, a_zero), (b, b_zero))
    )
    return left * right


@lowers("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(
    a: Array, b: Array, a_scale: Array, b_scale: Array, a_zero: Array | None = None, b_zero: Array | None = None,
    bias: Array | None = None, /,
) -> Array:  # fmt: skip
    product = matmul_integer(a, b, a_zero, b_zero).astype(a_scale.dtype)
    y = product * (a_scale.reshape(-1, 1) if a_scale.size > 1 else a_scale.reshape(())) * b_scale
    return y if bias is None else y + bias


@lowers("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(
    a: Array, b: Array, b_scale: Array, b_zero: Array | None = None, bias: Array | None = None, /
) -> Array:
    """The left factor is quantised to its own range first."""
    q, scale, zero = dynamic_quantize_linear(a)
    return matmul_integer_to_float(q, b, jnp.asarray(scale), b_scale, jnp.asarray(zero), b_zero, bias)


@lowers("QAttention", domain=DOMAIN)
def qattention(
    x: Array, weight: Array, bias: Array, x_scale: Array, w_scale: Array, mask_index: Array | None = None,
    x_zero: Array | None = None, w_zero: Array | None = None, past: Array | None = None, /, *, num_heads: int,
    do_rotary: int = 0, mask_filter_value: float = _FILTER, past_present_share_buffer: int = 0,
    scale: float | None = None, unidirectional: int = 0,
) -> tuple[jax.Array, jax.Array | None]:  # fmt: skip
    """Attention whose projection is an integer product."""
    if do_rotary or past_present_share_buffer:
        raise popart_exception("QAttention with do_rotary or past_present_share_buffer is not supported.")
    qkv = matmul_integer_to_float(x, weight, x_scale, w_scale, x_zero, w_zero, bias)
    sizes = (weight.shape[1] // 3,) * 3
    return self_attention(qkv, num_heads, sizes, mask_index, past, None, unidirectional, mask_filter_value, scale)


@lowers("QEmbedLayerNormalization", domain=DOMAIN)
def qembed_layer_norm(
    ids: Array, segments: Gap, words: Array, positions: Array, segment_table: Gap, gamma: Array, beta: Array,
    mask: Gap, word_scale: Array, position_scale: Array, segment_scale: Gap, gamma_scale: Array, beta_scale: Array,
    word_zero: Array, position_zero: Array, segment_zero: Gap, gamma_zero: Array, beta_zero: Array, /, *,
    epsilon: float = 1e-12,
) -> tuple[Any, Array]:  # fmt: skip
    table = None if segments is None else real(segment_table, segment_scale, segment_zero)
    y, counts, _ = embed_layer_norm(
        ids, segments, real(words, word_scale, word_zero), real(positions, position_scale, position_zero), table,
        real(gamma, gamma_scale, gamma_zero), real(beta, beta_scale, beta_zero), mask, None, epsilon,
    )  # fmt: skip
    return y, counts


def unpack_bits(packed: Any, bits: int) -> jax.Array:
    """Unsigned integers of 2, 4 or 8 bits out of bytes, low bits first, along the last axis."""
    if bits not in (2, 4, 8):
        raise popart_exception(f"Weights of {bits} bits are not supported; expected 2, 4 or 8.")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    values = (jnp.asarray(packed)[..., None] >> shifts) & np.uint8(2**bits - 1)
    return values.reshape(*packed.shape[:-1], -1)


@lowers("MatMulNBits", domain=DOMAIN)
def matmul_nbits(
    a: Array, b: Array, scales: Array, zero_points: Array | None = None, g_idx: Array | None = None,
    bias: Array | None = None, /, *, K: int, N: int, block_size: int, bits: int = 4, accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Array:  # fmt: skip
    """a times the transpose of block-quantised weights (N, blocks, packed block)."""
    blocks = -(-K // block_size)
    values = unpack_bits(b.reshape(N, blocks, -1), bits)[..., :block_size].astype(scales.dtype)
    if zero_points is None:
        zeros = jnp.full((N, blocks), 2 ** (bits - 1), scales.dtype)
    elif zero_points.dtype == jnp.uint8:
        zeros = unpack_bits(zero_points.reshape(N, -1), bits)[:, :blocks].astype(scales.dtype)
    else:
        zeros = zero_points.reshape(N, blocks)
    factor = scales.reshape(N, blocks)
    if g_idx is not None:
        group = jnp.asarray(g_idx)[:K]
        weights = (values.reshape(N, -1)[:, :K] - zeros[:, group]) * factor[:, group]
    else:
        weights = ((values - zeros[..., None]) * factor[..., None]).reshape(N, -1)[:, :K]
    y = a @ weights.T.astype(a.dtype)
    return y if bias is None else y + bias


_FP4 = (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
_NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
        0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)  # fmt: skip
_BNB4 = {0: (*_FP4, *(-v for v in _FP4)), 1: _NF4}


@lowers("MatMulBnb4", domain=DOMAIN)
def matmul_bnb4(
    a: Array, b: Array, absmax: Array, /, *, K: int, N: int, block_size: int, quant_type: int, training_mode: int = 0,
    transB: int = 1,
) -> jax.Array:  # fmt: skip
    """a times weights coded by a table of 16 values (FP4 or NF4), scaled per block; high half byte first."""
    if quant_type not in _BNB4:
        raise popart_exception(f"MatMulBnb4: quant_type {quant_type} is unknown; expected 0 (FP4) or 1 (NF4).")
    packed = jnp.asarray(b).reshape(-1)
    places = jnp.stack([packed >> 4, packed & 15], -1).reshape(-1)[: N * K]
    values = jnp.asarray(_BNB4[quant_type], absmax.dtype)[places]
    weights = (values * jnp.repeat(jnp.asarray(absmax), block_size)[: N * K]).reshape(N, K)
    return jnp.matmul(a, (weights.T if transB else weights).astype(a.dtype))


@lowers("GatherBlockQuantized", domain=DOMAIN)
def gather_block_quantized(
    data: Array, indices: Array, scales: Array, zero_points: Array | None = None, /, *, bits: int = 4,
    block_size: int = 128, gather_axis: int = 0, quantize_axis: int = 1,
) -> jax.Array:  # fmt: skip
    """Rows of a block-quantised table; UINT8 data hold several values per byte along the last axis."""
    packed = data.dtype == jnp.uint8 and bits < 8
    values = unpack_bits(data, bits) if packed else jnp.asarray(data)
    zeros = unpack_bits(zero_points, bits) if packed and zero_points is not None else zero_points
    zeros = 2 ** (bits - 1) if zeros is None and data.dtype == jnp.uint8 else 0 if zeros is None else zeros
    axis = quantize_axis % values.ndim

    def spread(p: Any) -> Any:
        if isinstance(p, int):
            return p
        return jnp.repeat(jnp.asarray(p), block_size, axis=axis)[tuple(slice(n) for n in values.shape)]

    weights = (values.astype(scales.dtype) - jnp.asarray(spread(zeros)).astype(scales.dtype)) * spread(scales)
    return jnp.take(weights, indices, axis=gather_axis)
