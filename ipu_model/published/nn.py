"""Layers of published networks in JAX: half precision, images as NCHW, weights handed out by `Weights`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = jax.Array
DATA = jnp.float16
LOWEST = np.float16(-60000)  # below every score
Block = Callable[["Weights", Array], Array]
Shapes = list[tuple[int, ...]]


class Weights:
    """Hands out the weights of a network in the order in which its layers ask for them.

    Without arrays it hands out zeros and remembers the shapes, so that a network is written down once: its layers are
    the list of its parameters. With arrays, `repeats` may be those that were recorded, so that the blocks needn't be
    traced again to learn them.
    """

    def __init__(self, arrays: Sequence[Array] | None = None, repeats: Sequence[Shapes] = ()) -> None:
        self.arrays = arrays
        self.shapes: Shapes = []  # shapes asked for so far
        self.blocks = 0  # repeated blocks so far; each is a node of the program, which may be placed on an IPU
        self.repeats: list[Shapes] = []  # what one block of each `repeat` so far asked for
        self._known = iter(repeats)

    def __call__(self, *shape: int) -> Array:
        """The next weight, of this shape."""
        self.shapes.append(shape)
        return _zeros(shape, DATA) if self.arrays is None else self.arrays[len(self.shapes) - 1]

    def repeated(self, times: int, block: Block, x: Array) -> tuple[Shapes, Array | None]:
        """What one of the next equal blocks asks for, and while weights are recorded what the last of them gives."""
        shapes, last = next(self._known, None), None
        if shapes is None:
            weights, y = _asked(block, x)
            shapes = weights.shapes
            if self.arrays is None and (times == 1 or (y.shape, y.dtype) == (x.shape, x.dtype)):
                last = _zeros(y.shape, y.dtype)
        self.repeats.append(shapes)
        return shapes, last


def _zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    return lax.broadcast(jnp.zeros((), dtype), shape)  # that `zeros` has one shape: JAX looks it up


def _asked(network: Callable[..., Any], *inputs: Any) -> tuple[Weights, Any]:
    weights = Weights()
    return weights, jax.eval_shape(functools.partial(network, weights), *inputs)


def asked_by(network: Callable[..., Any], *inputs: Any) -> Weights:
    """The weights of a network: a `Weights` that has recorded their shapes."""
    return _asked(network, *inputs)[0]


def repeat(w: Weights, times: int, block: Block, x: Array) -> Array:
    """`times` equal blocks in a row, each with weights of its own; traced once."""
    if times < 1:
        return x
    shapes, last = w.repeated(times, block, x)
    if last is not None:
        w.shapes += shapes * times
        w.blocks += times
        return last

    @jax.jit
    def call(weights: list[Array], x: Array) -> Array:
        return block(Weights(weights), x)

    for _ in range(times):
        with jax.named_scope(f"onnx[block{w.blocks}]"):
            x = cast("Array", call([w(*shape) for shape in shapes], x))
        w.blocks += 1
    return x


def dense(w: Weights, x: Array, outs: int) -> Array:
    """Product with a matrix, and a bias."""
    return x @ w(x.shape[-1], outs) + w(outs)


def conv(w: Weights, x: Array, outs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> Array:
    """Square convolution whose padding keeps the field, and a bias (at inference the folded normalisation)."""
    kernel = min(kernel, x.shape[2] + 2 * (kernel // 2))
    pad = ((kernel - 1) // 2, kernel // 2)
    weights = w(outs, x.shape[1] // groups, kernel, kernel)
    y = lax.conv_general_dilated(x, weights, (stride, stride), (pad, pad), feature_group_count=groups)
    return y + w(1, outs, 1, 1)


def up_conv(w: Weights, x: Array, outs: int, field: int) -> Array:
    """Transposed 2x2 convolution that doubles the field, or nearly: to `field` pixels."""
    pads = ((1, field - 2 * x.shape[2] + 1),) * 2
    y = lax.conv_general_dilated(x, w(outs, x.shape[1], 2, 2), (1, 1), pads, lhs_dilation=(2, 2))
    return y + w(1, outs, 1, 1)


def along(w: Weights, x: Array, kernel: int) -> Array:
    """Depthwise convolution along the tokens of ``[batch, tokens, width]``."""
    y = lax.conv_general_dilated(
        x.swapaxes(1, 2), w(x.shape[2], 1, kernel), (1,), "SAME", feature_group_count=x.shape[2]
    )
    return y.swapaxes(1, 2) + w(x.shape[2])


def average(x: Array, axes: tuple[int, ...]) -> Array:
    """Mean over `axes`, kept with size 1; the library adds halves up in fp32 inside its reduction."""
    shape = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
    return lax.reduce_sum(x, axes).reshape(shape) * DATA(x.size**-1 * math.prod(shape))


def statistics(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Mean and inverse standard deviation over `axes`."""
    mean = average(x, axes)
    return mean, lax.rsqrt(average(jnp.square(x), axes) - jnp.square(mean) + DATA(1e-5))


