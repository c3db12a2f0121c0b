"""Small models and sessions for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

import popart_jax as popart

HEAD = '<ir_version: 4, opset_import: ["" : 10, "ai.graphcore" : 1]>'


def model(text: str, **weights: np.ndarray) -> bytes:
    """ONNX text ``g (float[2] x, ...) => (...) { ... }`` with initializers."""
    proto = parser.parse_model(f"{HEAD} {text}")
    for name, value in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(value, name))
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        proto.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, value.shape))
    return proto.SerializeToString()


def linear(dtype: type = np.float32) -> tuple[bytes, np.ndarray]:
    """loss = sum(x * w), so that the gradient of w is x times the loss scale; x and w have shape [3]."""
    w = np.asarray([1.0, 2.0, 3.0], dtype)
    kind = "float" if dtype is np.float32 else "float16"
    text = f"""g ({kind}[3] x) => ({kind} loss) {{
        y = Mul(x, w)
        loss = ai.graphcore.IdentityLoss<reduction = "Sum">(y)
    }}"""
    return model(text, w=w), w


def train(
    proto: bytes,
    anchors: dict[str, Any],
    optimizer: popart.Optimizer,
    batches: int = 1,
    loss: str = "loss",
    **options: Any,
) -> popart.TrainingSession:
    """A prepared training session with its weights on the device."""
    session = popart.TrainingSession(
        proto, flow(batches, anchors), loss, optimizer, device(), userOptions=make_options(**options)
    )
    session.prepareDevice()
    session.weightsFromHost()
    return session


def infer(proto: bytes, anchors: dict[str, Any], batches: int = 1, **options: Any) -> popart.InferenceSession:
    """A prepared inference session."""
    session = popart.InferenceSession(proto, flow(batches, anchors), device(), userOptions=make_options(**options))
    session.prepareDevice()
    return session


def flow(batches: int, anchors: dict[str, Any]) -> popart.DataFlow:
    """Anchors as ``{"x": "All", "y": ("EveryN", 2)}``."""
    kinds = {n: popart.AnchorReturnType(*((k,) if isinstance(k, str) else k)) for n, k in anchors.items()}
    return popart.DataFlow(batches, kinds)


def device() -> popart.DeviceInfo:
    return popart.DeviceManager().createIpuModelDevice({})


def make_options(**values: Any) -> popart.SessionOptions:
    options = popart.SessionOptions()
    for name, value in values.items():
        if isinstance(value, dict):
            for key, item in value.items():
                getattr(options, name)[key] = item
        else:
            setattr(options, name, value)
    return options


def run(session: Any, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """One step; returns fresh anchors."""
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({n: np.ascontiguousarray(x) for n, x in inputs.items()}, anchors))
    return anchors


def weights_of(session: Any, **shapes: np.ndarray) -> dict[str, np.ndarray]:
    """Current weights, read back into copies of the given arrays."""
    arrays = {n: np.empty_like(a) for n, a in shapes.items()}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(arrays))
    return arrays


SGD = popart.SGD


def sgd(rate: float = 0.5, const: bool = True, **more: Any) -> popart.SGD:
    return popart.SGD({"defaultLearningRate": (rate, const), **more})


def replicated(count: int) -> dict[str, Any]:
    return {"enableReplicatedGraphs": True, "replicatedGraphCount": count}


def accumulated(count: int) -> dict[str, Any]:
    return {"enableGradientAccumulation": True, "accumulationFactor": count}
