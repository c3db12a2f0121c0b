"""Products and convolutions of 8-bit numbers on the CPU.

XLA:CPU computes those of 32-bit numbers in scalar code; of signed 8-bit numbers it has fast kernels for matrix products
and for plain convolutions of two dimensions with channels last (jaxlib 0.10). So numbers are multiplied as they are
stored, and the zero points are brought in afterwards: ``(x - p)(w - q) = xw - p w - q x + pq``, summed.

Other convolutions are computed in float32: sums that stay below 2**24 are exact in whatever order they are made;
longer ones are cut into pieces of input channels that stay below, which are added as whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...ops.convolution import check_groups, check_kernel
from ...ops.kernels import platform
from ...ops.quantize import LARGEST, centred, integer_convolution, integer_product, requantised
from ...ops.registry import lowers
from ...ops.windows import Window, taps, window
from . import DOMAIN
from .channels_last import is_depthwise
from .convolution import convolution, in_pieces, merged
from .depthwise_last import depthwise, with_channels

_EXACT = 1 << 24
_MANY_PIECES = 64
_TOGETHER = 4
"""Input channels that the kernel takes at a time: 2 or 3 of them take 3 to 5 times as long as 4 (jaxlib 0.10)."""


@integer_product.form_for("cpu")
def product_of_bytes(a: Any, b: Any, a_zero: Any, b_zero: Any) -> jax.Array:
    """See `ops.quantize.integer_product`."""
    if not (_is_byte(a) and _is_byte(b)) or min(np.ndim(a), np.ndim(b)) < 2:
        return integer_product.plain(a, b, a_zero, b_zero)
    (left, p), (right, q) = _signed(a, a_zero), _signed(b, b_zero)
    total = jnp.matmul(left, right, preferred_element_type=jnp.int32)
    if not _is_nothing(p):
        total = total - p * _sum(right, (-2,))
    if not _is_nothing(q):
        total = total - q * (_sum(left, (-1,)) - left.shape[-1] * p)
    return total


@integer_convolution.form_for("cpu")
def convolution_of_bytes(x: Any, w: Any, x_zero: Any, w_zero: Any, group: int, **attributes: Any) -> jax.Array:
    """See `ops.quantize.integer_convolution`."""
    last = (0, *range(2, x.ndim), 1)
    kernels, of_filters = w.transpose(*range(2, x.ndim), 1, 0), None if w_zero is None else w_zero.reshape(-1)
    found = convolution_last(x.transpose(last), kernels, x_zero, of_filters, group, **attributes)
    return jnp.moveaxis(found, -1, 1)


@lowers("ConvInteger", domain=DOMAIN)
def conv_integer(
    x, w, x_zero=None, w_zero=None, /, *, auto_pad="NOTSET", dilations=(), group=1, kernel_shape=(), pads=(), strides=()
):  # fmt: skip
    """Of (N, H, W, C) and (kh, kw, C/group, M)."""
    return convolution_last(x, w, x_zero, w_zero, group, strides, dilations, pads, auto_pad, kernel_shape)


@lowers("QLinearConv", domain=DOMAIN)
def qlinear_conv(
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b=None, /, *, auto_pad="NOTSET", dilations=(), group=1,
    kernel_shape=(), pads=(), strides=(),
):  # fmt: skip
    """Of (N, H, W, C) and (kh, kw, C/group, M)."""
    whole = convolution_last(x, w, x_zero, w_zero, group, strides, dilations, pads, auto_pad, kernel_shape)
    return requantised(whole, (-1,), b, x_scale, w_scale, y_scale, y_zero)


def convolution_last(
    x: Any, w: Any, x_zero: Any, w_zero: Any, group: int, strides: Sequence[int] = (), dilations: Sequence[int] = (),
    pads: Sequence[int] = (), auto_pad: str = "NOTSET", kernel_shape: Sequence[int] = (),
) -> jax.Array:  # fmt: skip
    """`ops.quantize.integer_convolution` of x (N, ..., C) with w (..., C/group, M); zero points of one value or M."""
    check_groups(x.shape[-1], w.shape[-2], w.shape[-1], group)
    check_kernel(kernel_shape, w.shape[:-2])
    win = window(x.shape[1:-1], w.shape[:-2], strides, dilations, pads, auto_pad)
    if platform() == "cpu" and _is_byte(x) and _is_byte(w):
        if group == 1 and x.ndim < 5:
            return _in_bytes(x, w, x_zero, w_zero, win)
        most = _EXACT // LARGEST**2 // int(np.prod(w.shape[:-2]))
        if w.shape[-2] <= (most if group > 1 else most * _MANY_PIECES):
            return _in_floats(centred(x, x_zero), centred(w, w_zero), group, win, most)
    of_filters = None if w_zero is None else w_zero.reshape(-1, *(1,) * (x.ndim - 1))
    data, kernels = jnp.moveaxis(x, -1, 1), w.transpose(-1, -2, *range(x.ndim - 2))
    options = {"strides": strides, "dilations": dilations, "pads": pads, "auto_pad": auto_pad}
    return jnp.moveaxis(integer_convolution.plain(data, kernels, x_zero, of_filters, group, **options), 1, -1)


def _in_bytes(x: Any, w: Any, x_zero: Any, w_zero: Any, win: Window) -> jax.Array:
    """In one or two dimensions, without groups."""
    (data, p), (kernels, q) = _signed(x, x_zero), _signed(w, w_zero)
    around = ((0, 0), *win.pads, (0, 0))
    filled = jnp.pad(data, around, constant_values=jnp.asarray(p).reshape(()).astype(jnp.int8))
    total = _correlated(filled, kernels, win)
    if not _is_nothing(p):
        total = total - p * _sum(kernels, range(kernels.ndim - 1)).reshape(-1)
    if not _is_nothing(q):
        ones = np.ones((*kernels.shape[:-1], 1), np.int8)
        total = total - q * (_correlated(filled, ones, win) - ones.size * p)
    return total


def _correlated(x: jax.Array, w: Any, win: Window) -> jax.Array:
    """Correlation of signed bytes: a product, of the taps side by side where they lie apart, or XLA's convolution."""
    if set(win.dilations) != {1} or set(win.kernel) == {1}:
        columns = jnp.concatenate(taps(x, with_channels(win, x.shape[-1])), -1)
        return jnp.matmul(columns, w.reshape(-1, w.shape[-1]), preferred_element_type=jnp.int32)
    more = -x.shape[-1] % _TOGETHER if x.shape[-1] > 1 else 0
    data = jnp.pad(x, (*((0, 0),) * (x.ndim - 1), (0, more)))
    kernels: Any = (np if isinstance(w, np.ndarray) else jnp).pad(w, (*((0, 0),) * (w.ndim - 2), (0, more), (0, 0)))
    flat = x.ndim == 3
    found = lax.conv_general_dilated(
        data[:, None] if flat else data, kernels[None] if flat else kernels, (1, *win.strides)[-2:], "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"), preferred_element_type=jnp.int32,
    )  # fmt: skip
    return found[:, 0] if flat else found


