"""Contributed operators of decoders, text and mixtures of experts, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import backend, popart_exception
from popart_jax.ops.registry import table

from .single import model, run
from .test_microsoft import f32, i8, i32, quiet, rng, u8


def i64(values):
    return np.asarray(values, np.int64)


H, W, BIAS = f32(2, 5, 8), f32(8, 24), f32(24)
BUFFER = f32(2, 2, 9, 4)
STEP = [f32(2, 1, 8), f32(2, 1, 8), f32(2, 1, 8)]
ENCODER = [f32(2, 1, 8), f32(2, 2, 4, 4), f32(2, 2, 4, 4)]
Q, K, V = f32(2, 5, 64), f32(2, 5, 32), f32(2, 5, 32)
Q1, K1, V1 = f32(2, 1, 64), f32(2, 1, 32), f32(2, 1, 32)
PAST = f32(2, 2, 6, 16)
COS = f32(12, 8)
HEADS = {"num_heads": 4, "kv_num_heads": 2}
EXPERTS = [f32(5, 8), f32(5, 4), f32(4, 16, 8), f32(4, 16), f32(4, 8, 16), f32(4, 8)]
GATES = [f32(5, 8), f32(5, 4), f32(4, 32, 8), f32(4, 32), f32(4, 8, 16), f32(4, 8)]
SWIGLU = {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0}
LSTM_SCALE, LSTM_ZERO = np.full(2, 0.005, np.float32), np.full(2, 128, np.uint8)
WORDS = rng.integers(1, 9, (4, 7)).astype(np.int32)
WORDS[0, 3:] = 0


CASES = {
    "Attention ends of cross keys": ("Attention", [H, W, BIAS, i32([5, 3, 0, 5, 8, 0, 5, 8])], 1, {"num_heads": 2}),
    "MultiHeadAttention shared": (
        "MultiHeadAttention", [H[:, :2], H[:, 1:3], H[:, 2:4], None, None, None, BUFFER, BUFFER[::-1].copy(), i32([3])],
        3, {"num_heads": 2, "unidirectional": 1},
    ),
    "DecoderMasked encoder": ("DecoderMaskedMultiHeadAttention", ENCODER, 1, {"num_heads": 2}),
    "DecoderMasked shared": (
        "DecoderMaskedMultiHeadAttention", [*STEP, None, None, BUFFER, BUFFER, i32([3])], 3,
        {"num_heads": 2, "past_present_share_buffer": 1},
    ),
    "DecoderMasked beams": (
        "DecoderMaskedMultiHeadAttention",
        [*STEP, None, None, BUFFER, BUFFER, i32([3]), i32([2]), i32(rng.integers(0, 2, (1, 2, 9)))], 3,
        {"num_heads": 2, "past_present_share_buffer": 1},
    ),
    "GroupQuery padded prompt": ("GroupQueryAttention", [Q, K, V, None, None, i32([4, 2]), i32(5)], 3, HEADS),
    "GroupQuery bias": (
        "GroupQueryAttention", [Q, K, V, None, None, i32([4, 4]), i32(5), None, None, None, f32(2, 4, 5, 5)], 3, HEADS,
    ),
    "GroupQuery scores": (
        "GroupQueryAttention", [Q, K, V, None, None, i32([4, 4]), i32(5)], 4,
        {**HEADS, "qk_output": 1, "softcap": 2.0},
    ),
    "GroupQuery probabilities": (
        "GroupQueryAttention", [Q, K, V, None, None, i32([4, 4]), i32(5)], 4, {**HEADS, "qk_output": 2},
    ),
    "GroupQuery interleaved": (
        "GroupQueryAttention", [Q1, K1, V1, PAST, PAST, i32([6, 4]), i32(7), COS, COS], 3,
        {**HEADS, "do_rotary": 1, "rotary_interleaved": 1},
    ),
    "GroupQuery cache of 8 bits": (
        "GroupQueryAttention",
        [Q1, K1, V1, i8(2, 2, 6, 16), i8(2, 2, 6, 16), i32([6, 6]), i32(7), None, None, None, None, None,
         np.float32([0.1]), np.float32([0.1])], 3,
        {**HEADS, "k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8},
    ),
    "MRotary sections": (
        "MRotaryEmbedding", [f32(2, 5, 32), i64(rng.integers(0, 9, (3, 2, 5))), COS, COS], 1,
        {"mrope_section": [2, 3, 3], "num_heads": 2},
    ),
    "MRotary interleaved": (
        "MRotaryEmbedding", [f32(2, 5, 32), i64(rng.integers(0, 9, (3, 2, 5))), COS, COS], 1,
        {"mrope_section": [4, 2, 2], "num_heads": 2, "mrope_layout": 1},
    ),
    "MoE": ("MoE", EXPERTS, 1, {"k": 2, "activation_type": "gelu"}),
    "MoE normalised": ("MoE", EXPERTS, 1, {"k": 2, "activation_type": "silu", "normalize_routing_weights": 1}),
    "MoE gated": ("MoE", GATES, 1, {"k": 2, **SWIGLU, "swiglu_limit": 7.0}),
    "QMoE": (
        "QMoE",
        [f32(5, 32), f32(5, 4), u8(4, 64, 16), np.abs(f32(4, 64)) / 20, f32(4, 64), u8(4, 32, 32),
         np.abs(f32(4, 32)) / 20, f32(4, 32)], 1, {"k": 2, "normalize_routing_weights": 1},
    ),
    "QMoE blocks": (
        "QMoE",
        [f32(5, 32), f32(5, 4), u8(4, 64, 32), np.abs(f32(4, 64, 2)) / 90, f32(4, 64), u8(4, 32, 32),
         np.abs(f32(4, 32, 2)) / 90, f32(4, 32)], 1,
        {"k": 2, "normalize_routing_weights": 1, "expert_weight_bits": 8, "block_size": 16, **SWIGLU},
    ),
    "MatMulBnb4 fp4": (
        "MatMulBnb4", [f32(3, 32), u8(96), np.abs(f32(12))], 1, {"K": 32, "N": 6, "block_size": 16, "quant_type": 0},
    ),
    "MatMulBnb4 nf4": (
        "MatMulBnb4", [f32(3, 32), u8(96), np.abs(f32(12))], 1, {"K": 32, "N": 6, "block_size": 16, "quant_type": 1},
    ),
    "CropAndResize": (
        "CropAndResize",
        [f32(2, 3, 7, 8), np.float32([[0.1, 0.2, 0.7, 0.9], [-0.2, 0.1, 1.3, 0.5]]), i32([0, 1]), i32([4, 5])], 1,
        {"extrapolation_value": 0.5},
    ),
    "CropAndResize nearest": (
        "CropAndResize", [f32(2, 3, 7, 8), np.float32([[0.1, 0.2, 0.7, 0.9]]), i32([1]), i32([4, 5])], 1,
        {"mode": "nearest"},
    ),
    "ConvTransposeWithDynamicPads": (
        "ConvTransposeWithDynamicPads", [f32(1, 3, 5, 5), f32(3, 2, 3, 3), i64([1, 1, 1, 1]), f32(2)], 1,
        {"strides": [2, 2]},
    ),
    "UnfoldTensor": ("UnfoldTensor", [f32(2, 9, 3)], 1, {"dim": 1, "size": 3, "step": 2}),
    "GatedRMSNorm": ("GatedRMSNorm", [H, f32(4), f32(2, 5, 8)], 1, {}),
    "BranchwiseRMSNorm": ("BranchwiseRMSNorm", [H, f32(4)], 1, {"num_branches": 2}),
    "ScaledSiLU": ("ScaledSiLU", [H], 1, {"alpha": 1.5}),
    "GatedAdd": ("GatedAdd", [H, f32(2, 5, 8), f32(2, 5, 1)], 1, {}),
    "NGramRepeatBlock": ("NGramRepeatBlock", [i64(rng.integers(0, 3, (2, 8))), f32(2, 5)], 1, {"ngram_size": 2}),
    "WordConvEmbedding": ("WordConvEmbedding", [WORDS, f32(6, 1, 3, 5), f32(6), f32(9, 5)], 1, {}),
    "MurmurHash3": ("MurmurHash3", [i64(rng.integers(-99, 99, (3, 4)))], 1, {"seed": 7, "positive": 0}),
    "DynamicQuantizeLSTM": (
        "DynamicQuantizeLSTM",
        [f32(4, 1, 3), u8(2, 3, 20), u8(2, 5, 20), f32(2, 40), None, f32(2, 1, 5), f32(2, 1, 5), None, LSTM_SCALE,
         LSTM_ZERO, LSTM_SCALE, LSTM_ZERO], 3, {"hidden_size": 5, "direction": "bidirectional"},
    ),
}  # fmt: skip
_STATIC = {"GroupQueryAttention": [6], "CropAndResize": [3], "ConvTransposeWithDynamicPads": [2]}


@pytest.mark.parametrize("name", CASES)
def test_against_onnxruntime(name):
    op, inputs, n_out, attributes = CASES[name]
    expected = quiet(op, inputs, n_out, attributes)
    found = run(op, inputs, n_out, domain="com.microsoft", static=_STATIC.get(op, ()), x64=True, **attributes)
    for want, got in zip(expected, map(np.asarray, found), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


TEXTS = np.asarray(["Hello World", "I love  computer science !", "", "wörld"], object)
HOST = {
    "words": ("Tokenizer", [TEXTS], 1, {"separators": [" "], "mark": 0, "mincharnum": 1, "pad_value": "#"}),
    "marks": ("Tokenizer", [TEXTS], 1, {"separators": [" ", "o"], "mark": 1, "mincharnum": 2, "pad_value": "#"}),
    "letters": ("Tokenizer", [TEXTS], 1, {"separators": [""], "mark": 0, "mincharnum": 1, "pad_value": "#"}),
    "matches": ("Tokenizer", [TEXTS], 1, {"tokenexp": "[a-z]+", "mark": 0, "mincharnum": 1, "pad_value": "#"}),
    "rows": ("Tokenizer", [TEXTS[None]], 1, {"separators": [" "], "mark": 0, "mincharnum": 1, "pad_value": "#"}),
    "hash": ("MurmurHash3", [np.asarray(["a", "abcd", "abcdefg", "", "wörld"], object)], 1, {}),
    "unique": ("Unique", [np.float32([2, 1, 1, 3, 4, 3])], 3, {}),
    "warping": ("DynamicTimeWarping", [f32(1, 6, 4)], 1, {}),
    "same tokens": ("BifurcationDetector", [i64([1, 5, 3, 4, 2]), i64([2]), i64([0]), i64([1, 5, 3, 4, 2, 9])], 2, {}),
    "other token": ("BifurcationDetector", [i64([1, 5, 3, 4, 2]), i64([2]), i64([0]), i64([1, 5, 4, 4, 2, 9])], 2, {}),
    "twice": ("BifurcationDetector", [i64([1, 5, 1, 4, 1, 5]), i64([7, 1, 5]), i64([2]), i64([1, 4, 1, 2, 2])], 2, {}),
}


@pytest.mark.parametrize("name", HOST)
def test_values_of_open_length(name):
    op, inputs, n_out, attributes = HOST[name]
    expected = quiet(op, inputs, n_out, attributes)
    found = backend.run_model(model(op, inputs, n_out, domain="com.microsoft", **attributes), inputs)
    for want, got in zip(expected, map(np.asarray, found), strict=True):
        assert got.shape == want.shape
        assert (got == want).all()


def test_attention_over_a_buffer_is_attention_over_what_is_in_it():
    """The CPU of onnxruntime knows no shared buffer: the same attention with a plain past is the reference."""
    past = f32(2, 2, 2, 3, 4)
    buffer = np.concatenate([past, f32(2, 2, 2, 6, 4)], axis=3)
    expected, present = quiet("Attention", [H, W, BIAS, None, past], 2, {"num_heads": 2, "unidirectional": 1})
    inputs = [H, W, BIAS, None, buffer, None, i32([3])]
    shared = {"num_heads": 2, "past_present_share_buffer": 1, "unidirectional": 1}
    found, kept = run("Attention", inputs, 2, domain="com.microsoft", **shared)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(kept[..., :8, :], present, rtol=1e-4, atol=1e-5)
    assert kept.shape == buffer.shape


def test_refusals_name_the_reason():
    with pytest.raises(popart_exception, match="sliding_window_cache 1"):
        run(
            "GroupQueryAttention", [Q, K, V, None, None, i32([4, 4]), i32(5)], 3, domain="com.microsoft", static=[6],
            sliding_window_cache=1, **HEADS,
        )  # fmt: skip
    with pytest.raises(popart_exception, match="quant_type 7 is unknown"):
        run("MatMulBnb4", [f32(3, 32), u8(96), f32(12)], domain="com.microsoft", K=32, N=6, block_size=16, quant_type=7)


@pytest.mark.parametrize("scale", [1 / 256, 1 / 255, 0.004])
def test_quantised_softmax_is_the_same_to_the_last_bit(scale: float) -> None:
    numbers = (u8(40, 7), np.asarray(0.05, np.float32), np.uint8(100), np.asarray(scale, np.float32), np.uint8(3))
    inputs = [np.asarray(x) for x in numbers]
    (expected,) = quiet("QLinearSoftmax", inputs, 1, {"opset": 13, "axis": -1})
    (found,) = run("QLinearSoftmax", inputs, domain="com.microsoft", opset=13, axis=-1)
    np.testing.assert_array_equal(found, expected)


def test_inputs_that_the_schema_lets_out_in_the_middle() -> None:
    schemas = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state").get_all_operator_schema()
    wrong = []
    for schema in schemas:
        row = table().get((schema.domain, schema.name), {}).get(schema.since_version)
        if schema.domain != "com.microsoft" or row is None:
            continue
        optional = {i for i, x in enumerate(schema.inputs[: len(row.inputs)]) if str(x.option).endswith("Optional")}
        wrong += [(schema.name, row.inputs[i]) for i in optional - row.optional]
    assert set(wrong) <= {("QMoE", "fc1_scales"), ("QMoE", "fc2_scales")}  # needed for the integer weights taken here


def test_a_missing_operand_is_named() -> None:
    with pytest.raises(popart_exception, match=r"it lacks input 8 \(w_scale\)"):
        run("DynamicQuantizeLSTM", [f32(4, 1, 3), u8(1, 3, 20), u8(1, 5, 20)], domain="com.microsoft", hidden_size=5)


def test_weights_of_experts_in_the_other_order_are_refused() -> None:
    turned = [x if x is None or x.ndim < 3 else x.swapaxes(1, 2) for x in EXPERTS]
    with pytest.raises(popart_exception, match=r"\(experts, out, in\) for 8 features; got fc1 \[4, 8, 16\]"):
        run("MoE", turned, domain="com.microsoft", k=2)
