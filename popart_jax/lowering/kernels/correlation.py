"""Correlations of floats with channels last: which form computes a convolution on the platform.

On the CPU that is a matrix product, shifted multiply-adds, XLA's convolution, or oneDNN's (`onednn`) in programs that
stay in this process. oneDNN adds the bias as it writes the result, and knows groups and three dimensions. In ms,
XLA's form and oneDNN's (2 busy cores with AVX-512, jaxlib 0.10; other processors were not measured): 56 x 56 x 64 by
3 x 3 2.3 and 1.2, 8 times 28 x 28 x 128 by 3 x 3 59 and 28, the same alone in 32 groups 0.80 and 0.20, 4 times 32 x
32 x 64 dilated 9.3 and 1.6, 16^3 x 16 1.7 and 0.8, depthwise 8 times 112 x 112 x 96 at stride 2 67 and 13.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import ad

from ..._compat.jax import computed_once, is_symbolic_dim
from ...ops import primitives
from ...ops.arrays import Array, merge_axes, split_axis
from ...ops.gradients import pulled_back
from ...ops.kernels import IPU, note_call, platform, weights_come_as_stored
from ...ops.two_way import two_way
from ...ops.windows import Window, taps
from . import (
    few_channels,
    few_places,
    met_elements,
    onednn,
    ordered_weights,
    pointwise,
    stored_weights,
    weight_products,
)
from .convolution import convolution
from .depthwise_last import depthwise, with_channels
from .either import either

_MANY_TAPS = 64
_MANY_PRODUCTS, _MANY_OVER_MAPS = 4_000_000, 8_000_000
"""Multiplications from which the library is faster: it makes a primitive and another buffer at each call.

Of maps with several channels: in 64 layers with 16 to 256 channels (AMD EPYC) it takes 1.7 times as long as XLA from 3
to 8 million (median), 1.2 from 8 to 13, 0.8 above. On an Intel Xeon it was as fast from 4 million on.
"""
_MANY_OF_IMAGES = 600_000
"""The same for first layers: up to 4 channels and 16 filters, or 3 channels and 32 filters.

XLA's convolution vectorises these badly. In us, XLA's and the library (AMD EPYC, 230 layers of random shapes): 64 x 64
x 3 to 20 by 3 x 3 667 and 125, 48 x 96 x 3 to 24 766 and 121, 2 times 48 x 48 x 3 to 32 312 and 130, 160 x 224 x 3 to
16 at stride 2 304 and 139, 64 x 64 x 1 to 16 108 and 56; but 48 x 160 x 3 to 48 57 and 128, 24 x 24 x 1 to 28 22 and
71. mtcnn's second stage takes 0.69 of the time, its third 0.73.
"""
_MANY_BY_CHANNEL = 110_000_000
"""Multiplications times the elements of a kernel, for kernels by channel.

In us, XLA's multiply-adds and the library, with bias and activation (AMD EPYC, 36 layers of random shapes): 112 x 112 x
32 by 3 x 3 118 and 210, 96 x 80 x 96 180 and 214, 80 x 112 x 120 248 and 277; 28 x 96 x 120 by 5 x 5 327 and 230,
10 x 96 x 72 by 7 x 7 205 and 136. Of large maps, whose padded copy leaves the cache, a network takes 1.04 of the time
as multiply-adds, so the limit is lower.
"""
_LARGE_MAP, _MANY_OF_LARGE_MAPS = 1 << 20, 3_000_000
_MANY_PLACES, _MANY_FOR_PRODUCTS = 16, 4000
"""Below, the time goes into reordering the weights, which the library does at each call; XLA's products do not.

In ms, XLA's product and the library: 7 x 7 x 2,048 to 512 0.90 and 1.49, 960 to 320 0.27 and 0.47, 320 to 1,280 0.44
and 0.60; 14 x 14 x 1,024 to 256 0.81 and 0.82, 96 to 576 0.39 and 0.34.

In whole networks up to some thousand places are faster as products. With this limit, and 3 million products by channel
in place of a million, MobileNetV2 takes 0.93 of the time for one image and 0.99 for eight, MNASNet 0.90,
MobileNetV3 0.92 to 0.96, six others 0.97 to 1.00 (AMD EPYC). On an Intel Xeon (2 MB of L2 cache a core) a limit of
1,000 was measured: mobilenetv2 b1 0.94, 11 others at 2 x 64 x 64 0.91 to 1.05 (`python -m benchmarks.against`).
"""
_MANY_OF_FEWER = 120_000_000
"""The same for products with fewer results than operands.

