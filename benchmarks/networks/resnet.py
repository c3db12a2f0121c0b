"""ResNet-18 and ResNet-50 (the torchvision architectures), for inference and for training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .layers import apply_bn, apply_conv, bn, classifier, conv, lay_out, lay_out_training
from .network import Author, Network

WIDTHS = (64, 128, 256, 512)


@dataclass(frozen=True)
class Depth:
    """Blocks per stage; bottleneck blocks widen their output four times."""

    name: str
    blocks: tuple[int, ...]
    bottleneck: bool


RESNET18 = Depth("resnet18", (2, 2, 2, 2), False)
RESNET50 = Depth("resnet50", (3, 4, 6, 3), True)


def resnet(depth: Depth, batch: int, training: bool = False, side: int = 224) -> Network:
    """Batch normalisation uses batch statistics when `training`."""
    a = Author()
    norm = partial(bn, a, training=training)
    x = a.input([batch, 3, side, side])
    w = a.weight("stem", 64, 3, 7, 7, scale=0.1)
    h = a.onnx.relu([norm(a.onnx.conv([x, w], pads=[3] * 4, strides=[2, 2]), "stem.bn", 64)])
    h = a.onnx.maxpool([h], 1, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)[0]
    n = 64
    for name, width, stride in _blocks(depth):
        h, n = _block(a, norm, depth, h, name, n, width, stride)
    logits = classifier(a, a.onnx.globalaveragepool([h]), n, 1000)
    shape = [batch, 3, side, side]
    if training:
        return a.finish(depth.name, shape, logits, lay_out_training, None, partial(_forward_train, depth))
    return a.finish(depth.name, shape, logits, lay_out, partial(forward, depth))


resnet18 = partial(resnet, RESNET18)
resnet50 = partial(resnet, RESNET50)


def _blocks(depth: Depth):
    for s, (count, width) in enumerate(zip(depth.blocks, WIDTHS, strict=True)):
        for b in range(count):
            yield f"{s}.{b}", width, 2 if s and b == 0 else 1


def _convolutions(depth: Depth, n: int, width: int, stride: int):
    """Channels in and out, kernel and stride of the convolutions of one block."""
    if depth.bottleneck:
        return ((n, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
    return ((n, width, 3, stride), (width, width, 3, 1))


def _block(
    a: Author, norm: Callable[[str, str, int], str], depth: Depth, x: str, name: str, n: int, width: int, stride: int
) -> tuple[str, int]:
    h, m = x, n
    layers = _convolutions(depth, n, width, stride)
    for i, (fan_in, m, k, step) in enumerate(layers):
        h = norm(conv(a, h, f"{name}.{i}", fan_in, m, k, step), f"{name}.{i}.bn", m)
        h = a.onnx.relu([h]) if i < len(layers) - 1 else h
    if stride != 1 or n != m:
        x = norm(conv(a, x, f"{name}.down", n, m, 1, stride), f"{name}.down.bn", m)
    return a.onnx.relu([a.onnx.add([h, x])]), m


def forward(depth: Depth, p: Mapping[str, Any], x: jax.Array):
    """The hand-written inference form on laid-out weights."""
    return _apply(depth, p, x, lambda h, name: apply_bn(h, p, name))


def _forward_train(depth: Depth, p: Mapping[str, Any], x: jax.Array):
    statistics: dict[str, jax.Array] = {}

    def norm(h: jax.Array, name: str):
        mean, variance = h.mean((0, 1, 2)), h.var((0, 1, 2))
        statistics[f"{name}.m"] = 0.9 * p[f"{name}.m"] + 0.1 * mean
        statistics[f"{name}.v"] = 0.9 * p[f"{name}.v"] + 0.1 * variance
        return (h - mean) * (lax.rsqrt(variance + 1e-5) * p[f"{name}.g"]) + p[f"{name}.b"]

    return _apply(depth, p, x, norm), statistics


def _apply(depth: Depth, p: Mapping[str, Any], x: jax.Array, norm: Callable[[jax.Array, str], jax.Array]):
    x = jax.nn.relu(norm(apply_conv(x.transpose(0, 2, 3, 1), p["stem"], 2), "stem.bn"))
    pads = ((0, 0), (1, 1), (1, 1), (0, 0))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pads)
    for name, width, stride in _blocks(depth):
        layers = _convolutions(depth, x.shape[-1], width, stride)
        h = x
        for i, (_, _, _, step) in enumerate(layers):
            h = norm(apply_conv(h, p[f"{name}.{i}"], step), f"{name}.{i}.bn")
            h = jax.nn.relu(h) if i < len(layers) - 1 else h
        if f"{name}.down" in p:
            x = norm(apply_conv(x, p[f"{name}.down"], stride), f"{name}.down.bn")
        x = jax.nn.relu(h + x)
    return x.mean((1, 2)) @ p["fc.w"] + p["fc.b"]
