"""Layers shared by the convolutional networks, in both forms: NCHW nodes and channels-last functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from popart_jax.ops.kernels import platform

from .network import Author, Params

_LAYOUT = ("NHWC", "HWIO", "NHWC")


def conv(a: Author, x: str, name: str, n: int, m: int, k: int, stride: int = 1, group: int = 1) -> str:
    """Append a convolution with weights of its own."""
    w = a.weight(name, m, n // group, k, k, scale=(2.0 / (k * k * n // group)) ** 0.5)
    return a.onnx.conv([x, w], pads=[k // 2] * 4, strides=[stride] * 2, group=group)


def bn(a: Author, x: str, name: str, m: int, training: bool = False) -> str:
    """Append a batch normalisation with fresh statistics."""
    ones, zeros = np.ones(m), np.zeros(m)
    parts = [a.add(f"{name}.{part}", v) for part, v in zip("gbmv", (ones, zeros, zeros, ones), strict=True)]
    return a.onnx.batchnormalization([x, *parts], 5 if training else 1)[0]


def classifier(a: Author, x: str, n: int, m: int) -> str:
    """Append the dense layer at the end."""
    flat = a.onnx.flatten([x])
    return a.onnx.gemm([flat, a.weight("fc.w", m, n), a.weight("fc.b", m, scale=0.1)], transB=1)


def lay_out_training(params: Params):
    """Kernels OIHW -> HWIO, dense weights transposed."""
    turned = {name: v.transpose(2, 3, 1, 0) if v.ndim == 4 else v.T for name, v in params.items()}
    return {k: jnp.asarray(np.ascontiguousarray(v)) for k, v in turned.items()}


def lay_out(params: Params):
    """The same, with batch normalisation as scale and shift."""
    laid = {name: v.transpose(2, 3, 1, 0) if v.ndim == 4 else v.T for name, v in params.items()}
    for name in [n.removesuffix(".g") for n in params if n.endswith(".g")]:
        scale = params[f"{name}.g"] / np.sqrt(params[f"{name}.v"] + 1e-5)
        laid[f"{name}.scale"], laid[f"{name}.shift"] = scale, params[f"{name}.b"] - params[f"{name}.m"] * scale
        for part in "gbmv":
            del laid[f"{name}.{part}"]
    return {k: jnp.asarray(np.ascontiguousarray(v)) for k, v in laid.items()}


def apply_bn(x: jax.Array, p: Mapping[str, Any], name: str):
    """Batch normalisation as scale and shift."""
    return x * p[f"{name}.scale"] + p[f"{name}.shift"]


def apply_conv(x: jax.Array, w: jax.Array, stride: int):
    """A convolution of channels-last images; kernels of one pixel are a matrix product.

    On GPUs not those with a stride: products of slices end XLA's compiler in ResNet-18 (jaxlib 0.11.2).
    """
    k = w.shape[0]
    if k == 1 and (stride == 1 or platform() == "cpu"):
        return x[:, ::stride, ::stride] @ w[0, 0]
    return lax.conv_general_dilated(x, w, (stride, stride), [(k // 2, k // 2)] * 2, dimension_numbers=_LAYOUT)


def depthwise(x: jax.Array, w: jax.Array, stride: int):
    """3x3 depthwise convolution as nine shifted multiply-adds."""
    _, height, width, _ = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = (x[:, i : i + height : stride, j : j + width : stride] * w[i, j, 0] for i in range(3) for j in range(3))
    return jnp.asarray(sum(shifted))