In us, XLA's product and the library (AMD EPYC, 40 layers of random shapes): 112 x 112 x 32 to 16 254 and 295, 56 x 56 x
144 to 24 262 and 345, 72 x 112 x 128 to 12 314 and 533, 224 x 112 x 96 to 48 1,165 and 1,052; but 112 x 112 x 16 to 96
501 and 266, 120 x 160 x 8 to 64 409 and 234.
"""
_NARROW, _SOME_PLACES, _MANY_OF_NARROW = 12, 1000, 1_500_000
"""The same for maps of some size with few filters, which XLA's convolution pads: 0.57 to 0.97 in 12 layers.

128 x 15 x 12 to 12 by 7 x 1 takes 219 us by XLA and 151 by the library, 80 x 40 x 12 to 12 by 5 x 3 336 and 191.
"""
_MANY_OF_GROUPS, _PLACES_OF_GROUPS, _CHANNELS_OF_GROUPS = 800_000, 500, 24
"""The same for groups of single places, from some places and channels on.

In us, XLA's form and the library (Intel Xeon, two cores, 70 layers of random shapes): 40 x 40 x 64 to 128 in 16 groups
287 and 139, 4 times 28 x 28 x 192 to 128 in 16 987 and 292, 56 x 56 x 48 to 64 in 4 424 and 200; but 40 x 40 x 16 to
128 in 4 109 and 170, 20 x 20 x 128 to 512 in 8 166 and 209. Stages of ShuffleNet with 8 groups take 0.65 of the time.
"""
_FEW_FILTERS = 8
"""Below, the library multiplies vectors that are mostly padding."""
_MANY_TIMES = 4
"""Times as many input as output channels, for which a spread gradient's zeros cost less than XLA's own spreading.

