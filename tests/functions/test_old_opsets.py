"""Files of early opsets, whose operators had other attributes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime

import popart_jax as popart

RNG = np.random.default_rng(3)


def with_weights(text: str, **weights: Any) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.float32(x), n) for n, x in weights.items())
    return model


def test_batch_norm_with_statistics_for_each_place() -> None:
    """``spatial = 0`` before opset 9; convolutions around it are laid out and folded by channel, it is not."""
    places = {n: np.abs(RNG.normal(size=(4, 4, 4))) + 0.5 for n in "sbmv"}
    model = with_weights(
        '<ir_version: 8, opset_import: ["": 8]> g(float[2,3,6,6] x) => (float[2,4,2,2] y) '
        "{ a = Conv(x, w) n = BatchNormalization<spatial = 0>(a, s, b, m, v) r = Relu(n) y = Conv(r, u) }",
        w=RNG.normal(size=(4, 3, 3, 3)), u=RNG.normal(size=(4, 4, 3, 3)), **places,
    )  # fmt: skip
    x = RNG.normal(size=(2, 3, 6, 6)).astype(np.float32)
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    fn, params = popart.to_jax(model)
    for found in (fn(params, x), fn.jit(params, x), fn.with_weights(params)(x)):
        np.testing.assert_allclose(found["y"], want, rtol=1e-4, atol=1e-4)
    _, state = fn(params, x, state=fn.initial_state, training=True)
    before = fn(params, x, state=fn.initial_state, training=False)[1]
    assert {n: np.shape(v) for n, v in state.items()} == {"m": (4, 4, 4), "v": (4, 4, 4)}
    assert all(np.any(np.asarray(state[n]) != before[n]) for n in "mv")


def test_cast_that_names_its_type() -> None:
    """``to`` was a text before opset 6."""
    text = '<ir_version: 3, opset_import: ["": 5]> g(float[2] x) => (float[2] y) '
    steps = '{ a = Mul(x, w) i = Cast<to = "INT32">(a) f = Cast<to = "FLOAT">(i) y = Mul(f, w) }'
    fn, params = popart.to_jax(with_weights(text + steps, w=[2, 3]))
    x = np.float32([1.3, -0.9])
    for found in (fn(params, x), jax.jit(fn)(params, x), fn.with_weights(params)(x)):
        np.testing.assert_allclose(found["y"], [4, -6])
