"""Matrix products and convolutions of 8-bit integers; on GPUs and TPUs by `exact_products`.

XLA:CPU computes 32-bit integers in scalar code. For signed 8-bit integers it has fast kernels for matrix products and
for plain convolutions of two dimensions with channels last (jaxlib 0.10), and oneDNN has faster ones (`onednn`). So
integers are multiplied as they are stored, and the zero points are applied afterwards:
``(x - p)(w - q) = xw - p w - q x + pq``, summed.

Without oneDNN, other convolutions are computed in float32. Sums below 2**24 are exact in any order; longer ones are
split into groups of input channels whose sums stay below, and these are added as integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..._compat.jax import is_symbolic_dim, kept_call
from ...ops.arrays import Array
from ...ops.convolution import check_groups, check_kernel
from ...ops.kernels import note_call, platform
from ...ops.quantize import LARGEST, centred, integer_convolution, integer_product, requantised
from ...ops.registry import lowers
from ...ops.windows import Window, taps, window
from . import DOMAIN, exact_products, few_channels, few_places, onednn, ordered_weights, rows_of_bytes
from .convolution import convolution, in_pieces, merged
from .correlation import is_depthwise
from .depthwise_last import depthwise, with_channels
from .either import either

_EXACT = 1 << 24
_FEW_PRODUCTS = 1 << 19
"""Up to which float32 is faster: the library wakes another thread at each call.

In us, in float32 and by the library (AMD EPYC, two cores, 20 calls at once): 1 x 512 by 512 x 256 6 and 15, 4 x 256 by
256 x 256 5 and 11, 1 x 784 by 784 x 512 17 and 14, 1 x 1,024 by 1,024 x 1,024 47 and 26. A perceptron of 784, 512, 512
and 10 takes 42 in place of 61, since one product waits for the other.
"""
_MANY_BYTES = 1 << 20
"""Up to which one row is faster times weights in rows than times ordered ones."""
_MANY_PIECES = 64
_TOGETHER = 4
"""Multiple of the input channels that the kernel needs: with 2 or 3 it takes 3 to 5 times as long as with 4."""


@integer_product.form_for("cpu", *exact_products.PLATFORMS)
def product_of_bytes(a: Any, b: Any, a_zero: Any, b_zero: Any) -> jax.Array:
    """See `ops.quantize.integer_product`."""
    if not (_is_byte(a) and _is_byte(b)) or min(np.ndim(a), np.ndim(b)) < 2:
        return integer_product.plain(a, b, a_zero, b_zero)
    if platform() in exact_products.PLATFORMS:
        return exact_products.product(centred(a, a_zero), centred(b, b_zero))
    kind, form = _form(a, b)
    (left, p), (right, q) = _as(kind, a, a_zero), _as(np.int8, b, b_zero)
    total = form(left, right)
    if not _is_nothing(p):
        total = total - p * _sum(right, (-2,))
    if not _is_nothing(q):
        total = total - q * (_sum(left, (-1,)) - left.shape[-1] * p)
    return total


def _form(a: Any, b: Any) -> tuple[Any, Callable[[Any, Any], jax.Array]]:
    """The rows' type and the function by which these are multiplied fastest."""
    row = _is_numpy(b) and rows_of_bytes.suits(a, b)
    if row and b.size <= _MANY_BYTES:
        return np.int8, rows_of_bytes.product
    if _is_small(a, b) and not row:
        return np.int8, _product_of_floats
    fit = _multiplies(a, b)
    if fit and _is_numpy(b) and b.ndim == 2 and ordered_weights.suits("uint8", a.shape[:-1], b):
        return np.uint8, ordered_weights.product
    if row:
        return np.int8, rows_of_bytes.product
    return (a.dtype, _by_library) if fit and onednn.usable() else (np.int8, _own_product)


def _multiplies(a: Any, b: Any) -> bool:
    """Whether the library multiplies these: no broadcasting but of two dimensions, and misfits end the process."""
    sizes = (*a.shape, *b.shape)
    fit = (b.ndim == 2 or a.shape[:-2] == b.shape[:-2]) and a.shape[-1] == b.shape[-2]
    return fit and 0 not in sizes and not any(map(is_symbolic_dim, sizes))


def _is_small(a: Any, b: Any) -> bool:
    """Whether `_product_of_floats` is exact and faster than the library's call, for known weights."""
    if not _is_numpy(b) or b.ndim != 2 or any(map(is_symbolic_dim, a.shape)):
        return False
    return b.shape[0] * 128**2 <= _EXACT and a.size * b.shape[1] <= _FEW_PRODUCTS


