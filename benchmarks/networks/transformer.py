"""Transformers from the primitive operators that exporters write at opset 11: encoders and a causal decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .network import Author, Network, Params


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer; `first_token` classifies from the first token, else every token gets logits."""

    name: str
    tokens: int
    width: int
    heads: int
    inner: int
    blocks: int
    classes: int = 10
    causal: bool = False
    first_token: bool = True


ENCODER = Shape("encoder", 128, 256, 4, 1024, 2)
BERT_BASE = Shape("bert-base", 128, 768, 12, 3072, 12)
GPT2_SMALL = Shape("gpt2-small", 128, 768, 12, 3072, 12, classes=50257, causal=True, first_token=False)


def transformer(shape: Shape, batch: int) -> Network:
    """Post-norm blocks with gelu by erf, fed with embedded tokens [batch, tokens, width]."""
    a = Author()
    h = a.input([batch, shape.tokens, shape.width])
    for i in range(shape.blocks):
        h = _norm(a, a.onnx.add([h, _attention(a, h, i, batch, shape)]), f"{i}n1", shape.width)
        h = _norm(a, a.onnx.add([h, _mlp(a, h, i, shape)]), f"{i}n2", shape.width)
    if shape.first_token:
        first = a.onnx.slice([h, a.constant([0]), a.constant([1]), a.constant([1])])
        h = a.onnx.reshape([first, a.constant([batch, shape.width])])
    w = a.weight("wo", shape.width, shape.classes, scale=shape.width**-0.5)
    logits = a.onnx.add([a.onnx.matmul([h, w]), a.weight("bo", shape.classes, scale=0.1)])
    size = [batch, shape.tokens, shape.width]
    return a.finish(shape.name, size, logits, _lay_out, partial(forward, shape))


encoder_block = partial(transformer, ENCODER)
bert_base = partial(transformer, BERT_BASE)
gpt2_small = partial(transformer, GPT2_SMALL)


def _dense(a: Author, x: str, name: str, n: int, m: int) -> str:
    w = a.weight(f"{name}w", n, m, scale=n**-0.5)
    return a.onnx.add([a.onnx.matmul([x, w]), a.weight(f"{name}b", m, scale=0.1)])


def _attention(a: Author, h: str, i: int, batch: int, shape: Shape) -> str:
    size = shape.width // shape.heads

    def heads(name: str, perm: list[int]) -> str:
        projected = _dense(a, h, f"{i}{name}", shape.width, shape.width)
        split = a.onnx.reshape([projected, a.constant([batch, shape.tokens, shape.heads, size])])
        return a.onnx.transpose([split], perm=perm)

    q, k, v = heads("q", [0, 2, 1, 3]), heads("k", [0, 2, 3, 1]), heads("v", [0, 2, 1, 3])
    scores = a.onnx.div([a.onnx.matmul([q, k]), a.constant(size**0.5, np.float32)])
    if shape.causal:
        scores = a.onnx.add([scores, a.constant(_mask(shape.tokens), np.float32)])
    mixed = a.onnx.matmul([a.onnx.softmax([scores], axis=3), v])
    turned = a.onnx.transpose([mixed], perm=[0, 2, 1, 3])
    joined = a.onnx.reshape([turned, a.constant([batch, shape.tokens, shape.width])])
    return _dense(a, joined, f"{i}p", shape.width, shape.width)


def _mask(tokens: int) -> np.ndarray:
    return np.triu(np.full((tokens, tokens), -1e9, np.float32), 1)


def _mlp(a: Author, h: str, i: int, shape: Shape) -> str:
    x = _dense(a, h, f"{i}u", shape.width, shape.inner)
    erf = a.onnx.erf([a.onnx.div([x, a.constant(2**0.5, np.float32)])])
    doubled = a.onnx.mul([x, a.onnx.add([erf, a.constant(1.0, np.float32)])])
    return _dense(a, a.onnx.mul([doubled, a.constant(0.5, np.float32)]), f"{i}d", shape.inner, shape.width)


def _norm(a: Author, x: str, name: str, width: int) -> str:
    centred = a.onnx.sub([x, a.onnx.reducemean([x], axes=[-1])])
    variance = a.onnx.reducemean([a.onnx.mul([centred, centred])], axes=[-1])
    deviation = a.onnx.sqrt([a.onnx.add([variance, a.constant(1e-5, np.float32)])])
    scaled = a.onnx.mul([a.onnx.div([centred, deviation]), a.weight(f"{name}g", width, scale=1.0)])
    return a.onnx.add([scaled, a.weight(f"{name}b", width, scale=0.1)])


def _lay_out(params: Params):
    return {k: jnp.asarray(v) for k, v in params.items()}


def forward(shape: Shape, p: Mapping[str, Any], x: jax.Array):
    """A transformer by hand."""

    def norm(x: jax.Array, name: str):
        mean = x.mean(-1, keepdims=True)
        variance = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p[f"{name}g"] + p[f"{name}b"]

    def heads(x: jax.Array, name: str):
        return (x @ p[f"{name}w"] + p[f"{name}b"]).reshape(*x.shape[:2], shape.heads, -1).transpose(0, 2, 1, 3)

    for i in range(shape.blocks):
        q, k, v = (heads(x, f"{i}{n}") for n in "qkv")
        # heads moved to the front first: XLA:CPU takes four times as long for the same sums over `bqhd,bkhd->bhqk`
        scores = q @ k.swapaxes(2, 3) * (shape.width // shape.heads) ** -0.5
        scores = scores + _mask(shape.tokens) if shape.causal else scores
        mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        x = norm(x + mixed @ p[f"{i}pw"] + p[f"{i}pb"], f"{i}n1")
        inner = jax.nn.gelu(x @ p[f"{i}uw"] + p[f"{i}ub"], approximate=False)
        x = norm(x + inner @ p[f"{i}dw"] + p[f"{i}db"], f"{i}n2")
    return (x[:, 0] if shape.first_token else x) @ p["wo"] + p["bo"]
