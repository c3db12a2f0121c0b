"""LeNet, ResNet-18 and MobileNetV2: NCHW as ONNX has it, channels-last in the hand-written form."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .network import Author, Network, Params

_LAYOUT = ("NHWC", "HWIO", "NHWC")


def _conv(a: Author, x: str, name: str, n: int, m: int, k: int, stride: int = 1, group: int = 1) -> str:
    w = a.weight(name, m, n // group, k, k, scale=(2.0 / (k * k * n // group)) ** 0.5)
    return a.onnx.conv([x, w], pads=[k // 2] * 4, strides=[stride] * 2, group=group)


def _bn(a: Author, x: str, name: str, m: int, training: bool = False) -> str:
    ones, zeros = np.ones(m), np.zeros(m)
    parts = [a.add(f"{name}.{part}", v) for part, v in zip("gbmv", (ones, zeros, zeros, ones), strict=True)]
    return a.onnx.batchnormalization([x, *parts], 5 if training else 1)[0]


def _classifier(a: Author, x: str, n: int, m: int) -> str:
    flat = a.onnx.flatten([x])
    return a.onnx.gemm([flat, a.weight("fc.w", m, n), a.weight("fc.b", m, scale=0.1)], transB=1)


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
    return a.finish("lenet", [batch, 1, 28, 28], logits, _lay_out, _lenet_forward)


def _lenet_forward(p, x):
    x = x.transpose(0, 2, 3, 1)
    for i in range(2):
        x = jax.nn.relu(_apply_conv(x, p[f"c{i}.w"], 1) + p[f"c{i}.b"])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1) @ p["d.w"] + p["d.b"])
    return x @ p["fc.w"] + p["fc.b"]


STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))


def resnet18(batch: int, training: bool = False, side: int = 224) -> Network:
    """The torchvision architecture; batch normalisation with batch statistics when `training`."""
    a = Author()
    x = a.input([batch, 3, side, side])
    w = a.weight("stem", 64, 3, 7, 7, scale=0.1)
    h = a.onnx.relu([_bn(a, a.onnx.conv([x, w], pads=[3] * 4, strides=[2, 2]), "stem.bn", 64, training)])
    h = a.onnx.maxpool([h], 1, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)[0]
    n = 64
    for s, (m, stride) in enumerate(STAGES):
        for b in range(2):
            h = _basic_block(a, h, f"{s}.{b}", n, m, stride if b == 0 else 1, training)
            n = m
    logits = _classifier(a, a.onnx.globalaveragepool([h]), 512, 1000)
    shape = [batch, 3, side, side]
    if training:
        return a.finish("resnet18", shape, logits, _lay_out_training, None, _resnet_train)
    return a.finish("resnet18", shape, logits, _lay_out, _resnet_forward)


def _basic_block(a: Author, x: str, name: str, n: int, m: int, stride: int, training: bool) -> str:
    h = a.onnx.relu([_bn(a, _conv(a, x, f"{name}.1", n, m, 3, stride), f"{name}.1.bn", m, training)])
    h = _bn(a, _conv(a, h, f"{name}.2", m, m, 3), f"{name}.2.bn", m, training)
    if stride != 1 or n != m:
        w = a.weight(f"{name}.down", m, n, 1, 1)
        x = _bn(a, a.onnx.conv([x, w], strides=[stride] * 2, pads=[0] * 4), f"{name}.down.bn", m, training)
    return a.onnx.relu([a.onnx.add([h, x])])


def _resnet_forward(p, x):
    return _resnet(p, x, lambda h, name: _apply_bn(h, p, name))


def _resnet_train(p, x):
    statistics = {}

    def bn(h, name):
        mean, variance = h.mean((0, 1, 2)), h.var((0, 1, 2))
        statistics[f"{name}.m"] = 0.9 * p[f"{name}.m"] + 0.1 * mean
        statistics[f"{name}.v"] = 0.9 * p[f"{name}.v"] + 0.1 * variance
        return (h - mean) * (lax.rsqrt(variance + 1e-5) * p[f"{name}.g"]) + p[f"{name}.b"]

    return _resnet(p, x, bn), statistics


def _resnet(p, x, bn):
    x = jax.nn.relu(bn(_apply_conv(x.transpose(0, 2, 3, 1), p["stem"], 2), "stem.bn"))
    pads = ((0, 0), (1, 1), (1, 1), (0, 0))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pads)
    for s, (_, stride) in enumerate(STAGES):
        for b in range(2):
            x = _apply_block(p, x, f"{s}.{b}", stride if b == 0 else 1, bn)
    return x.mean((1, 2)) @ p["fc.w"] + p["fc.b"]


def _apply_block(p, x, name, stride, bn):
    h = jax.nn.relu(bn(_apply_conv(x, p[f"{name}.1"], stride), f"{name}.1.bn"))
    h = bn(_apply_conv(h, p[f"{name}.2"], 1), f"{name}.2.bn")
    if f"{name}.down" in p:
        x = bn(_apply_conv(x, p[f"{name}.down"], stride), f"{name}.down.bn")
    return jax.nn.relu(h + x)


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
        y = _bn(a, _conv(a, x, name, n, m, k, stride, group), f"{name}.bn", m)
        return a.onnx.clip([y, low, high]) if act else y

    h = unit(x, "stem", 3, 32, 3, 2)
    for i, (n, wide, m, stride) in enumerate(_plan()):
        y = unit(h, f"{i}.up", n, wide, 1) if wide != n else h
        y = unit(y, f"{i}.dw", wide, wide, 3, stride, wide)
        y = unit(y, f"{i}.down", wide, m, 1, act=False)
        h = a.onnx.add([h, y]) if stride == 1 and n == m else y
    h = unit(h, "head", 320, 1280, 1)
    logits = _classifier(a, a.onnx.globalaveragepool([h]), 1280, 1000)
    return a.finish("mobilenetv2", [batch, 3, 224, 224], logits, _lay_out, _mobilenet_forward)


def _mobilenet_forward(p, x):
    def unit(x, name, stride=1, act=True):
        w = p[name]
        y = _depthwise(x, w, stride) if ".dw" in name else _apply_conv(x, w, stride)
        y = _apply_bn(y, p, f"{name}.bn")
        return jnp.clip(y, 0, 6) if act else y

    h = unit(x.transpose(0, 2, 3, 1), "stem", 2)
    for i, (n, wide, m, stride) in enumerate(_plan()):
        y = unit(h, f"{i}.up") if wide != n else h
        y = unit(unit(y, f"{i}.dw", stride), f"{i}.down", act=False)
        h = h + y if stride == 1 and n == m else y
    return unit(h, "head").mean((1, 2)) @ p["fc.w"] + p["fc.b"]


def _lay_out_training(params: Params):
    """Kernels OIHW -> HWIO, dense weights transposed."""
    turned = {name: v.transpose(2, 3, 1, 0) if v.ndim == 4 else v.T for name, v in params.items()}
    return {k: jnp.asarray(np.ascontiguousarray(v)) for k, v in turned.items()}


def _lay_out(params: Params):
    """The same, with batch normalisation as scale and shift."""
    laid = {name: v.transpose(2, 3, 1, 0) if v.ndim == 4 else v.T for name, v in params.items()}
    for name in [n.removesuffix(".g") for n in params if n.endswith(".g")]:
        scale = params[f"{name}.g"] / np.sqrt(params[f"{name}.v"] + 1e-5)
        laid[f"{name}.scale"], laid[f"{name}.shift"] = scale, params[f"{name}.b"] - params[f"{name}.m"] * scale
        for part in "gbmv":
            del laid[f"{name}.{part}"]
    return {k: jnp.asarray(np.ascontiguousarray(v)) for k, v in laid.items()}


def _apply_bn(x, p, name):
    return x * p[f"{name}.scale"] + p[f"{name}.shift"]


def _apply_conv(x, w, stride):
    k = w.shape[0]
    if k == 1:
        return x[:, ::stride, ::stride] @ w[0, 0]
    return lax.conv_general_dilated(x, w, (stride, stride), [(k // 2, k // 2)] * 2, dimension_numbers=_LAYOUT)


def _depthwise(x, w, stride):
    """3x3 depthwise convolution as nine shifted multiply-adds."""
    _, height, width, _ = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = (x[:, i : i + height : stride, j : j + width : stride] * w[i, j, 0] for i in range(3) for j in range(3))
    return sum(shifted)
