"""Models of the Builder are read by ONNX Runtime, which fuses products with the activation behind them."""

import numpy as np
import pytest

import popart_jax as popart
from popart_jax.model.extract import inference_model

WEIGHT = np.arange(-6, 6, dtype=np.float32).reshape(4, 3)
BIAS = np.array([1, -2, 0.5], np.float32)
ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "leakyrelu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
}


def dense(activation: str, *, placed: bool) -> tuple[bytes, str]:
    """A product, a bias and an activation as PopART's builder writes them, on a pipeline stage or not."""
    builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [2, 4])
    weight = builder.addInitializedInputTensor(WEIGHT)
    bias = builder.addInitializedInputTensor(BIAS)
    out = getattr(builder.aiOnnx, activation)([builder.aiOnnx.gemm([x, weight, bias])])
    if placed:
        builder.virtualGraph(out, 0)
        builder.pipelineStage(out, 0)
    builder.addOutputTensor(out)
    return builder.getModelProto(), x


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("placed", [False, True])
def test_onnxruntime_reads_what_the_builder_writes(activation, placed):
    runtime = pytest.importorskip("onnxruntime")
    model, x = dense(activation, placed=placed)
    feed = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    served = inference_model(model) if placed else model
    session = runtime.InferenceSession(served, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(
        session.run(None, {x: feed})[0], ACTIVATIONS[activation](feed @ WEIGHT + BIAS), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize(("layer", "gates"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_recurrent_layers_are_served_with_their_size(layer, gates):
    runtime = pytest.importorskip("onnxruntime")
    builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [5, 1, 2])
    shapes = (1, gates * 3, 2), (1, gates * 3, 3)
    weights = [builder.addInitializedInputTensor(np.full(s, 0.1, np.float32)) for s in shapes]
    (out,) = getattr(builder.aiOnnx, layer)([x, *weights], num_outputs=1)
    builder.addOutputTensor(out)
    session = runtime.InferenceSession(inference_model(builder.getModelProto()), providers=["CPUExecutionProvider"])
    assert session.run(None, {x: np.ones((5, 1, 2), np.float32)})[0].shape == (5, 1, 1, 3)