64 x 16 x 16 x 64 to 2 by 7 x 7 at stride 2 takes 33 ms by XLA and 2.7 by the library, to 16 38 and 9.5;
8 x 56 x 56 x 64 to 16 by 3 x 3 4.8 and 2.5, to 64 5.3 and 8.6.
"""


def correlation(x: Array, w: Array, b: Array | None, group: int, win: Window) -> jax.Array:
    """Correlation of x (N, ..., C) with w (..., C/group, M), plus a bias (M)."""
    data, kernels = cast("tuple[jax.Array, jax.Array]", (x, w))  # NumPy arrays will do
    known = not any(map(is_symbolic_dim, x.shape))
    if known and platform() == "cpu":  # on GPUs XLA may end the process where a product reads a slice
        data, kernels, win = met_elements.trimmed(data, kernels, win)
    if x.dtype == w.dtype == np.float32 and known and onednn.allowed():
        return _chosen(data, kernels, b, group, win)
    return _biased(own(data, kernels, group, win), b)


def _biased(y: jax.Array, b: Array | None) -> jax.Array:
    return y if b is None else primitives.add(y, b)


def own(x: jax.Array, w: jax.Array, group: int, win: Window) -> jax.Array:
    """The correlation as JAX operations."""
    cpu = platform() == "cpu"
    as_stored = cpu and weights_come_as_stored()
    if _is_pointwise(group, win) and _is_product(win):
        (tap,) = taps(x, with_channels(win, x.shape[-1]))
        return stored_weights.product(tap, w) if as_stored else pointwise.product(tap, w.reshape(w.shape[-2:]))
    if is_depthwise(x, w, group, win):
        return depthwise(x, w, win)
    known = not any(map(is_symbolic_dim, x.shape))
    if known and few_channels.suits(x, w, group, win):
        return few_channels.correlation(x, w, win)
    if cpu and known and group == 1 and _suits_rows(x, w, win, as_stored):
        return stored_weights.by_rows(x, w, win)
    if known and few_places.suits(x, w, group, win):
        return few_places.correlation(x, w, win)
    return convolution(x, w, group, tuple(win.strides), tuple(win.pads), tuple(win.dilations))


def _suits_rows(x: Any, w: Any, win: Window, as_stored: bool) -> bool:
    return (as_stored and stored_weights.suits_rows(x, w, win)) or stored_weights.suits_short_sound(x, w, win)


def suits_library(x: Any, w: Any, group: int, win: Window) -> bool:
    """Whether oneDNN computes this faster than XLA.

    Source: 160 layers of random shapes, with bias and Relu, beside `own`, on a loaded machine: within the limits oneDNN
    takes 0.54 of the time (median; 1.1 at the ninth decile), outside up to 4.7 times as long. With vectors of 256 bits
    its convolutions of groups may end the process (jaxlib 0.10, told to have no longer ones).
    """
    places, depthwise_ = x.shape[0] * math.prod(win.positions), is_depthwise(x, w, group, win)
    least = _MANY_PLACES
    if _is_of_places(win):
        least = _MANY_FOR_PRODUCTS if group == 1 else _PLACES_OF_GROUPS
    products = _many_by_channel(x, win) if depthwise_ else _many_products(x, w, group, win)
    enough = places >= least and places * w.size >= products
    several = group == 1 or w.shape[-2] > 1
    filters = w.shape[-1] // group >= _FEW_FILTERS or (group > 1 and _is_of_places(win))
    wide = depthwise_ or _is_of_images(w, group) or (filters and several)
    small = few_channels.suits(x, w, group, win) or few_places.suits(x, w, group, win)
    suited = enough and wide and not small and x.dtype == w.dtype == np.float32
    return bool(suited) and (group == 1 or ordered_weights.has_long_vectors())


def _many_by_channel(x: Any, win: Window) -> float:
    """Multiplications from which oneDNN computes a convolution faster that is by channel."""
    return _MANY_OF_LARGE_MAPS if math.prod(x.shape) >= _LARGE_MAP else _MANY_BY_CHANNEL / math.prod(win.kernel)


def _many_products(x: Any, w: Any, group: int, win: Window) -> int:
    """Multiplications from which oneDNN computes a convolution faster that is not by channel."""
    *kernel, channels, filters = w.shape
    if _is_pointwise(group, win) and filters < channels:
        return _MANY_OF_FEWER
    if group > 1 and _is_of_places(win) and channels * group >= _CHANNELS_OF_GROUPS:
        return _MANY_OF_GROUPS
    if group > 1 or len(kernel) != 2 or _is_pointwise(group, win):
        return _MANY_PRODUCTS
    if _is_of_images(w, group):
        return _MANY_OF_IMAGES if filters <= 16 or (channels == 3 and filters <= 32) else few_channels.MANY_PRODUCTS
    if filters <= _NARROW and x.shape[0] * math.prod(win.positions) >= _SOME_PLACES:
        return _MANY_OF_NARROW
    return _MANY_OVER_MAPS if channels > 1 else _MANY_PRODUCTS


def _is_of_images(w: Any, group: int) -> bool:
    """Whether it can be the first layer of a network on images."""
    return group == 1 and w.shape[-2] <= 4


def _is_pointwise(group: int, win: Window) -> bool:
    return group == 1 and _is_of_places(win)


def _is_of_places(win: Window) -> bool:
    """Whether each result depends on a single place of the data."""
    return set(win.kernel) == {1} and not any(map(any, win.pads))


def _is_product(win: Window) -> bool:
    """Whether a pointwise convolution is a matrix product: on GPUs not those with a stride.

    XLA (jaxlib 0.11.2) ends the process where it merges a product with the slice before it, as in a ResNet-18 for the
    H200; and cuDNN adds bias, Relu and the other branch of a residual block.
    """
    return platform() in ("cpu", IPU) or set(win.strides) == {1}


def is_depthwise(x: Any, w: Any, group: int, win: Window) -> bool:
    """Whether it is computed as shifted multiply-adds: on the CPU, one small kernel per channel."""
    small = len(win.kernel) and math.prod(win.kernel) <= _MANY_TAPS
    return bool(platform() == "cpu" and group > 1 and group == x.shape[-1] == w.shape[-1] and small)


@partial(two_way, nondiff_argnums=(3, 4))
def _chosen(x: jax.Array, w: jax.Array, b: jax.Array | None, group: int, win: Window) -> jax.Array:
    """By oneDNN or as `own`, and so are the gradients of data and weights."""
    if few_places.suits_order(x, w, group, win):
        return _biased(few_places.by_order(x, w, win), b)
    if suits_library(x, w, group, win) and onednn.usable():
        if group == 1 and stored_weights.suits_sound(x, win):
            return _biased(stored_weights.by_rows(x, w, win), b)
        return _library(x, w, b, group, win)
    return _biased(own(x, w, group, win), b)


def _forward(
    x: jax.Array, w: jax.Array, b: jax.Array | None, group: int, win: Window
) -> tuple[Any, tuple[jax.Array, jax.Array, jax.Array | None]]:
    return _chosen(x, w, b, group, win), (x, w, b)


def _backward(group: int, win: Window, saved: Any, g: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    x, w, b = saved
    g = computed_once(g)  # or XLA computes it for each reader that takes another shape: MobileNetV2's step 1.03
    of_x = _data_gradient(x, w, g, group, win)
    of_w = _weights_by_library(x, g, win) if weight_products.suits(x, w, group, win) else _weights(x, w, g, group, win)
    return of_x, of_w, None if b is None else g.sum(range(g.ndim - 1))


def _data_gradient(x: jax.Array, w: jax.Array, g: jax.Array, group: int, win: Window) -> jax.Array:
    """The spread output gradient, correlated with the flipped window, or JAX's own where that is faster."""
    sizes = x.shape[1:-1]
    spread = tuple((n - 1) * s + 1 for n, s in zip(win.positions, win.strides, strict=True))
    before = [r - 1 - lo for r, (lo, _) in zip(win.reach, win.pads, strict=True)]
    after = [n + r - 1 - m - lo for n, r, m, lo in zip(sizes, win.reach, spread, before, strict=True)]
    turned = merge_axes(split_axis(jnp.flip(w, range(w.ndim - 2)), -1, group).swapaxes(-3, -1), -2)
    ones = (1,) * len(sizes)
    back = replace(win, strides=ones, pads=tuple(zip(before, after, strict=True)), positions=sizes)
    spreads = group == 1 and set(win.strides) != {1} and w.shape[-2] < _MANY_TIMES * w.shape[-1]
    suited = not spreads and min(*before, *after) >= 0 and suits_library(g, turned, group, back)
    if not (suited and onednn.usable()):
        return pulled_back(lambda x: own(x, w, group, win), x, g)
    gaps = [(0, 0, s - 1) for s in win.strides]
    return correlation(lax.pad(g, np.zeros((), g.dtype), ((0, 0, 0), *gaps, (0, 0, 0))), turned, None, group, back)


