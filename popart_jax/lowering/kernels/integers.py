"""Products and convolutions of 8-bit numbers on the CPU.

XLA:CPU computes those of 32-bit numbers in scalar code; of signed 8-bit numbers it has fast kernels for matrix products
and for plain convolutions of two dimensions with channels last (jaxlib 0.10). So numbers are multiplied as they are
stored, and the zero points are brought in afterwards: ``(x - p)(w - q) = xw - p w - q x + pq``, summed.

Other convolutions are computed in float32: sums that stay below 2**24 are exact in whatever order they are made;
longer ones are cut into pieces of input channels that stay below, which are added as whole numbers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...ops.convolution import check_groups, check_kernel, conv
from ...ops.quantize import LARGEST, centred, integer_convolution, integer_product
from ...ops.windows import window

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
def convolution_of_bytes(
    x: Any, w: Any, x_zero: Any, w_zero: Any, group: int, strides: Any = (), dilations: Any = (), pads: Any = (),
    auto_pad: str = "NOTSET", kernel_shape: Any = (),
) -> jax.Array:  # fmt: skip
    """See `ops.quantize.integer_convolution`."""
    check_groups(x.shape[1], w.shape[1], w.shape[0], group)
    check_kernel(kernel_shape, w.shape[2:])
    win = window(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    usual = group == 1 and x.ndim == 4 and set(win.dilations) == {1} and min(map(min, win.pads)) >= 0
    if not (usual and _is_byte(x) and _is_byte(w)):
        return _in_floats(x, w, x_zero, w_zero, group, strides, dilations, pads, auto_pad)
    (data, p), (weights, q) = _signed(x, x_zero), _signed(w, w_zero)
    more = -x.shape[1] % _TOGETHER if x.shape[1] > 1 else 0
    margins = ((0, 0), *win.pads, (0, more))
    filled = jnp.pad(jnp.transpose(data, (0, 2, 3, 1)), margins, constant_values=_byte(p))
    kernels = _widened(weights.transpose(2, 3, 1, 0), more)

    def correlated(kernels: Any) -> jax.Array:
        if set(win.kernel) == set(win.strides) == {1}:
            return jnp.matmul(filled, kernels[0, 0], preferred_element_type=jnp.int32)
        layout = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            filled, kernels, win.strides, "VALID", dimension_numbers=layout, preferred_element_type=jnp.int32
        )

    total = correlated(kernels)
    if not _is_nothing(p):
        total = total - p * _sum(kernels, (0, 1, 2)).reshape(-1)
    if not _is_nothing(q):
        ones = _widened(np.ones((*win.kernel, x.shape[1], 1), np.int8), more)
        count = int(np.prod((*win.kernel, x.shape[1])))
        total = total - q.reshape(-1) * (correlated(ones) - count * p)
    return jnp.transpose(total, (0, 3, 1, 2))


def _widened(kernels: Any, more: int) -> Any:
    """Kernels with so many more input channels, all zero."""
    return (np if isinstance(kernels, np.ndarray) else jnp).pad(kernels, ((0, 0), (0, 0), (0, more), (0, 0)))


def _is_byte(x: Any) -> bool:
    return x.dtype in (np.int8, np.uint8)


def _signed(x: Any, zero: Any) -> tuple[Any, Any]:
    """Data in signed 8-bit numbers, and the zero point that they have then."""
    shift = 128 if x.dtype == np.uint8 else 0
    point = (np.int32(0) if zero is None else zero.astype(np.int32)) - np.int32(shift)
    return (x.astype(np.int16) - np.int16(shift)).astype(np.int8), point


def _sum(x: Any, axes: tuple[int, ...]) -> Any:
    """Sums, of weights that are known at once: XLA takes seconds to fold those of constants."""
    return (np if isinstance(x, np.ndarray) else jnp).sum(x, axes, dtype=np.int32, keepdims=True)


def _byte(point: Any) -> jax.Array:
    return jnp.asarray(point).reshape(()).astype(jnp.int8)


def _is_nothing(point: Any) -> bool:
    return isinstance(point, (np.ndarray, np.generic)) and not np.any(point)


def _in_floats(
    x: Any, w: Any, x_zero: Any, w_zero: Any, group: int, strides: Any, dilations: Any, pads: Any, auto_pad: str
) -> jax.Array:
    """The same in float32; pieces of input channels only without groups."""
    options = {"strides": strides, "dilations": dilations, "pads": pads, "auto_pad": auto_pad}
    most = _EXACT // LARGEST**2 // int(np.prod(w.shape[2:]))
    pieces = -(-w.shape[1] // most) if most else 0
    if not 0 < pieces <= (_MANY_PIECES if group == 1 else 1):
        return integer_convolution.plain(x, w, x_zero, w_zero, group, **options)
    data, kernels = (centred(v, zero).astype(np.float32) for v, zero in ((x, x_zero), (w, w_zero)))
    if pieces == 1:
        return conv(data, kernels, group=group, **options).astype(jnp.int32)
    cuts = [slice(i, i + most) for i in range(0, w.shape[1], most)]
    parts = [conv(data[:, cut], kernels[:, cut], **options).astype(jnp.int32) for cut in cuts]
    return sum(parts[1:], parts[0])
