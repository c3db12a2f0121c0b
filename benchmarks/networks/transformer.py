"""Two transformer encoder blocks (post-norm, gelu by erf) and a classifier on the first token."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from .network import Author, Network, Params

TOKENS, WIDTH, HEADS, INNER, CLASSES, BLOCKS = 128, 256, 4, 1024, 10, 2


def encoder_block(batch: int) -> Network:
    """Built from the primitive operators that exporters write at opset 11."""
    a = Author()
    h = a.input([batch, TOKENS, WIDTH])
    for i in range(BLOCKS):
        h = _norm(a, a.onnx.add([h, _attention(a, h, i, batch)]), f"{i}n1")
        h = _norm(a, a.onnx.add([h, _mlp(a, h, i)]), f"{i}n2")
    first = a.onnx.reshape(
        [a.onnx.slice([h, a.constant([0]), a.constant([1]), a.constant([1])]), a.constant([batch, WIDTH])]
    )
    logits = a.onnx.gemm([first, a.weight("wo", CLASSES, WIDTH), a.weight("bo", CLASSES, scale=0.1)], transB=1)
    return a.finish("encoder", [batch, TOKENS, WIDTH], logits, _lay_out, _forward)


def _dense(a: Author, x: str, name: str, n: int, m: int) -> str:
    w = a.weight(f"{name}w", n, m, scale=n**-0.5)
    return a.onnx.add([a.onnx.matmul([x, w]), a.weight(f"{name}b", m, scale=0.1)])


def _attention(a: Author, h: str, i: int, batch: int) -> str:
    size = WIDTH // HEADS

    def heads(name: str, perm: list[int]) -> str:
        split = a.onnx.reshape([_dense(a, h, f"{i}{name}", WIDTH, WIDTH), a.constant([batch, TOKENS, HEADS, size])])
        return a.onnx.transpose([split], perm=perm)

    q, k, v = heads("q", [0, 2, 1, 3]), heads("k", [0, 2, 3, 1]), heads("v", [0, 2, 1, 3])
    scores = a.onnx.div([a.onnx.matmul([q, k]), a.constant(size**0.5, np.float32)])
    mixed = a.onnx.matmul([a.onnx.softmax([scores], axis=3), v])
    joined = a.onnx.reshape([a.onnx.transpose([mixed], perm=[0, 2, 1, 3]), a.constant([batch, TOKENS, WIDTH])])
    return _dense(a, joined, f"{i}p", WIDTH, WIDTH)


def _mlp(a: Author, h: str, i: int) -> str:
    x = _dense(a, h, f"{i}u", WIDTH, INNER)
    erf = a.onnx.erf([a.onnx.div([x, a.constant(2**0.5, np.float32)])])
    gelu = a.onnx.mul([a.onnx.mul([x, a.onnx.add([erf, a.constant(1.0, np.float32)])]), a.constant(0.5, np.float32)])
    return _dense(a, gelu, f"{i}d", INNER, WIDTH)


def _norm(a: Author, x: str, name: str) -> str:
    centred = a.onnx.sub([x, a.onnx.reducemean([x], axes=[-1])])
    variance = a.onnx.reducemean([a.onnx.mul([centred, centred])], axes=[-1])
    scaled = a.onnx.div([centred, a.onnx.sqrt([a.onnx.add([variance, a.constant(1e-5, np.float32)])])])
    return a.onnx.add(
        [a.onnx.mul([scaled, a.weight(f"{name}g", WIDTH, scale=1.0)]), a.weight(f"{name}b", WIDTH, scale=0.1)]
    )


def _lay_out(params: Params):
    return {k: jnp.asarray(v.T if k == "wo" else v) for k, v in params.items()}


def _forward(p, x):
    def norm(x, name):
        mean = x.mean(-1, keepdims=True)
        variance = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p[f"{name}g"] + p[f"{name}b"]

    def heads(x, name):
        return (x @ p[f"{name}w"] + p[f"{name}b"]).reshape(*x.shape[:2], HEADS, -1)

    for i in range(BLOCKS):
        q, k, v = (heads(x, f"{i}{n}") for n in "qkv")
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (WIDTH // HEADS) ** -0.5
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape)
        x = norm(x + mixed @ p[f"{i}pw"] + p[f"{i}pb"], f"{i}n1")
        inner = jax.nn.gelu(x @ p[f"{i}uw"] + p[f"{i}ub"], approximate=False)
        x = norm(x + inner @ p[f"{i}dw"] + p[f"{i}db"], f"{i}n2")
    return x[:, 0] @ p["wo"] + p["bo"]
