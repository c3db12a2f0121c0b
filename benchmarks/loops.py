"""Loops and branches of small operators, ours beside ONNX Runtime: a recurrent cell written out, a decoder, a detector.

An engine that starts a kernel for each operator pays for that in every iteration; a compiled loop pays for copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import onnx.numpy_helper
import onnx.parser

from .board import Calls, Row
from .engines import onnxruntime_inference, session_call

_HEADER = '<ir_version: 8, opset_import: ["" : 13]>'
_GATES = """
    r = MatMul(h, U)
    a, b, c = Split<axis = 1>(u)
    p, q, s = Split<axis = 1>(r)
    zs = Add(a, p)
    z = Sigmoid(zs)
    rs = Add(b, q)
    reset = Sigmoid(rs)
    kept = Mul(reset, s)
    ns = Add(c, kept)
    n = Tanh(ns)
    difference = Sub(h, n)
    part = Mul(z, difference)
    next = Add(n, part)
"""
"""A gated cell of 128 units, operator by operator: from its projected input u and its state h to the next."""

MODELS = {
    # a cell over 64 steps; each step's state is a result
    "cell": """cell (float[64, 1, 128] x) => (float[64, 1, 128] y)
<float[128, 384] W, float[128, 384] U, float[1, 128] h0, int64 count = {64}, bool yes = {1}> {
    projected = MatMul(x, W)
    last, y = Loop(count, yes, h0) <body = body (int64 i, bool go, float[1, 128] h)
        => (bool on, float[1, 128] next, float[1, 128] out) {
        on = Identity(go)
        u = Gather(projected, i)
GATES
        out = Identity(next)
    }>
}""",
    # a greedy decoder: each token is the input of the next step, until it is 0 or 32 steps are over
    "decoder": """decoder (float[40, 128] seen) => (float[1, 128] y)
<float[128, 384] E, float[128, 384] U, float[128, 128] A, float[256, 128] O, float[1, 128] h0,
 int64[1] first = {1}, int64[1] end = {0}, int64 count = {32}, bool yes = {1}> {
    keys = MatMul(seen, A)
    turned = Transpose<perm = [1, 0]>(keys)
    word, y = Loop(count, yes, first, h0) <body = body (int64 i, bool go, int64[1] said, float[1, 128] h)
        => (bool on, int64[1] says, float[1, 128] next) {
        u = Gather(E, said)
GATES
        scores = MatMul(next, turned)
        weights = Softmax<axis = 1>(scores)
        read = MatMul(weights, seen)
        joined = Concat<axis = 1>(next, read)
        logits = MatMul(joined, O)
        says = ArgMax<axis = 1, keepdims = 0>(logits)
        same = Equal(says, end)
        ended = Squeeze(same)
        on = Not(ended)
    }>
}""",
    # two convolutions, until their mean is small
    "convolutions": """convolutions (float[1, 64, 28, 28] x) => (float[1, 64, 28, 28] y)
<float[64, 64, 3, 3] W, float least = {-100}, int64 count = {10}, bool yes = {1}> {
    y = Loop(count, yes, x) <body = body (int64 i, bool go, float[1, 64, 28, 28] h)
        => (bool on, float[1, 64, 28, 28] next) {
        c = Conv<pads = [1, 1, 1, 1]>(h, W)
        r = Relu(c)
        d = Conv<pads = [1, 1, 1, 1]>(r, W)
        next = Tanh(d)
        mean = ReduceMean<keepdims = 0>(next)
        on = Greater(mean, least)
    }>
}""",
    # a voice detector: a branch by sampling rate, then convolutions and a cell on one piece of sound
    "branches": """branches (float[1, 1, 576] x, int64 rate, float[1, 128] h) => (float[1, 128] y)
<float[258, 1, 256] S, float[128, 258, 3] C, float[64, 128, 3] D, float[64, 64, 3] F, float[64, 384] W,
 float[128, 384] U, int64 wide = {16000}> {
    fast = Equal(rate, wide)
    y = If(fast) <
        then_branch = one () => (float[1, 128] next) {
            spectrum = Conv<strides = [128]>(x, S)
            magnitude = Abs(spectrum)
            c1 = Conv<pads = [1, 1]>(magnitude, C)
            r1 = Relu(c1)
            c2 = Conv<pads = [1, 1], strides = [2]>(r1, D)
            r2 = Relu(c2)
            c3 = Conv<pads = [1, 1], strides = [2]>(r2, F)
            r3 = Relu(c3)
            flat = Flatten(r3)
            u = MatMul(flat, W)
    GATES
        },
        else_branch = two () => (float[1, 128] same) { same = Identity(h) }
    >
}""",
}
"""In ONNX's text form; weights without a value are drawn at random."""


def rows() -> Iterator[Row]:
    """One row a model."""
    yield from ((f"loop {name}", partial(engines, name)) for name in MODELS)


def engines(name: str) -> Calls:
    """Inference of one model."""
    rng = np.random.default_rng(0)

    def drawn(value: onnx.ValueInfoProto) -> np.ndarray:
        sizes = [d.dim_value for d in value.type.tensor_type.shape.dim]
        whole = value.type.tensor_type.elem_type == onnx.TensorProto.INT64
        return np.array(16000) if whole else (0.1 * rng.normal(size=sizes)).astype(np.float32)

    model = onnx.parser.parse_model(_HEADER + MODELS[name].replace("GATES", _GATES))
    graph = model.graph
    graph.initializer.extend(onnx.numpy_helper.from_array(drawn(v), v.name) for v in graph.value_info)
    feed, written = {v.name: drawn(v) for v in graph.input}, model.SerializeToString()
    return {"ours": session_call(written, "y", feed), "onnxruntime": onnxruntime_inference(written, feed)}
