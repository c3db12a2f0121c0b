"""Operators that ONNX once had on trial, beside ONNX Runtime; their gradients beside finite differences."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
from jax.test_util import check_grads

import popart_jax as popart

X = np.random.default_rng(0).normal(size=(2, 3, 5, 6)).astype(np.float32)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "affine": ("Affine", {"alpha": 2.0, "beta": -1.5}),
    "affine as is": ("Affine", {}),
    "scale": ("Scale", {"scale": 0.3}),
    "tanh": ("ScaledTanh", {"alpha": 1.7, "beta": 0.6}),
    "softplus": ("ParametricSoftplus", {"alpha": 2.0, "beta": -0.5}),
    "image": ("ImageScaler", {"scale": 0.5, "bias": [1.0, -2.0, 3.0]}),
    "crop": ("Crop", {"border": [1, 0, 2, 1]}),
    "crop to a size": ("Crop", {"border": [1, 2, 0, 0], "scale": [2, 3]}),
    "channels": ("MeanVarianceNormalization", {}),
    "all channels": ("MeanVarianceNormalization", {"across_channels": 1}),
    "means": ("MeanVarianceNormalization", {"normalize_variance": 0}),
}


def model(op: str, attributes: dict[str, Any]) -> onnx.ModelProto:
    node = onnx.helper.make_node(op, ["x"], ["y"], **attributes)
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", X.shape), ("y", None)))
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 6)], ir_version=3)


@pytest.mark.filterwarnings("ignore:.*no trainable")
@pytest.mark.parametrize("name", CASES)
def test_values_are_onnx_runtimes_and_gradients_are_slopes(name: str) -> None:
    made = model(*CASES[name])
    (want,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": X})
    fn, _ = popart.to_jax(made)
    np.testing.assert_allclose(fn({}, X)["y"], np.asarray(want), rtol=1e-5, atol=1e-5)
    check_grads(lambda x: fn({}, x)["y"], (jax.numpy.asarray(X),), 1, modes=["rev"], rtol=2e-2, atol=2e-2)


@pytest.mark.filterwarnings("ignore:.*no trainable")
@pytest.mark.parametrize(
    ("op", "attributes", "why"),
    [
        ("ImageScaler", {"bias": [1.0]}, "1 biases for 3 channels"),
        ("Crop", {"border": [0, 0, 9, 0]}, "leave shape"),
        ("Crop", {"border": [1, 1]}, "takes 4 borders"),
        ("ScaledTanh", {"alpha": 1.0}, "lacks attribute 'beta'"),
    ],
)
def test_what_does_not_fit_is_refused(op: str, attributes: dict[str, Any], why: str) -> None:
    fn, _ = popart.to_jax(model(op, attributes))
    with pytest.raises(popart.popart_exception, match=why):
        fn({}, X)
