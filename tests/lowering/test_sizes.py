"""Sizes beyond what the machine has are errors before anything is allocated, in functions and in sessions."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popart_jax as popart

from ..platforms import ON_CPUS

X = np.ones((2, 3), np.float32)
node = helper.make_node


def number(name: str, value: Any, dtype: Any = np.int64) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(value, dtype), name)


def model(*nodes: onnx.NodeProto, weights: Any = (), shape: Any = (2, 3)) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(list(nodes), "g", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def session(proto: onnx.ModelProto) -> None:
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    popart.InferenceSession(proto.SerializeToString(), flow, popart.DeviceManager().createCpuDevice())


def function(proto: onnx.ModelProto) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fn, params = popart.to_jax(proto)
    fn(params, X)


def jitted(proto: onnx.ModelProto) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fn, params = popart.to_jax(proto)
    jax.jit(fn)(params, X)


HUGE = {
    "random": model(node("RandomNormal", [], ["y"], shape=[1 << 31, 1 << 31])),
    "constant": model(node("ConstantOfShape", ["s"], ["y"]), weights=[number("s", [1 << 40, 1 << 20])]),
    "one hot": model(
        node("OneHot", ["i", "d", "v"], ["y"]),
        weights=[number("i", [1, 2]), number("d", 10**12), number("v", [0, 1], np.float32)],
    ),
    "tile": model(node("Tile", ["x", "r"], ["y"]), weights=[number("r", [1 << 31, 1 << 31])]),
    "expand": model(node("Expand", ["x", "r"], ["y"]), weights=[number("r", [1 << 20, 1 << 20, 2, 3])]),
    "pad": model(node("Pad", ["x", "r"], ["y"]), weights=[number("r", [1 << 40, 0, 0, 0])]),
    "range": model(
        node("Range", ["a", "b", "c"], ["y"]), weights=[number("a", 0), number("b", 1 << 50), number("c", 1)]
    ),
}


@pytest.mark.parametrize("run", [function, jitted, session])
@pytest.mark.parametrize("name", HUGE)
def test_huge_results_are_refused(name: str, run: Any) -> None:
    with pytest.raises(popart.popart_exception, match=r"needs .* the limit is .*\n.*popart_jax.limits.memory"):
        run(HUGE[name])


def test_huge_inputs_are_refused() -> None:
    with pytest.raises(popart.popart_exception, match=r"Input 'x' of shape .* needs 18.4 EB"):
        session(model(node("Relu", ["x"], ["y"]), shape=[1 << 62]))


def doubled(times: int) -> onnx.ModelProto:
    names = ["x", *(f"c{i}" for i in range(times))]
    joined = [node("Concat", [a, a], [b], axis=0) for a, b in pairwise(names)]
    return model(*joined, node("ReduceSum", [names[-1]], ["y"]))


@pytest.mark.parametrize("run", [function, jitted, session])
def test_what_grows_step_by_step_is_refused(run: Any) -> None:
    with popart.limits.set(memory=1 << 14), pytest.raises(popart.popart_exception, match=r"the limit is 16.4 kB"):
        run(doubled(40))
    with popart.limits.set(memory=1 << 14):
        run(doubled(4))


def test_a_loop_whose_state_grows_is_refused() -> None:
    info = helper.make_tensor_value_info
    calls = [node("Identity", ["c"], ["d"]), node("Concat", ["v", "v"], ["w"], axis=0)]
    body = helper.make_graph(
        calls, "b", [info("i", TensorProto.INT64, ()), info("c", TensorProto.BOOL, ()), info("v", 1, None)],
        [info("d", TensorProto.BOOL, ()), info("w", 1, None)],
    )  # fmt: skip
    proto = model(node("Loop", ["n", "", "x"], ["y"], body=body), weights=[number("n", 40)])
    for run in (function, session):
        with popart.limits.set(memory=1 << 14), pytest.raises(popart.popart_exception, match=r"the limit is 16.4 kB"):
            run(proto)


@pytest.mark.parametrize(("depth", "shown"), [(20, "5.24e+05"), (40, "5.5e+11")])
def test_functions_that_multiply_are_counted_not_made(depth: int, shown: str) -> None:
    proto = model(node("F0", ["x"], ["y"], domain="l"))
    proto.opset_import.append(helper.make_opsetid("l", 1))
    for i in range(depth):
        inner = [node(f"F{i + 1}", ["a"], ["t"], domain="l"), node(f"F{i + 1}", ["t"], ["b"], domain="l")]
        nodes = inner if i < depth - 1 else [node("Neg", ["a"], ["b"])]
        imports = [helper.make_opsetid("", 13), helper.make_opsetid("l", 1)]
        proto.functions.append(helper.make_function("l", f"F{i}", ["a"], ["b"], nodes, imports))
    for run in (function, session):
        with pytest.raises(popart.popart_exception, match=rf"has {re.escape(shown)} nodes; the limit is 200000"):
            run(proto)


def test_limits_are_the_users() -> None:
    before = popart.limits.memory
    with popart.limits.set(memory=8):
        assert popart.limits.memory == 8
        with pytest.raises(popart.popart_exception, match="needs 24 B; the limit is 8 B"):
            function(model(node("Relu", ["x"], ["y"])))
    assert popart.limits.memory == before > 1 << 30


def test_a_program_whose_intermediate_values_are_too_large_is_refused_before_it_runs() -> None:
    """XLA's own end of memory would be the end of the process."""
    pairs = [node("Transpose", ["x"], ["t"], perm=[1, 0]), node("Sub", ["x", "t"], ["d"]), node("Sin", ["d"], ["s"])]
    sort = [node("TopK", ["s", "k"], ["v", "i"]), node("MatMul", ["v", "s"], ["m"])]
    most = node("ReduceMax", ["m"], ["y"], keepdims=0)
    made = model(*pairs, *sort, most, weights=[number("k", [1 << 10])], shape=(1, 1 << 10))
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    made_session = popart.InferenceSession(made.SerializeToString(), flow, popart.DeviceManager().createCpuDevice())
    message = r"A run of the program.* needs .* the limit is 6.29 MB"
    with popart.limits.set(memory=6 << 20), pytest.raises(popart.popart_exception, match=message):
        made_session.prepareDevice()


