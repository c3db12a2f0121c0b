"""Channels-last forms of the spatial operators, in the package's own domain; only graph passes insert these nodes.

A channels-last tensor (N, H, W, C) is treated as data with spatial dimensions (H, W, C) whose last window size is 1,
so that the window arithmetic of the NCHW operators applies here as well. There may be one to three spatial dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ..._compat.jax import computed_once, is_symbolic_dim
from ...ops.arrays import Array
from ...ops.convolution import check_bias, check_groups, check_kernel, check_transposed, popart_padding, transposed
from ...ops.float8_products import has_float8, of_float8
from ...ops.kernels import platform
from ...ops.normalization import normalise, train_batch_norm
from ...ops.operator import ELEMENTWISE, operator
from ...ops.options import DEFAULTS
from ...ops.pooling import _counts, max_pool_values, window_sum
from ...ops.registry import Options, OutputCount, lowers
from ...ops.two_way import with_jvp
from ...ops.windows import window
from . import DOMAIN
from .canonical_convolution import canonical_transposed
from .correlation import correlation
from .depthwise_last import with_channels


@lowers("Conv", domain=DOMAIN)
def conv(
    x: Array, w: Array, b: Array | None = None, /, *, auto_pad: str = "NOTSET", dilations: Sequence[int] = (),
    group: int = 1, kernel_shape: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> jax.Array:  # fmt: skip
    """Convolution of (N, H, W, C) with (kh, kw, C/group, M)."""
    if has_float8(x, w):
        how = {"auto_pad": auto_pad, "dilations": dilations, "group": group, "pads": pads, "strides": strides}
        return of_float8("Conv", partial(conv, kernel_shape=kernel_shape, **how), x, w, b)
    check_groups(x.shape[-1], w.shape[-2], w.shape[-1], group)
    check_kernel(kernel_shape, w.shape[:-2])
    check_bias(b, w.shape[-1])  # the kernel library ends the process at another
    win = window(x.shape[1:-1], w.shape[:-2], strides, dilations, pads, auto_pad)
    return correlation(x, w, b, group, win)


@lowers("ConvTranspose", domain=DOMAIN)
def conv_transpose(
    x: Array, w: Array, b: Array | None = None, /, *, auto_pad: str = "NOTSET", dilations: Sequence[int] = (),
    group: int = 1, kernel_shape: Sequence[int] = (), output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Array:  # fmt: skip
    """Transposed convolution, of a single group, of (N, H, W, C) with (kh, kw, M, C)."""
    check_transposed(x.shape, w.shape[-1], group, w.shape, -1)
    sizes = x.shape[1:-1]
    form = transposed(sizes, w.shape[:-2], strides, dilations, pads, auto_pad, output_padding, output_shape)
    y = canonical_transposed(x, w, form.sizes(sizes), form.strides, form.crop, form.dilations)
    return y if b is None else y + b


@lowers("ConvTranspose", domain=DOMAIN, popart=True, like=conv_transpose)
def popart_conv_transpose(
    x: Array, w: Array, b: Array | None = None, /, *, auto_pad: str = "NOTSET", dilations: Sequence[int] = (),
    output_shape: Sequence[int] = (), **rest: Any,
) -> Array:  # fmt: skip
    """The same with PopART's padding rules."""
    auto_pad, output_shape = popart_padding(x.ndim - 2, auto_pad, dilations, output_shape)
    product = partial(conv_transpose, auto_pad=auto_pad, output_shape=output_shape, **rest)
    return of_float8("ConvTranspose", product, x, w, b) if has_float8(x, w) else product(x, w, b)


@lowers("MaxPool", domain=DOMAIN)
def max_pool(
    x: Array, /, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] = (), pads: Sequence[int] = (), storage_order: int = 0, strides: Sequence[int] = (),
    options: Options = DEFAULTS,
) -> Array:  # fmt: skip
    """Maxima of the windows."""
    win = window(x.shape[1:-1], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return max_pool_values(x, with_channels(win, x.shape[-1]), options.whole_gradient_of_ties)


@lowers("AveragePool", domain=DOMAIN)
def average_pool(
    x: Array, /, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0, dilations: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> jax.Array:  # fmt: skip
    """Means of the windows."""
    win = window(x.shape[1:-1], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    counts = _counts(x.shape[1:-1], win, count_include_pad)
    total = window_sum(x, with_channels(win, x.shape[-1]))
    return (total / jnp.asarray(counts, total.dtype)[..., None]).astype(x.dtype)


@lowers("GlobalAveragePool", domain=DOMAIN)
def global_average_pool(x: Array, /) -> Array:
    """Means over the spatial dimensions."""
    return x.mean(tuple(range(1, x.ndim - 1)), keepdims=True)


@lowers("BatchNormalization", domain=DOMAIN)
def batch_norm(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, /, *, epsilon: float = 1e-5, momentum: float = 0.9,
    spatial: int = 1, is_test: int = 0, training_mode: int = 0, n_outputs: OutputCount = 1,
) -> Array | tuple[Array, ...]:  # fmt: skip
    """Batch statistics are used if there are five outputs or `training_mode` is set."""
    shape = (*(1,) * (x.ndim - 1), x.shape[-1])
    if (n_outputs > 1 or training_mode) and not is_test:
        axes = tuple(range(x.ndim - 1))
        return train_batch_norm(x, scale, bias, mean, var, momentum, epsilon, axes, shape)[: max(n_outputs, 1)]
    return normalise(x, scale, bias, mean, var, epsilon, shape)


@lowers("ChannelAffine", domain=DOMAIN)
def channel_affine(x: Array, factor: Array, offset: Array, /) -> Array:
    """One factor and one offset for each channel."""
    return x * factor + offset


operator("SharedRelu", ELEMENTWISE)


@lowers("SharedRelu", domain=DOMAIN)
@with_jvp()
def shared_relu(x: Array, /):
    """Relu as a selection."""
    return jnp.where(x <= 0, jnp.zeros((), x.dtype), x)


@shared_relu.defjvp
def _(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    (tangent,), y = tangents, shared_relu(*primals)
    return y, jnp.where(y > 0, tangent, 0)


operator("Kept", ELEMENTWISE)
_LARGE = 2048
"""Elements from which a kernel more costs less than computing them again."""


@lowers("Kept", domain=DOMAIN)
@with_jvp()
def kept(x: Array, /):
    """The operand, which XLA:CPU computes once for all readers."""
    large = not any(map(is_symbolic_dim, x.shape)) and x.size >= _LARGE
    return computed_once(x) if large and platform() == "cpu" else x


@kept.defjvp
def _(primals: Any, tangents: Any) -> tuple[Array, jax.Array]:
    return primals[0], tangents[0]  # training is as fast without