def layer_norm(w: Weights, x: Array) -> Array:
    """Normalisation over the last axis."""
    mean, inverse = statistics(x, (x.ndim - 1,))
    return (x - mean) * inverse * w(x.shape[-1]) + w(x.shape[-1])


def attention(
    w: Weights, x: Array, heads: int, memory: Array | None = None, causal: bool = False, piece: int = 0,
    added: Callable[[Array], Array] | None = None,
) -> Array:  # fmt: skip
    """Attention of ``[batch, tokens, width]`` over itself, or over `memory`; in pieces of `piece` tokens if given.

    `added` is what the network does to the scores of all heads before their softmax.
    """
    batch, tokens, width = x.shape
    if memory is None:
        q, k, v = jnp.split(dense(w, x, 3 * width), 3, -1)
    else:
        q, (k, v) = dense(w, x, width), jnp.split(dense(w, memory, 2 * width), 2, -1)

    def apart(a: Array) -> Array:
        return a.reshape(batch, -1, heads, width // heads).swapaxes(1, 2)

    scale = DATA(1 / math.sqrt(width // heads))
    if 0 < piece < tokens and tokens % piece == 0:
        pieces = cast("Callable[..., Array]", jax.checkpoint(_in_pieces, static_argnums=3))
        mixed = pieces(apart(q) * scale, apart(k), apart(v), piece)
    else:
        scores = apart(q) @ apart(k).swapaxes(2, 3) * scale
        if added is not None:
            scores = added(scores)
        if causal:
            scores = scores + np.triu(np.full((tokens, tokens), -np.inf, np.float16), 1)
        mixed = softmax(scores) @ apart(v)
    return dense(w, mixed.swapaxes(1, 2).reshape(batch, tokens, width), width)


def _in_pieces(q: Array, k: Array, v: Array, size: int) -> Array:
    """Attention as "flash" forms compute it: one piece of the scores at a time, computed again for gradients."""

    def cut(a: Array) -> Array:
        return jnp.moveaxis(a.reshape(*a.shape[:2], -1, size, a.shape[3]), 2, 0)

    def row(queries: Array) -> Array:
        def add(sums: tuple[Array, ...], keys: tuple[Array, Array]) -> tuple[tuple[Array, ...], None]:
            mixed, most, total = sums
            scores = queries @ keys[0].swapaxes(2, 3)
            larger = jnp.maximum(most, scores.max(-1, keepdims=True))
            e, less = jnp.exp(scores - larger), jnp.exp(most - larger)
            total = total * less + lax.reduce_sum(e, (3,))[..., None]
            return (mixed * less + e @ keys[1], larger, total), None

        zeros = jnp.zeros_like(queries[..., :1])
        (mixed, _, total), _ = lax.scan(add, (jnp.zeros_like(queries), zeros + LOWEST, zeros), (cut(k), cut(v)))
        return mixed / total

    return jnp.moveaxis(cast("Array", lax.map(row, cut(q))), 0, 2).reshape(q.shape)


def softmax(x: Array) -> Array:
    """Stable softmax over the last axis."""
    e = jnp.exp(x - lax.stop_gradient(x.max(-1, keepdims=True)))
    return e / lax.reduce_sum(e, (e.ndim - 1,))[..., None]


@jax.custom_jvp
def relu(x: Array) -> Array:
    """Maximum with zero; as in the library, its gradient is one pass over the vectors, without a select by element."""
    return jnp.maximum(x, DATA(0))


@relu.defjvp
def _relu_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    y = relu(primals[0])
    return y, tangents[0] * jnp.sign(y)


def gelu(x: Array) -> Array:
    """The library's form, one vertex of about a logistic function and two products."""
    return x * jax.nn.sigmoid(DATA(1.702) * x)


def feed_forward(w: Weights, x: Array, hidden: int) -> Array:
    """Two dense layers with a nonlinearity."""
    return dense(w, gelu(dense(w, x, hidden)), x.shape[-1])


def max_pool(x: Array, kernel: int, stride: int) -> Array:
    """Maximum over square windows."""
    pad = (kernel - 1) // 2
    return lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 1, kernel, kernel), (1, 1, stride, stride), ((0, 0), (0, 0), (pad, pad), (pad, pad))
    )


def lstm(w: Weights, x: Array, width: int) -> Array:
    """A recurrent layer over ``[batch, frames, ins]``: one product for all inputs, one per step for the state."""
    batch = x.shape[0]
    inputs = dense(w, x, 4 * width).swapaxes(0, 1)
    state = w(width, 4 * width)

    def step(carry: tuple[Array, Array], now: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = carry
        parts = jnp.split(now + h @ state, 4, -1)
        c = jax.nn.sigmoid(parts[0]) * c + jax.nn.sigmoid(parts[1]) * jnp.tanh(parts[3])
        h = jax.nn.sigmoid(parts[2]) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((batch, width), DATA)
    return lax.scan(step, (zeros, zeros), inputs)[1].swapaxes(0, 1)
