"""Loops whose number of passes follows from constants and shapes compile, differentiate and run in sessions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from popart_jax import popart_exception, to_jax


def while_loop(bound: str = "steps") -> onnx.ModelProto:
    """h = tanh(h + row) for every row, as ``while time < bound`` with counters in float, the way of older exporters."""
    f, i = TensorProto.FLOAT, TensorProto.INT32
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "time"], ["row"]),
            helper.make_node("Add", ["h", "row"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["h_next"]),
            helper.make_node("Identity", ["h_next"], ["seen"]),
            helper.make_node("Add", ["time", "one"], ["time_next"]),
            helper.make_node("Cast", ["time_next"], ["now"], to=f),
            helper.make_node("Less", ["now", bound], ["going"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("pass", TensorProto.INT64, []),
            helper.make_tensor_value_info("before", TensorProto.BOOL, []),
            helper.make_tensor_value_info("time", i, []),
            helper.make_tensor_value_info("h", f, [3]),
        ],
        [
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("time_next", i, []),
            helper.make_tensor_value_info("h_next", f, [3]),
            helper.make_tensor_value_info("seen", f, [3]),
        ],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("Cast", ["rows"], ["steps"], to=f),
        helper.make_node("Less", ["low", bound], ["start"]),
        helper.make_node("Loop", ["", "start", "zero", "h0"], ["last_time", "last", "all"], body=body),
    ]
    constants = {"zero": np.int32(0), "one": np.int32(1), "low": np.float32(0), "h0": np.zeros(3, np.float32)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", f, [5, 3]), helper.make_tensor_value_info("limit", f, [])],
        [helper.make_tensor_value_info("last", f, [3]), helper.make_tensor_value_info("all", f, None)],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_the_passes_are_counted() -> None:
    proto = while_loop()
    fed = {"x": np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32), "limit": np.asarray(2, np.float32)}
    session: Any = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    last, rows = session.run(["last", "all"], fed)
    fn, params = to_jax(proto)
    found = jax.jit(fn)(params, fed)
    np.testing.assert_allclose(found["last"], last, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["all"], rows, rtol=1e-5, atol=1e-6)
    gradient = jax.jit(jax.grad(lambda x: fn(params, {**fed, "x": x})["last"].sum()))(fed["x"])
    nudge = np.zeros((5, 3), np.float32)
    nudge[3, 1] = 1e-2
    ends = [float(np.sum(session.run(["last"], {**fed, "x": fed["x"] + s * nudge})[0])) for s in (1, -1)]
    np.testing.assert_allclose(gradient[3, 1], (ends[0] - ends[1]) / 2e-2, rtol=1e-2)


def test_a_bound_that_is_fed_is_not_counted() -> None:
    fn, params = to_jax(while_loop("limit"))
    fed = {"x": np.ones((5, 3), np.float32), "limit": np.asarray(2, np.float32)}
    assert fn(params, fed)["all"].shape == (2, 3)
    with pytest.raises(popart_exception, match="known only at run time"):
        jax.jit(fn)(params, fed)


def test_branches_of_one_element_take_the_declared_shape() -> None:
    """Exporters write a constant of shape [1] where they declare a scalar; the condition is known only at run time."""
    flag = TensorProto.BOOL
    one = onnx.numpy_helper.from_array(np.ones(1, bool), "value")
    then = helper.make_graph(
        [helper.make_node("Constant", [], ["t"], value=one)], "t", [], [helper.make_tensor_value_info("t", flag, [])]
    )
    other = helper.make_graph(
        [helper.make_node("Not", ["c"], ["e"])], "e", [], [helper.make_tensor_value_info("e", flag, [])]
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        "g",
        [helper.make_tensor_value_info("c", flag, [])],
        [helper.make_tensor_value_info("y", flag, [])],
    )
    fn, params = to_jax(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))
    for c in (True, False):
        found = jax.jit(fn)(params, {"c": np.asarray(c)})["y"]
        assert found.shape == ()
        assert bool(found)