def _product_of_floats(a: Any, b: Any) -> jax.Array:
    """INT32 product of signed bytes with a matrix of them, in float32."""
    return jnp.matmul(a.astype(np.float32), b.astype(np.float32)).astype(jnp.int32)


def _by_library(a: Any, b: Any) -> jax.Array:
    note_call(PRODUCT.name)
    rows = a.reshape(-1, a.shape[-1]) if b.ndim == 2 else a
    return PRODUCT.bind(rows, b).reshape(*a.shape[:-1], b.shape[-1])


def _own_product(a: Any, b: Any) -> jax.Array:
    """INT32 product of bytes with signed bytes, by XLA."""
    left, shift = _as(np.int8, a, None)
    total = jnp.matmul(left, b, preferred_element_type=jnp.int32)
    return total if _is_nothing(shift) else total - shift * _sum(b, (-2,))


def _type_of_product(a: Any, b: Any) -> Any:
    return _int32(a, (*a.shape[:-1], b.shape[-1]))


def _is_one_matrix(_: Any, b: Any) -> bool:
    return b.ndim == 2


PRODUCT = either(
    "product_of_bytes", onednn.product, _own_product, _type_of_product, apart=_is_one_matrix,
)  # fmt: skip


def _int32(like: Any, shape: Sequence[int]) -> Any:
    return like.update(shape=tuple(shape), dtype=np.dtype(np.int32))


@integer_convolution.form_for("cpu", *exact_products.PLATFORMS)
def convolution_of_bytes(x: Any, w: Any, x_zero: Any, w_zero: Any, group: int, **attributes: Any) -> jax.Array:
    """See `ops.quantize.integer_convolution`."""
    last = (0, *range(2, x.ndim), 1)
    kernels, of_filters = w.transpose(*range(2, x.ndim), 1, 0), None if w_zero is None else w_zero.reshape(-1)
    found = convolution_last(x.transpose(last), kernels, x_zero, of_filters, group, **attributes)
    return jnp.moveaxis(found, -1, 1)


@lowers("ConvInteger", domain=DOMAIN)
def conv_integer(
    x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None, /, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] = (), group: int = 1, kernel_shape: Sequence[int] = (), pads: Sequence[int] = (),
    strides: Sequence[int] = (),
) -> jax.Array:  # fmt: skip
    """Convolution of (N, H, W, C) with (kh, kw, C/group, M)."""
    return convolution_last(x, w, x_zero, w_zero, group, strides, dilations, pads, auto_pad, kernel_shape)