@ON_CPUS
def test_a_later_run_without_room_leaves_the_weights_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA takes donated weights before it looks for memory."""
    monkeypatch.setattr("popart_jax.execution.room._MUCH", 1 << 10)
    size = 64
    axis, w = number("k", 0), number("w", np.ones((1, size)), np.float32)
    twice = [node("CumSum", ["x", "k"], ["s"]), node("Transpose", ["s"], ["t"], perm=[1, 0])]
    ends = [node("Sub", ["s", "t"], ["d"]), node("MatMul", ["w", "d"], ["m"])]
    last = node("ReduceMax", ["m"], ["y"], keepdims=0)
    made = model(*twice, *ends, last, weights=[axis, w], shape=(size, size))
    feeds, message = {"x": np.ones((size, size), np.float32)}, r"A run of the program.* the limit is 16.4 kB"
    flow, device = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")}), popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(made.SerializeToString(), flow, "y", popart.ConstSGD(0.1), deviceInfo=device)
    session.prepareDevice()
    session.weightsFromHost()
    stepio = popart.PyStepIO(feeds, session.initAnchorArrays())

    def weights() -> np.ndarray:
        session.weightsToHost()
        session.readWeights(popart.PyWeightsIO({"w": (found := np.empty((1, size), np.float32))}))
        return found

    fn, params = popart.to_jax(made)
    call = fn.with_weights(params)
    before = call(feeds)["y"]
    for _ in range(3):  # the third goes straight to the program
        kept = weights()
        with popart.limits.set(memory=1 << 14), pytest.raises(popart.popart_exception, match=message):
            session.run(stepio)
        np.testing.assert_array_equal(weights(), kept)
        session.run(stepio)
    with popart.limits.set(memory=1 << 14), pytest.raises(popart.popart_exception, match=message):
        call(feeds)
    np.testing.assert_array_equal(call(feeds)["y"], before)