def _in_floats(x: Any, w: Any, group: int, win: Window, most: int) -> jax.Array:
    """In float32, exactly; more than so many channels are cut into pieces, where there are no groups."""
    data, kernels = x.astype(np.float32), w.astype(np.float32)
    options = tuple(win.strides), tuple(win.pads), tuple(win.dilations)
    if is_depthwise(x, w, group, win):
        return depthwise(data, kernels, win).astype(jnp.int32)
    if group > 1:
        return in_pieces(data, kernels, group, merged(group, w.shape[-2]), *options).astype(jnp.int32)
    cuts = [slice(i, i + most) for i in range(0, w.shape[-2], most)]
    parts = [convolution(data[..., cut], kernels[..., cut, :], 1, *options).astype(jnp.int32) for cut in cuts]
    return sum(parts[1:], parts[0])


def _is_byte(x: Any) -> bool:
    return x.dtype in (np.int8, np.uint8)


def _signed(x: Any, zero: Any) -> tuple[Any, Any]:
    """Data in signed 8-bit numbers, and the zero point that they have then."""
    shift = 128 if x.dtype == np.uint8 else 0
    point = (np.int32(0) if zero is None else zero.astype(np.int32)) - np.int32(shift)
    return (x.astype(np.int16) - np.int16(shift)).astype(np.int8), point


def _sum(x: Any, axes: Sequence[int]) -> Any:
    """Sums, of weights that are known at once: XLA takes seconds to fold those of constants."""
    return (np if isinstance(x, np.ndarray) else jnp).sum(x, tuple(axes), dtype=np.int32, keepdims=True)


def _is_nothing(point: Any) -> bool:
    return isinstance(point, (np.ndarray, np.generic)) and not np.any(point)
