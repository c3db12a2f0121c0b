"""Published networks as JAX functions of their weights and inputs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_model.published import nn
from ipu_model.published.nn import Array, Weights

VOCABULARY = 30522
CLIP_TOKENS = 77
HEADS = 8  # of latent diffusion
Shape = jax.ShapeDtypeStruct


@dataclass(frozen=True, eq=False)
class Network:
    """One batch of a network."""

    kind: str  # which fitted stretch applies (``"transformer"``, ``"cnn"``, ``"window"``, ``"table"``, ...)
    forward: Callable[..., Array]  # ``forward(weights, *inputs)``
    inputs: tuple[Any, ...]
    items: float  # items in the batch
    # kind of data in a request (``"text"``, ``"image"``, ``"speech"``, ``"table"``, ...), which decides how services
    # queue requests
    served: str = "text"


def _half(*shape: int) -> Any:
    return Shape(shape, nn.DATA)


def _tokens(*shape: int) -> Any:
    return Shape(shape, np.int32)


def transformer_layer(
    w: Weights, x: Array, heads: int, hidden: int, causal: bool = False, piece: int = 0
) -> Array:  # fmt: skip
    """Attention and feed-forward, each with a residual and a normalisation."""
    x = nn.layer_norm(w, x + nn.attention(w, x, heads, causal=causal, piece=piece))
    return nn.layer_norm(w, x + nn.feed_forward(w, x, hidden))


@functools.cache
def encoder(
    layers: int, width: int, hidden: int, tokens: int, batch: int, *, heads: int = 0, kind: str = "transformer",
    served: str = "text", patch: int = 0, vocabulary: int = VOCABULARY, predicted: float = 0.0, causal: bool = False,
    classes: int = 0, piece: int = 0,
) -> Network:  # fmt: skip
    """A stack of transformer layers over ``batch x tokens`` tokens, which see those before them only if `causal`.

    Tokens are words, or image patches of side `patch`; `predicted` is the share of tokens whose word is predicted, a
    product with the vocabulary. `classes` are the scores of an image, or of each token where no words are predicted; 0:
    a thousand, or two (ends of an answer). `piece` is the number of tokens whose attention is computed at a time; 0 for
    all.
    """
    heads, tokens = heads or max(1, width // 64), max(1, tokens)

    def forward(w: Weights, x: Array) -> Array:
        x = nn.dense(w, x, width) if patch else jnp.take(w(vocabulary, width), x, axis=0, mode="clip")
        x = nn.layer_norm(w, x + w(tokens, width))
        x = nn.repeat(w, layers, lambda w, x: transformer_layer(w, x, heads, hidden, causal, piece), x)
        if patch:
            return nn.dense(w, x[:, 0], classes or 1000)
        count = math.ceil(tokens * predicted)
        return nn.dense(w, x[:, :count], vocabulary) if count else nn.dense(w, x, classes or 2)

    inputs = _half(batch, tokens, 3 * patch**2) if patch else _tokens(batch, tokens)
    return Network(kind, forward, (inputs,), batch, served)


@functools.cache
def mixer(batch: int, layers: int, width: int, across: int, hidden: int, tokens: int, patch: int) -> Network:
    """MLP-Mixer: a feed-forward across the patches of each channel, then one across the channels of each patch."""

    def layer(w: Weights, x: Array) -> Array:
        x = x + nn.feed_forward(w, nn.layer_norm(w, x).swapaxes(1, 2), across).swapaxes(1, 2)
        return x + nn.feed_forward(w, nn.layer_norm(w, x), hidden)

    def forward(w: Weights, x: Array) -> Array:
        x = nn.layer_norm(w, nn.repeat(w, layers, layer, nn.dense(w, x, width)))
        return nn.dense(w, nn.average(x, (1,))[:, 0], 1000)

    return Network("transformer", forward, (_half(batch, tokens, 3 * patch**2),), batch, "vision")


@functools.cache
def translation(layers: int, width: int, hidden: int, tokens: int, batch: int) -> Network:
    """An encoder, and a decoder of as many layers with attention to the encoder's result."""
    heads = max(1, width // 64)

    def decoder_layer(w: Weights, both: Array) -> Array:
        x, memory = both[0], both[1]
        x = nn.layer_norm(w, x + nn.attention(w, x, heads, causal=True))
        x = nn.layer_norm(w, x + nn.attention(w, x, heads, memory))
        return jnp.stack([nn.layer_norm(w, x + nn.feed_forward(w, x, hidden)), memory])

    def forward(w: Weights, x: Array) -> Array:
        table = w(VOCABULARY, width)
        words = jnp.take(table, x, axis=0, mode="clip") + w(tokens, width)
        memory = nn.repeat(w, layers, lambda w, x: transformer_layer(w, x, heads, hidden), words)
        return nn.dense(w, nn.repeat(w, layers, decoder_layer, jnp.stack([words, memory]))[0], VOCABULARY)

    return Network("transformer", forward, (_tokens(batch, tokens),), batch)


@functools.cache
def clip_texts(batch: int, tokens: int) -> Network:
    """CLIP's tower for texts."""
    return encoder(12, 512, 2048, tokens, batch, vocabulary=49408, causal=True, classes=512)


@functools.cache
def contrastive(batch: int, image: int, patch: int) -> Network:
    """CLIP of base size as released: a tower for images, one for texts, and their similarities."""
    towers = (
        encoder(12, 768, 3072, (image // max(1, patch)) ** 2 + 1, batch, patch=patch, classes=512),
        clip_texts(batch, CLIP_TOKENS),
    )

    def forward(w: Weights, *inputs: Array) -> Array:
        pictures, texts = (tower.forward(w, x) for tower, x in zip(towers, inputs, strict=True))
        return pictures @ texts[:, -1].T

    inputs = tuple(x for tower in towers for x in tower.inputs)
    return Network("transformer", forward, inputs, batch, "vision")


@functools.cache
def of_parameters(parameters: float, tokens: int, batch: int) -> Network:
    """A stack of transformer layers with a given number of parameters, for networks known only by their size.

    Twelve times the squared width in each layer, and a layer for every 64 channels of width.
    """
    width = max(64, round((parameters * 64 / 12) ** (1 / 3) / 64) * 64)
    layers = max(1, round(parameters / (12 * width**2)))
    return encoder(layers, width, 4 * width, tokens, batch, causal=True)


@functools.cache
def resnet(batch: int, image: int = 224, depths: tuple[int, ...] = (3, 4, 6, 3), groups: int = 1, inner: int = 1,
           basic: bool = False) -> Network:  # fmt: skip
    """ResNet v1.5; `inner` widens the middle of its bottlenecks, `groups` splits it (ResNeXt), `basic` has none."""
    grow = 1 if basic else 4

    def block(w: Weights, x: Array, width: int, stride: int) -> Array:
        if basic:
            y = nn.relu(nn.conv(w, x, width, 3, stride))
            y = nn.conv(w, y, width, 3)
        else:
            y = nn.relu(nn.conv(w, x, width * inner))
            y = nn.relu(nn.conv(w, y, width * inner, 3, stride, groups))
            y = nn.conv(w, y, 4 * width)
        if y.shape != x.shape:
            x = nn.conv(w, x, grow * width, 1, stride)
        return nn.relu(x + y)

    def forward(w: Weights, x: Array) -> Array:
        x = nn.max_pool(nn.relu(nn.conv(w, x, 64, 7, 2)), 3, 2)
        for stage, (width, blocks) in enumerate(zip((64, 128, 256, 512), depths, strict=True)):
            first = functools.partial(block, width=width, stride=1 if stage == 0 else 2)
            x = nn.repeat(w, 1, first, x)
            x = nn.repeat(w, blocks - 1, functools.partial(block, width=width, stride=1), x)
        return nn.dense(w, nn.average(x, (2, 3))[:, :, 0, 0], 1000)

    return Network("cnn", forward, (_half(batch, 3, image, image),), batch, "image")


@functools.cache
def plain_stages(batch: int, image: int, layers: Sequence[tuple[int, int, int, int]], classes: int = 1000) -> Network:
    """A plain stack of square convolutions: rows ``(times, kernel, channels, stride)``, the stride on the first."""

    def forward(w: Weights, x: Array) -> Array:
        for times, kernel, outs, stride in layers:
            x = nn.relu(nn.conv(w, x, outs, kernel, stride))
            x = nn.repeat(w, times - 1, lambda w, x, k=kernel, n=outs: nn.relu(nn.conv(w, x, n, k)), x)
        return nn.dense(w, nn.average(x, (2, 3))[:, :, 0, 0], classes)

    return Network("cnn", forward, (_half(batch, 3, image, image),), batch, "image")


# Kernel, expansion, channels, layers and stride of the stages of EfficientNet-B0.
MOBILE = ((3, 1, 16, 1, 1), (3, 6, 24, 2, 2), (5, 6, 40, 2, 2), (3, 6, 80, 3, 2), (5, 6, 112, 3, 1),
          (5, 6, 192, 4, 2), (3, 6, 320, 1, 1))  # fmt: skip


@functools.cache
def efficientnet(batch: int, image: int, wide: float, deep: float, group: int = 1) -> Network:
    """Inverted bottlenecks whose middle convolution handles `group` channels together (1: depthwise)."""

    def channels(n: int) -> int:
        return max(8, int(n * wide + 4) // 8 * 8)

    def block(w: Weights, x: Array, kernel: int, expansion: int, outs: int, stride: int) -> Array:
        middle = math.ceil(x.shape[1] * expansion / group) * group
        y = jax.nn.silu(nn.conv(w, x, middle)) if expansion > 1 else x
        y = jax.nn.silu(nn.conv(w, y, y.shape[1], kernel, stride, max(1, y.shape[1] // group)))
        share = nn.dense(
            w, jax.nn.silu(nn.dense(w, nn.average(y, (2, 3))[:, :, 0, 0], max(1, x.shape[1] // 4))), y.shape[1]
        )
        y = nn.conv(w, y * jax.nn.sigmoid(share)[:, :, None, None], outs)
        return x + y if x.shape == y.shape else y

    def forward(w: Weights, x: Array) -> Array:
        x = jax.nn.silu(nn.conv(w, x, channels(32), 3, 2))
        for kernel, expansion, outs, layers, stride in MOBILE:
            part = functools.partial(block, kernel=kernel, expansion=expansion, outs=channels(outs))
            x = nn.repeat(w, 1, functools.partial(part, stride=stride), x)
            x = nn.repeat(w, math.ceil(layers * deep) - 1, functools.partial(part, stride=1), x)
        x = jax.nn.silu(nn.conv(w, x, channels(1280)))
        return nn.dense(w, nn.average(x, (2, 3))[:, :, 0, 0], 1000)

    return Network("grouped_cnn", forward, (_half(batch, 3, image, image),), batch, "image")


@functools.cache
def recurrent(batch: int, frames: int, layers: int, ins: int, width: int) -> Network:
    """Stacked recurrent layers."""

    def forward(w: Weights, x: Array) -> Array:
        for _ in range(layers):
            x = nn.lstm(w, x, width)
        return x

    return Network("recurrent", forward, (_half(batch, frames, ins),), batch, "speech")


@functools.cache
def unet(batch: int, image: int) -> Network:
    """U-Net: four levels down and up again, two 3x3 convolutions each."""

    def pair(w: Weights, x: Array, outs: int) -> Array:
        for _ in range(2):
            x = nn.relu(nn.conv(w, x, outs, 3))
        return x

    def forward(w: Weights, x: Array) -> Array:
        kept: list[Array] = []
        for level in range(4):
            x = pair(w, x, 64 * 2**level)
            kept.append(x)
            x = nn.max_pool(x, 2, 2) if x.shape[2] > 1 else x
        x = pair(w, x, 1024)
        for level in reversed(range(4)):
            wide = nn.up_conv(w, x, 64 * 2**level, kept[level].shape[2])
            x = pair(w, jnp.concatenate([kept[level], wide], 1), 64 * 2**level)
        return nn.conv(w, x, 2)

    return Network("cnn", forward, (_half(batch, 3, image, image),), batch, "image")


@functools.cache
def diffusion(batch: int, side: int, times: int = 1) -> Network:
    """The denoising network of latent diffusion on fields of `side` by `side`, evaluated `times` times for an item.

    Four levels of 320, 640, 1280 and 1280 channels, two residual blocks each on the way down and three on the way up;
    all levels but the last attend to their own pixels and to 77 words.
    """
    levels = (320, 640, 1280, 1280)

    def block(w: Weights, x: Array, outs: int, words: Array | None) -> Array:
        y = nn.conv(w, jax.nn.silu(nn.conv(w, jax.nn.silu(x), outs, 3)), outs, 3)
        x = y + (x if x.shape == y.shape else nn.conv(w, x, outs))
        if words is None:
            return x
        tokens = x.reshape(batch, outs, -1).swapaxes(1, 2)
        tokens = tokens + nn.attention(w, nn.layer_norm(w, tokens), HEADS)
        tokens = tokens + nn.attention(w, nn.layer_norm(w, tokens), HEADS, nn.dense(w, words, outs))
        tokens = tokens + nn.feed_forward(w, nn.layer_norm(w, tokens), 6 * outs)  # 4, and 4 of gates before the first
        return x + tokens.swapaxes(1, 2).reshape(x.shape)

    def forward(w: Weights, x: Array, words: Array) -> Array:
        def step(x: Array, outs: int, attends: bool) -> Array:
            return nn.repeat(w, 1, lambda w, x: block(w, x, outs, words if attends else None), x)

        x = nn.conv(w, x, levels[0], 3)
        kept = [x]
        for level, outs in enumerate(levels):
            for _ in range(2):
                x = step(x, outs, level < 3)
                kept.append(x)
            if level < 3:
                x = nn.conv(w, x, outs, 3, 2)
                kept.append(x)
        x = step(step(x, levels[-1], True), levels[-1], False)
        for level, outs in reversed(list(enumerate(levels))):
            for _ in range(3):
                x = step(jnp.concatenate([x, kept.pop()], 1), outs, level < 3)
            if level:
                rows, columns = kept[-1].shape[2:]
                x = nn.conv(w, jnp.repeat(jnp.repeat(x, 2, 2), 2, 3)[:, :, :rows, :columns], outs, 3)
        return nn.conv(w, x, 4, 3)

    inputs = (_half(batch, 4, side, side), _half(batch, CLIP_TOKENS, 768))
    return Network("cnn", forward, inputs, batch / times, "latent")


def _apart_after_moving(side: int, window: int) -> np.ndarray:
    """Which tokens of each moved window of a field do not see each other: ``[windows, tokens, tokens]``."""
    edge = np.zeros(side, int)
    edge[-window:], edge[-(window // 2) :] = 1, 2
    parts = (3 * edge[:, None] + edge).reshape(side // window, window, side // window, window)
    parts = parts.swapaxes(1, 2).reshape(-1, window**2)
    return np.where(parts[:, :, None] == parts[:, None], 0, -100).astype(np.float16)


@functools.cache
def swin(batch: int, width: int, depths: tuple[int, ...], image: int = 224, window: int = 7) -> Network:
    """Swin transformer: attention in windows, every second layer with the windows moved; width doubles by stage.

    Scores get a bias for the distance of their tokens, a constant of inference, and in moved windows a mask of what
    came round from the other side.
    """

    def layer(w: Weights, x: Array, side: int, moved: bool) -> Array:
        wide = x.shape[-1]
        count = side // window
        y = jnp.roll(x, (-(window // 2),) * 2, (1, 2)) if moved else x
        y = y.reshape(batch, count, window, count, window, wide).swapaxes(2, 3)
        heads, tokens = max(1, wide // 32), window**2

        def added(scores: Array) -> Array:
            scores = scores + np.zeros((heads, tokens, tokens), np.float16)
            if not moved:
                return scores
            mask = _apart_after_moving(side, window)[:, None]
            return (scores.reshape(batch, -1, *scores.shape[1:]) + mask).reshape(scores.shape)

        y = nn.attention(w, nn.layer_norm(w, y.reshape(-1, tokens, wide)), heads, added=added)
        y = y.reshape(batch, count, count, window, window, wide).swapaxes(2, 3).reshape(x.shape)
        x = x + (jnp.roll(y, (window // 2,) * 2, (1, 2)) if moved else y)
        return x + nn.feed_forward(w, nn.layer_norm(w, x), 4 * wide)

    def pair(w: Weights, x: Array, side: int) -> Array:
        x = layer(w, x, side, moved=False)
        return layer(w, x, side, moved=side > window)

    def forward(w: Weights, x: Array) -> Array:
        x = nn.layer_norm(w, nn.dense(w, x, width))
        for stage, layers in enumerate(depths):
            side = x.shape[1]
            x = nn.repeat(w, layers // 2, functools.partial(pair, side=side), x)
            if stage + 1 < len(depths):
                x = x.reshape(batch, side // 2, 2, side // 2, 2, -1).swapaxes(2, 3)
                x = nn.layer_norm(w, x.reshape(batch, side // 2, side // 2, -1)) @ w(x.shape[-1] * 4, x.shape[-1] * 2)
        return nn.dense(w, nn.average(x, (1, 2))[:, 0, 0], 1000)

    side = max(1, round(image / 4 / window / 8)) * window * 8
    return Network("window", forward, (_half(batch, side, side, 48),), batch, "vision")


@functools.cache
def conformer(batch: int, frames: int, layers: int, width: int, hidden: int) -> Network:
    """Conformer encoder: two half feed-forwards, attention and a depthwise convolution of 31 taps per layer."""
    tokens = max(1, frames // 4)

    def layer(w: Weights, x: Array) -> Array:
        x = x + nn.DATA(0.5) * nn.feed_forward(w, nn.layer_norm(w, x), hidden)
        x = x + nn.attention(w, nn.layer_norm(w, x), max(1, width // 64))
        y, gate = jnp.split(nn.dense(w, nn.layer_norm(w, x), 2 * width), 2, -1)
        y = nn.layer_norm(w, nn.along(w, y * jax.nn.sigmoid(gate), 31))
        x = x + nn.dense(w, jax.nn.silu(y), width)
        x = x + nn.DATA(0.5) * nn.feed_forward(w, nn.layer_norm(w, x), hidden)
        return nn.layer_norm(w, x)

    def forward(w: Weights, x: Array) -> Array:
        x = nn.relu(nn.conv(w, x, width, 3, 2))
        x = nn.relu(nn.conv(w, x, width, 3, 2)).swapaxes(1, 2)
        x = nn.dense(w, x.reshape(batch, x.shape[1], -1), width)
        return nn.dense(w, nn.repeat(w, layers, layer, x), 2)

    return Network("conformer", forward, (_half(batch, 1, 4 * tokens, 80),), batch, "speech")


@functools.cache
def wide_and_deep(batch: int) -> Network:
    """Look-ups and a tower of three layers; the host feeds it."""
    fields, width, rows = 26, 16, 1000

    def forward(w: Weights, x: Array) -> Array:
        found = jnp.take(w(rows, width), x, axis=0, mode="clip").reshape(batch, -1)
        for outs in (1024, 512, 256):
            found = nn.relu(nn.dense(w, found, outs))
        return jax.nn.sigmoid(nn.dense(w, found, 1))

    return Network("table", forward, (_tokens(batch, fields),), batch, "table")


@functools.cache
def mlp(batch: int, sizes: tuple[int, ...], kind: str = "mlp", samples: int = 1) -> Network:
    """Dense layers with nonlinearities; each item is `samples` rows."""

    def forward(w: Weights, x: Array) -> Array:
        for outs in sizes[1:-1]:
            x = nn.relu(nn.dense(w, x, outs))
        return nn.dense(w, x, sizes[-1])

    return Network(kind, forward, (_half(batch * samples, sizes[0]),), batch, "table")


@functools.cache
def graph(layers: int, width: int, nodes: int, batch: int) -> Network:
    """Message passing along about two edges per node, then attention over the graph, in every layer."""
    edges = 2 * nodes

    def forward(w: Weights, x: Array, ends: Array) -> Array:
        def layer(w: Weights, x: Array) -> Array:
            flat = x.reshape(-1, width)
            message = nn.feed_forward(w, jnp.take(flat, ends[0], axis=0, mode="clip"), 4 * width)
            met = jnp.zeros_like(flat).at[ends[1]].add(message, mode="promise_in_bounds")
            return transformer_layer(w, x + met.reshape(x.shape), max(1, width // 8), 4 * width)

        return nn.repeat(w, layers, layer, nn.dense(w, x, width))

    return Network("graph", forward, (_half(batch, nodes, 64), _tokens(2, batch * edges)), batch, "table")
