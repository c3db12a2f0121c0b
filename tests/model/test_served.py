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
