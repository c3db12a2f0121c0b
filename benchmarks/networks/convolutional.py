"""LeNet and MobileNetV2: NCHW as ONNX has it, channels-last in the hand-written form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .layers import apply_bn, apply_conv, bn, classifier, conv, depthwise, lay_out
from .network import Author, Network


def lenet(batch: int) -> Network:
    """Two 5x5 convolutions with max-pooling and two dense layers on 28x28."""
    a = Author()
    h = a.input([batch, 1, 28, 28])
    for i, (n, m) in enumerate(((1, 32), (32, 64))):
        w, b = a.weight(f"c{i}.w", m, n, 5, 5), a.weight(f"c{i}.b", m, scale=0.1)
        h = a.onnx.relu([a.onnx.conv([h, w, b], pads=[2] * 4, strides=[1, 1])])
        h = a.onnx.maxpool([h], 1, kernel_shape=[2, 2], strides=[2, 2])[0]
    flat = a.onnx.flatten([h])
    h = a.onnx.relu([a.onnx.gemm([flat, a.weight("d.w", 512, 3136), a.weight("d.b", 512, scale=0.1)], transB=1)])
    logits = a.onnx.gemm([h, a.weight("fc.w", 10, 512), a.weight("fc.b", 10, scale=0.1)], transB=1)
    return a.finish("lenet", [batch, 1, 28, 28], logits, lay_out, lenet_forward)


def lenet_forward(p: Mapping[str, Any], x: jax.Array):
    """LeNet by hand, on laid-out weights."""
    x = x.transpose(0, 2, 3, 1)
    for i in range(2):
        x = jax.nn.relu(apply_conv(x, p[f"c{i}.w"], 1) + p[f"c{i}.b"])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1) @ p["d.w"] + p["d.b"])
    return x @ p["fc.w"] + p["fc.b"]


BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def _plan():
    n = 32
    for t, m, count, stride in BLOCKS:
        for i in range(count):
            yield n, n * t, m, stride if i == 0 else 1
            n = m


def mobilenetv2(batch: int) -> Network:
    """The torchvision architecture on 224x224, relu6 as Clip, inference form of batch normalisation."""
    a = Author()
    x = a.input([batch, 3, 224, 224])
    low, high = a.constant(0.0, np.float32), a.constant(6.0, np.float32)

    def unit(x: str, name: str, n: int, m: int, k: int, stride: int = 1, group: int = 1, act: bool = True) -> str:
        y = bn(a, conv(a, x, name, n, m, k, stride, group), f"{name}.bn", m)
        return a.onnx.clip([y, low, high]) if act else y

    h = unit(x, "stem", 3, 32, 3, 2)
    for i, (n, wide, m, stride) in enumerate(_plan()):
        y = unit(h, f"{i}.up", n, wide, 1) if wide != n else h
        y = unit(y, f"{i}.dw", wide, wide, 3, stride, wide)
        y = unit(y, f"{i}.down", wide, m, 1, act=False)
        h = a.onnx.add([h, y]) if stride == 1 and n == m else y
    h = unit(h, "head", 320, 1280, 1)
    logits = classifier(a, a.onnx.globalaveragepool([h]), 1280, 1000)
    return a.finish("mobilenetv2", [batch, 3, 224, 224], logits, lay_out, _mobilenet_forward)


def _mobilenet_forward(p: Mapping[str, Any], x: jax.Array):
    def unit(x: jax.Array, name: str, stride: int = 1, act: bool = True):
        w = p[name]
        y = depthwise(x, w, stride) if ".dw" in name else apply_conv(x, w, stride)
        y = apply_bn(y, p, f"{name}.bn")
        return jnp.clip(y, 0, 6) if act else y

    h = unit(x.transpose(0, 2, 3, 1), "stem", 2)
    for i, (n, wide, m, stride) in enumerate(_plan()):
        y = unit(h, f"{i}.up") if wide != n else h
        y = unit(unit(y, f"{i}.dw", stride), f"{i}.down", act=False)
        h = h + y if stride == 1 and n == m else y
    return unit(h, "head").mean((1, 2)) @ p["fc.w"] + p["fc.b"]