@lowers("QLinearConv", domain=DOMAIN)
def qlinear_conv(
    x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array, y_scale: Array, y_zero: Array,
    b: Array | None = None, /, *, auto_pad: str = "NOTSET", dilations: Sequence[int] = (), group: int = 1,
    kernel_shape: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Array:  # fmt: skip
    """Convolution of (N, H, W, C) with (kh, kw, C/group, M)."""
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
    known = not any(map(is_symbolic_dim, x.shape)) and x.size and w.size
    if known and _is_byte(x) and _is_byte(w) and few_channels.suits(x, w, group, win):
        return few_channels.sum_of_terms(centred(x, x_zero), centred(w, w_zero), win)
    if _is_byte(x) and _is_byte(w) and known and onednn.usable():
        return _in_bytes(np.uint8, x, w, x_zero, w_zero, group, win)
    return _own_convolution(x, w, x_zero, w_zero, group=group, win=win)


def _own_convolution(x: Any, w: Any, x_zero: Any = None, w_zero: Any = None, *, group: int, win: Window) -> jax.Array:
    """The convolution by XLA."""
    if platform() in exact_products.PLATFORMS and _is_byte(x) and _is_byte(w):
        return exact_products.correlation(centred(x, x_zero), centred(w, w_zero), group, win)
    if platform() == "cpu" and _is_byte(x) and _is_byte(w):
        if group == 1 and x.ndim < 5:
            return _in_bytes(np.int8, x, w, x_zero, w_zero, group, win)
        most = _EXACT // LARGEST**2 // math.prod(w.shape[:-2])
        if w.shape[-2] <= (most if group > 1 else most * _MANY_PIECES):
            return _in_floats(centred(x, x_zero), centred(w, w_zero), group, win, most)
    of_filters = None if w_zero is None else w_zero.reshape(-1, *(1,) * (x.ndim - 1))
    data, kernels = jnp.moveaxis(x, -1, 1), w.transpose(-1, -2, *range(x.ndim - 2))
    lows, highs = zip(*win.pads, strict=True)
    options = {"strides": win.strides, "dilations": win.dilations, "pads": (*lows, *highs), "auto_pad": "NOTSET"}
    return jnp.moveaxis(integer_convolution.plain(data, kernels, x_zero, of_filters, group, **options), 1, -1)


def _type_of_correlation(x: Any, w: Any, *, group: int, win: Window) -> Any:
    return _int32(x, (x.shape[0], *win.positions, w.shape[-1]))


CORRELATION = either("correlation_of_bytes", onednn.correlation, _own_convolution, _type_of_correlation)


def _in_bytes(kind: Any, x: Any, w: Any, x_zero: Any, w_zero: Any, group: int, win: Window) -> jax.Array:
    """The convolution of data as `kind`: uint8 for oneDNN, which takes all windows, int8 for XLA, which takes some."""
    (data, p), (kernels, q) = _as(kind, x, x_zero), _as(np.int8, w, w_zero)
    pads: Any = win.pads
    if kind == np.int8 or not _is_nothing(p):
        fill, around = jnp.asarray(p).reshape(()).astype(kind), ((0, 0), *pads, (0, 0))

        def filled(x: jax.Array) -> jax.Array:
            return jnp.pad(x, around, constant_values=fill)

        # XLA (jaxlib 0.10) makes padding of its convolution of zeros that it sees, and its sums are wrong then
        data = kept_call(filled, data) if _is_nothing(p) else filled(data)
        pads = ((0, 0),) * len(pads)

    def correlated(kernels: Any) -> jax.Array:
        if kind == np.int8:
            return _correlated(data, kernels, win)
        seen = replace(win, pads=tuple(pads))
        if group == 1 and _is_product(data, kernels, seen):
            return few_places.by_order(data, kernels, seen)
        note_call(CORRELATION.name)
        return CORRELATION.bind(data, kernels, group=group, win=seen)

    total = correlated(kernels)
    if not _is_nothing(p):
        total = total - p * _sum(kernels, range(kernels.ndim - 1)).reshape(-1)
    if not _is_nothing(q):
        ones = np.ones((*kernels.shape[:-1], group), np.int8)
        found = correlated(ones) - ones.size // group * p
        total = total - q * jnp.repeat(found, kernels.shape[-1] // group, -1)
    return total


def _is_product(x: Any, w: Any, win: Window) -> bool:
    """Whether weights that are known are more to order than windows are to write in rows."""
    places = (x.shape[0], *win.positions)
    few = set(win.kernel) == {1} or math.prod(places) <= w.shape[-1]
    return few and _is_numpy(w) and ordered_weights.suits("uint8", places, w)


def _correlated(x: jax.Array, w: Any, win: Window) -> jax.Array:
    """Correlation of signed bytes: XLA's convolution, or for dilated windows a matrix product of the taps."""
    if set(win.dilations) != {1} or set(win.kernel) == {1}:
        columns = jnp.concatenate(taps(x, with_channels(win, x.shape[-1])), -1)
        return jnp.matmul(columns, w.reshape(-1, w.shape[-1]), preferred_element_type=jnp.int32)
    more = -x.shape[-1] % _TOGETHER if x.shape[-1] > 1 else 0
    data = jnp.pad(x, (*((0, 0),) * (x.ndim - 1), (0, more)))
    kernels: Any = (np if _is_numpy(w) else jnp).pad(w, (*((0, 0),) * (w.ndim - 2), (0, more), (0, 0)))
    flat = x.ndim == 3
    found = lax.conv_general_dilated(
        data[:, None] if flat else data, kernels[None] if flat else kernels, (1, *win.strides)[-2:], "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"), preferred_element_type=jnp.int32,
    )  # fmt: skip
    return found[:, 0] if flat else found


def _in_floats(x: Any, w: Any, group: int, win: Window, most: int) -> jax.Array:
    """The convolution in float32, exactly; without groups, it is split into sums over at most `most` channels."""
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


def _as(kind: Any, x: Any, zero: Any) -> tuple[Any, Any]:
    """8-bit integers as int8 or uint8 (`kind`), and the zero point shifted alike."""
    shift = 0 if x.dtype == kind else 128 if kind == np.uint8 else -128
    point = (np.int32(0) if zero is None else zero.astype(np.int32)) + np.int32(shift)
    return (x.astype(np.int16) + np.int16(shift)).astype(kind) if shift else x, point


def _is_numpy(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def _sum(x: Any, axes: Sequence[int]) -> Any:
    """Sums over `axes`; of NumPy weights at once, because XLA takes seconds to fold sums of constants."""
    return (np if _is_numpy(x) else jnp).sum(x, tuple(axes), dtype=np.int32, keepdims=True)


def _is_nothing(point: Any) -> bool:
    return (_is_numpy(point) or isinstance(point, np.generic)) and not np.any(cast("np.ndarray", point))
