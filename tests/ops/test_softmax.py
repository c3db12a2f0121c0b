"""Softmax of half precision rounds once on all processors, its gradient too; early ones along the last axis."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import popart_jax
from popart_jax.ops.softmax import log_softmax, softmax


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_results_are_the_nearest_numbers(dtype: Any, name: str) -> None:
    x = np.random.default_rng(0).normal(0, 2, (16, 200)).astype(dtype)
    g = np.random.default_rng(1).normal(size=x.shape).astype(dtype)
    wide, slope = x.astype(np.float64), g.astype(np.float64)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    y = powers / powers.sum(1, keepdims=True)
    wanted = y if name == "softmax" else np.log(y)
    fn = {"softmax": softmax, "log_softmax": log_softmax}[name]
    found, back = jax.jit(lambda x: jax.vjp(lambda x: fn(x, 1), x))(x)
    half_a_step = float(ml_dtypes.finfo(dtype).eps) / 2
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=1.01 * half_a_step, atol=1e-7)
    saved = np.asarray(found, np.float64) if name == "softmax" else y
    gradient = saved * (slope - (saved * slope).sum(1, keepdims=True))
    if name == "log_softmax":
        gradient = slope - y * slope.sum(1, keepdims=True)
    (gradients,) = back(g)
    largest = np.abs(gradient).max()
    np.testing.assert_allclose(
        np.asarray(gradients, np.float64), gradient, rtol=half_a_step, atol=half_a_step * largest
    )


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize(("axis", "reshapes"), [(2, 0), (-1, 0), (1, 2)])
def test_before_opset_13_rows_of_the_last_axis_are_not_reshaped(op: str, axis: int, reshapes: int) -> None:
    """XLA:CPU fuses no attention across a reshape."""
    node = onnx.helper.make_node(op, ["x"], ["y"], axis=axis)
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (2, 3, 4)) for name in "xy")
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 11)], ir_version=8)
    with pytest.warns(UserWarning, match="no trainable parameters"):
        fn, params = popart_jax.to_jax(model)
    feed = {"x": np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)}
    rows = feed["x"] if not reshapes else feed["x"].reshape(2, 12)
    (wanted,) = ReferenceEvaluator(modern(op)).run(None, {"x": rows})
    np.testing.assert_allclose(np.asarray(fn(params, feed)["y"]), wanted.reshape(2, 3, 4), rtol=1e-5, atol=1e-6)
    assert str(jax.make_jaxpr(fn)(params, feed)).count(" reshape[") == reshapes


def modern(op: str) -> onnx.ModelProto:
    """The operator along the last axis, as it is since opset 13."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node(op, ["x"], ["y"], axis=-1)], "g", [x], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
