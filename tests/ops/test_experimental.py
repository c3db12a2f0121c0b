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


FILLED = """<ir_version: 3, opset_import: ["": 8]>
g (float[T,N,3] x) => (float[T,1,N,2] y, int32[T,N,3,2] more, double[2,4] plain) {
  s = Shape(x) i = Constant<value = int64[1] {1}>() n = Gather(s, i) head = Constant<value = int64[1] {1}>()
  tail = Constant<value = int64[1] {2}>() h = Concat<axis = 0>(head, n, tail)
  start = ConstantFill<input_as_shape = 1>(h)
  y = LSTM<hidden_size = 2>(x, w, r, , , start, start)
  more = ConstantFill<dtype = 6, extra_shape = [2], value = 7.0>(x)
  plain = ConstantFill<dtype = 11, shape = [2, 4], value = -0.5>() }"""


def test_filled_as_pytorch_started_its_recurrent_layers() -> None:
    """ONNX Runtime has no ConstantFill; the layer starts from zeros by itself where none are given."""
    generator = np.random.default_rng(1)
    weights = {n: generator.normal(size=(1, 8, k)).astype(np.float32) for n, k in (("w", 3), ("r", 2))}
    made = onnx.parser.parse_model(FILLED)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in weights.items())
    plain = onnx.ModelProto()
    plain.CopyFrom(made)
    (lstm,) = (node for node in made.graph.node if node.op_type == "LSTM")
    del plain.graph.node[:], plain.graph.output[1:]
    plain.graph.node.append(onnx.helper.make_node("LSTM", lstm.input[:3], lstm.output, hidden_size=2))
    x = generator.normal(size=(4, 2, 3)).astype(np.float32)
    (want,) = onnxruntime.InferenceSession(plain.SerializeToString()).run(None, {"x": x})
    fn, params = popart.to_jax(made)
    assert params.keys() == weights.keys()
    for found in (fn(params, x), fn.jit(params, x), fn.with_weights(params)(x)):
        np.testing.assert_allclose(found["y"], want, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found["more"], np.full((4, 2, 3, 2), 7, np.int32))
        np.testing.assert_array_equal(found["plain"], np.full((2, 4), -0.5))
