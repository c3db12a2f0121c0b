"""Contributed operators against onnxruntime."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from popart_jax.ops.microsoft.recurrent import dynamic_quantize_lstm

from .single import check_gradient, function, model, run

ort = pytest.importorskip("onnxruntime")
rng = np.random.default_rng(3)


def f32(*shape):
    return rng.normal(size=shape).astype(np.float32)


def u8(*shape):
    return rng.integers(0, 256, shape).astype(np.uint8)


def i8(*shape):
    return rng.integers(-128, 128, shape).astype(np.int8)


def i32(values):
    return np.asarray(values, np.int32)


def quiet(op, inputs, n_out, attributes):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # with more, its LSTM rounds h in parts of the batch
    proto = model(op, inputs, n_out, **{"domain": "com.microsoft", **attributes})
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {f"x{i}": x for i, x in enumerate(inputs) if x is not None})


S, Z8, Z7, Z9, Z128 = np.float32(0.02), np.uint8(120), np.uint8(7), np.uint8(9), np.uint8(128)
S3, S5, S10 = np.float32(0.03), np.float32(0.05), np.float32(0.1)
Q = (u8(2, 3, 6, 6), S, Z8)
X, W3 = f32(1, 4, 6, 6), f32(4, 4, 3, 3)
H = f32(2, 5, 8)
PAST = f32(2, 2, 2, 3, 4)
SCALE, LOW = np.float32(0.01), np.float32(0.003)
PACKED = {"K": 32, "N": 6, "bits": 4, "block_size": 16}

CASES = {
    "Gelu": ("Gelu", [X], 1, {}),
    "BiasGelu": ("BiasGelu", [H, f32(8)], 1, {}),
    "FastGelu": ("FastGelu", [H, f32(8)], 1, {}),
    "QuickGelu": ("QuickGelu", [H], 1, {"alpha": 1.5}),
    "FusedConv": ("FusedConv", [X, W3, f32(4)], 1, {"activation": "LeakyRelu", "activation_params": [0.3]}),
    "FusedConv sum": ("FusedConv", [X, W3, f32(4), f32(1, 4, 4, 4)], 1, {"activation": "Relu"}),
    "FusedMatMul": ("FusedMatMul", [f32(2, 4, 3), f32(2, 5, 4)], 1, {"alpha": 0.5, "transA": 1, "transB": 1}),
    "FusedMatMul batch": ("FusedMatMul", [f32(4, 2, 3), f32(2, 3, 5)], 1, {"transBatchA": 1}),
    "FusedGemm": ("FusedGemm", [f32(3, 4), f32(5, 4), f32(5)], 1, {"transB": 1, "activation": "Relu", "alpha": 0.5}),
    "Inverse": ("Inverse", [f32(2, 3, 3)], 1, {}),
    "Trilu": ("Trilu", [f32(4, 4), np.int64(1)], 1, {"upper": 0}),
    "ExpandDims": ("ExpandDims", [f32(2, 3), i32(-1)], 1, {}),
    "GatherND": ("GatherND", [f32(3, 4, 2), np.array([[0, 1], [2, 3]], np.int64)], 1, {}),
    "Range": ("Range", [np.float32(1), np.float32(7), np.float32(2)], 1, {}),
    "CDist": ("CDist", [f32(3, 4), f32(5, 4)], 1, {"metric": "euclidean"}),
    "LayerNormalization of older opsets": ("LayerNormalization", [H, f32(8), f32(8)], 3, {"domain": "", "opset": 14}),
    "SkipLayerNormalization": ("SkipLayerNormalization", [H, f32(2, 5, 8), f32(8), f32(8), f32(8)], 4, {}),
    "SkipSimplifiedLayerNormalization": ("SkipSimplifiedLayerNormalization", [H, f32(2, 5, 8), f32(8)], 1, {}),
    "EmbedLayerNormalization": (
        "EmbedLayerNormalization",
        [i32([[1, 2, 3]]), i32([[0, 1, 0]]), f32(9, 8), f32(6, 8), f32(2, 8), f32(8), f32(8), i32([[1, 1, 0]])], 2, {},
    ),
    "Attention": ("Attention", [H, f32(8, 24), f32(24)], 1, {"num_heads": 2}),
    "Attention masked": ("Attention", [H, f32(8, 24), f32(24), i32([5, 3])], 1, {"num_heads": 2}),
    "Attention key mask": ("Attention", [H, f32(8, 24), f32(24), i32([[1, 1, 1, 0, 0], [1] * 5])], 1, {"num_heads": 2}),
    "Attention causal": ("Attention", [H, f32(8, 24), f32(24)], 1, {"num_heads": 2, "unidirectional": 1}),
    "Attention past": ("Attention", [H, f32(8, 24), f32(24), None, PAST], 2, {"num_heads": 2}),
    "MultiHeadAttention": ("MultiHeadAttention", [H, f32(2, 4, 8), f32(2, 4, 8), f32(24)], 1, {"num_heads": 2}),
    "MultiHeadAttention masked": (
        "MultiHeadAttention", [H, f32(2, 4, 8), f32(2, 4, 8), None, i32([[1, 1, 0, 0], [1] * 4]), f32(1, 2, 5, 4)], 1,
        {"num_heads": 2, "scale": 0.3},
    ),
    "MultiHeadAttention past": (
        "MultiHeadAttention", [H, f32(2, 5, 8), f32(2, 5, 8), None, None, None, PAST[0], PAST[1]], 3,
        {"num_heads": 2, "unidirectional": 1},
    ),
    "RotaryEmbedding": (
        "RotaryEmbedding", [H, np.array([1], np.int64), f32(9, 2), f32(9, 2)], 1, {"interleaved": 1},
    ),
    "RotaryEmbedding 4d": (
        "RotaryEmbedding", [f32(2, 3, 5, 4), rng.integers(0, 9, (2, 5)), f32(9, 2), f32(9, 2)], 1, {},
    ),
    "GroupQueryAttention prompt": (
        "GroupQueryAttention", [f32(2, 5, 32), f32(2, 5, 16), f32(2, 5, 16), None, None, i32([4, 4]), i32(5)], 3,
        {"num_heads": 4, "kv_num_heads": 2},
    ),
    "GroupQueryAttention step": (
        "GroupQueryAttention",
        [f32(2, 1, 128), None, None, f32(2, 2, 6, 16), f32(2, 2, 6, 16), i32([4, 5]), i32(6), f32(8, 8), f32(8, 8)], 3,
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": 4},
    ),
    "LinearAttentionGate": ("LinearAttentionGate", [H, f32(8), -abs(f32(8)), f32(2, 5, 8)], 2, {}),
    "LinearAttentionGate decay": ("LinearAttentionGate", [H, f32(8), -abs(f32(8))], 1, {}),
    "LinearAttention": (
        "LinearAttention", [H, 0.3 * H, H, f32(2, 2, 4, 4), -abs(f32(2, 5, 2)), abs(np.tanh(f32(2, 5, 1)))], 2,
        {"q_num_heads": 2, "kv_num_heads": 2},
    ),
    "LinearAttention, most heads of values": (
        "LinearAttention", [H, 0.3 * H, f32(2, 5, 12), None, -abs(f32(2, 5, 4)), abs(np.tanh(f32(2, 5, 4)))], 2,
        {"q_num_heads": 2, "kv_num_heads": 4},
    ),
    "CausalConvWithState": (
        "CausalConvWithState", [f32(2, 3, 5), f32(3, 1, 3), f32(3), f32(2, 3, 4)], 2,
        {"dilation": 2, "activation": "silu"},
    ),
    "CausalConvWithState, channels last": (
        "CausalConvWithState", [f32(2, 5, 3, 2), f32(6, 1, 3), None, f32(2, 2, 3, 2)], 2, {"channels_last": 1},
    ),
    "QLinearAdd": ("QLinearAdd", [*Q, u8(2, 3, 6, 6), S3, Z7, S5, np.uint8(100)], 1, {}),
    "QLinearMul": ("QLinearMul", [*Q, u8(2, 3, 6, 6), S3, Z7, S10, np.uint8(100)], 1, {}),
    "QLinearSigmoid": ("QLinearSigmoid", [*Q, np.float32(0.004), np.uint8(0)], 1, {}),
    "QLinearLeakyRelu": ("QLinearLeakyRelu", [*Q, np.float32(0.02), Z9], 1, {"alpha": 0.2}),
    "QLinearAveragePool": ("QLinearAveragePool", [*Q, S, Z9], 1, {"kernel_shape": [2, 2]}),
    "QLinearGlobalAveragePool": ("QLinearGlobalAveragePool", [*Q, S, np.uint8(99)], 1, {}),
    "QLinearConcat": ("QLinearConcat", [S, Z8, u8(2, 3), S, Z8, u8(2, 4), S5, Z7], 1, {"axis": 1}),
    "QLinearSoftmax": ("QLinearSoftmax", [*Q, np.float32(1 / 256), np.uint8(0)], 1, {"opset": 13, "axis": -1}),
    "QGemm": (
        "QGemm", [u8(3, 4), S, Z8, u8(5, 4), SCALE, Z128, i32(rng.integers(-99, 99, 5)), S10, Z8], 1, {"transB": 1},
    ),
    "DynamicQuantizeMatMul": ("DynamicQuantizeMatMul", [f32(3, 4), u8(4, 5), SCALE, Z128, f32(5)], 1, {}),
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat", [u8(3, 4), u8(4, 5), S, SCALE, Z8, Z128, f32(5)], 1, {},
    ),
    "QAttention": (
        "QAttention", [u8(2, 5, 8), i8(8, 24), f32(24), S, SCALE, i32([5, 3]), Z8, np.int8(0)], 1, {"num_heads": 2},
    ),
    "MatMulNBits": ("MatMulNBits", [f32(3, 32), u8(6, 2, 8), f32(12), u8(6)], 1, PACKED),
    "MatMulNBits symmetric": ("MatMulNBits", [f32(3, 32), u8(6, 2, 8), f32(12)], 1, PACKED),
    "QuantizeLinear": ("QuantizeLinear", [f32(3, 4), S, Z8], 1, {}),
    "DequantizeLinear": ("DequantizeLinear", [u8(3, 4), S, Z8], 1, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_against_onnxruntime(name):
    op, inputs, n_out, attributes = CASES[name]
    inputs = [None if x is None else np.asarray(x) for x in inputs]
    static = [i for i, x in enumerate(inputs) if x is not None and x.dtype.kind in "iu" and x.ndim == 0]
    static += range(len(inputs)) if op == "Range" else ()
    expected = quiet(op, inputs, n_out, attributes)
    found = run(op, inputs, n_out, **{"domain": "com.microsoft", "static": static, "x64": True, **attributes})
    for want, got in zip(expected, found, strict=True):
        got = np.asarray(got)
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        if want.dtype.kind in "iu":
            assert np.abs(got.astype(int) - want.astype(int)).max(initial=0) <= (1 if op.startswith("Q") else 0)
        else:
            np.testing.assert_allclose(got, want, rtol=2e-3 if "Fast" in op else 1e-3, atol=1e-4)


def test_dynamic_quantize_lstm_rounds_input_and_state():
    x, h, c = f32(4, 2, 3), f32(1, 2, 5), f32(1, 2, 5)
    w, r, b = u8(1, 3, 20), u8(1, 5, 20), f32(1, 40)
    scale, zero = np.full(1, 0.005, np.float32), np.full(1, 128, np.uint8)
    inputs = [x, w, r, b, None, h, c, None, scale, zero, scale, zero]
    expected = quiet("DynamicQuantizeLSTM", inputs, 3, {"hidden_size": 5})
    found = run("DynamicQuantizeLSTM", inputs, 3, domain="com.microsoft", hidden_size=5)
    for want, got in zip(expected, found, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("known", [True, False])
def test_gradients_of_dynamic_quantize_lstm_are_those_without_rounding_at_the_rounded_numbers(known):
    """By a loop whose roundings count as nothing in the backward pass; weights as constants and as arguments."""
    x, w, r, bias = f32(4, 2, 3), i8(1, 3, 20), i8(1, 5, 20), f32(1, 40)
    scale, zero = np.full((1, 20), 0.005, np.float32) * rng.uniform(1, 2, (1, 20)).astype(np.float32), i8(1, 20) // 8

    def rounded(a):
        low, high = jnp.minimum(a.min(), 0), jnp.maximum(a.max(), 0)
        step = jnp.where(high > low, (high - low) / 255, 1)
        middle = jnp.clip(jnp.rint(-low / step), 0, 255)
        steps = jnp.clip(jnp.rint(a / step) + middle, 0, 255)
        return a + lax.stop_gradient((steps - middle) * step - a)

    def by_hand(x, scale, w, r):
        real_w, real_r = ((q[0].astype(np.float32) - zero[0]) * scale[0] for q in (w, r))
        projected, h, c, ys = (
            rounded(x) @ real_w + bias[0, :20] + bias[0, 20:],
            jnp.zeros((2, 5)),
            jnp.zeros((2, 5)),
            [],
        )
        for step in projected:
            i, o, f, g = jnp.split(step + rounded(h) @ real_r, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            ys.append(h)
        return jnp.stack(ys)[:, None]

    def ours(x, scale, w, r):
        given = (bias, None, None, None, None, scale, zero, scale, zero)
        return dynamic_quantize_lstm(jnp.asarray(x), w, r, *given, hidden_size=5)[0]

    weights = f32(4, 1, 2, 5)

    def gradients(layer):
        def loss(x, scale, *qs):
            return (layer(x, scale, *(qs or (w, r))) * weights).sum()

        return jax.jit(jax.grad(loss, (0, 1)))(x, scale, *(() if known else (w, r)))

    for mine, theirs in zip(gradients(ours), gradients(by_hand), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


HALF, WIDE = (np.float32(0.5), np.uint8(3)), (np.float32(64), np.uint8(1))
TIES = {
    "QLinearAdd": ([u8(4, 64), *HALF, u8(4, 64), *HALF, np.float32(1), np.uint8(1)], {}),
    "QLinearMul": ([u8(4, 64), *HALF, u8(4, 64), *HALF, *WIDE], {}),
    "QLinearAveragePool": ([u8(2, 3, 8, 8), *HALF, *HALF], {"kernel_shape": [2, 2], "strides": [2, 2]}),
}


@pytest.mark.parametrize("op", TIES)
def test_ties_are_broken_after_an_odd_zero_point_is_added(op):
    inputs, attributes = TIES[op]
    inputs = [np.asarray(x) for x in inputs]
    (expected,) = quiet(op, inputs, 1, attributes)
    np.testing.assert_array_equal(run(op, inputs, domain="com.microsoft", **attributes)[0], expected)


def test_gradient_of_the_gates_of_linear_attention():
    inputs = [f32(2, 3, 4), f32(4), -abs(f32(4)), f32(2, 3, 4)]
    check_gradient(function("LinearAttentionGate", inputs, 2, domain="com.microsoft"), *inputs)


@pytest.mark.parametrize("size", [2, 7])
@pytest.mark.parametrize("op", ["LinearAttention", "CausalConvWithState"])
def test_a_window_of_states_holds_those_of_shorter_calls(op: str, size: int):
    """ONNX Runtime's CPU kernels have no windows."""
    if op == "LinearAttention":
        rows, others = [H, H, H], [f32(2, 2, 4, 4)]
        settings = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}
    else:
        rows, others, settings = [H], [f32(8, 1, 4), None, f32(2, 3, 8)], {"channels_last": 1}
    past = np.stack([f32(*others[-1].shape)] * (size - 1) + [others[-1]])
    inputs = [*rows, *others[:-1], past]
    y, states = run(op, inputs, 2, domain="com.microsoft", state_window=size, **settings)
    for back in range(size):
        steps = 5 - back
        shorter = [*(x[:, :steps] for x in rows), *others]
        z, last = run(op, shorter, 2, domain="com.microsoft", **settings) if steps > 0 else (y[:, :0], 0)
        np.testing.assert_allclose(states[-1 - back], np.broadcast_to(last, states.shape[1:]), rtol=1e-5)
        np.testing.assert_allclose(y[:, : max(steps, 0)], z, rtol=1e-5)


def test_bias_softmax():
    x, bias = f32(2, 3, 4, 5), f32(2, 1, 1, 5)
    (y,) = run("BiasSoftmax", [x, bias], domain="com.microsoft", axis=3, is_inner_broadcast=0)
    e = np.exp(x + bias)
    np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-5)