def _push(group: int, win: Window, saved: Any, tangents: Any) -> jax.Array:
    (x, w, _), (of_x, of_w, of_b) = saved, tangents
    return _biased(own(of_x, w, group, win) + own(x, of_w, group, win), of_b)


_chosen.defvjp(_forward, _backward, _push)


def _library(x: Any, w: Any, b: Any, group: int, win: Window) -> jax.Array:
    note_call(CORRELATION.name)
    operands, stored = (x, w) if b is None else (x, w, b), weights_come_as_stored()
    return CORRELATION.bind(*operands, group=group, win=win, stored=stored)


def _own(x: Any, w: Any, *b: Any, group: int, win: Window, **_: Any) -> jax.Array:
    return _biased(own(x, w, group, win), *(b or (None,)))


def _type(x: Any, w: Any, *_: Any, win: Window, **__: Any) -> Any:
    return x.update(shape=(x.shape[0], *win.positions, w.shape[-1]))


def _jvp(primals: Any, tangents: Any, *, group: int, win: Window, **_: Any) -> tuple[jax.Array, jax.Array]:
    (x, w, *b), (of_x, of_w, *of_b) = primals, cast("list[Any]", [ad.instantiate_zeros(t) for t in tangents])
    y = _library(x, w, b[0] if b else None, group, win)
    return y, _push(group, win, (x, w, None), (of_x, of_w, of_b[0] if b else None))


CORRELATION = either("correlation", onednn.correlation_of_floats, _own, _type)
"""A primitive with derivatives of its own, since JAX drops `custom_jvp` when it differentiates a loop twice."""
ad.primitive_jvps[CORRELATION] = _jvp


def _weights(x: jax.Array, w: Any, g: jax.Array, group: int, win: Window) -> jax.Array:
    """The gradient of weights of this shape."""
    return pulled_back(lambda w: own(x, w, group, win), w, g)


def _weights_by_library(x: jax.Array, g: jax.Array, win: Window) -> jax.Array:
    note_call(WEIGHTS.name)
    return WEIGHTS.bind(x, g, win=win)


def _own_weights(x: Any, g: Any, *, win: Window) -> jax.Array:
    return _weights(x, jnp.zeros((*win.kernel, x.shape[-1], g.shape[-1]), x.dtype), g, 1, win)


def _weights_type(x: Any, g: Any, *, win: Window) -> Any:
    return x.update(shape=(*win.kernel, x.shape[-1], g.shape[-1]))


def _sums_over_images(*_: Any) -> bool:
    return False


def _weights_jvp(primals: Any, tangents: Any, *, win: Window) -> tuple[jax.Array, jax.Array]:
    (x, g), (of_x, of_g) = primals, cast("list[Any]", [ad.instantiate_zeros(t) for t in tangents])
    push = _own_weights(of_x, g, win=win) + _own_weights(x, of_g, win=win)
    return _weights_by_library(x, g, win), push


WEIGHTS = either("correlation_weights", weight_products.weight_gradient, _own_weights, _weights_type, _sums_over_images)
ad.primitive_jvps[WEIGHTS] = _weights_jvp
