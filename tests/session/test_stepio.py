"""Step I/O: checks and their texts, positions, conversions, the callback protocol, synthetic data."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax as popart

from . import nets
from .nets import accumulated, infer, linear, model, replicated, run, sgd, train

X = np.asarray([1.0, -1.0, 0.5], np.float32)
ADD = "g (float[2] x, float[2] unused) => (float[2] y) { y = Add(x, x) }"


def _session(batches: int = 1, text: str = ADD):
    return infer(model(text), {"y": "All"}, batches)


@pytest.mark.parametrize(
    ("inputs", "outputs", "error", "text"),
    [
        ({}, None, popart.popart_runtime_error, "No tensor x provided in PyStepIO's inputs"),
        ({"x": np.zeros(2, np.float32)}, {}, popart.popart_runtime_error, "No tensor y provided in PyStepIO's outputs"),
        ({"x": np.zeros(2, np.float32), "zz": X}, None, popart.popart_runtime_error, "there is no Tensor named zz"),
        ({"x": np.zeros(2, np.float32), "y": np.zeros(2, np.float32)}, None, popart.popart_runtime_error,
         "The tensor 'y' has been provided as one of the inputs to the stepIO, but it is not registered as one"),
        ({"x": np.zeros(2, np.float32)}, {"y": np.zeros(2, np.float32), "x": X}, popart.popart_internal_exception,
         "Non-anchored Tensor"),
        ({"x": np.zeros(3, np.float32)}, None, popart.popart_runtime_error,
         ("Unexpected number of input elements for Tensor x. Expected 2, but received 3.\nTo disable this check at "
         "your own risk, use IStepIO::enableRuntimeAsserts.\nThis with, \n   replication  factor = 1\n"
         "   accumulation factor = 1\n   batches per step    = 1\n   Tensor nelms        = 2")),
        ({"x": np.zeros(2, np.float32)}, {"y": np.zeros(3, np.float32)}, popart.popart_runtime_error,
         "   Tensor nelms        = 2\nThe anchor return type is  All"),
        ({"x": np.zeros(2, np.float64)}, None, popart.popart_runtime_error,
         "Type discrepancy for tensor x. User provided : DOUBLE and expected : FLOAT"),
        ({"x": np.zeros(2, np.int32)}, None, popart.popart_runtime_error,
         "Type discrepancy for tensor x. User provided : INT32 and expected : FLOAT"),
    ],
)  # fmt: skip
def test_errors(inputs, outputs, error, text):
    session = _session()
    anchors = session.initAnchorArrays() if outputs is None else outputs
    with pytest.raises(error) as raised:
        session.run(popart.PyStepIO(inputs, anchors))
    assert text in raised.value.args[0]


@pytest.mark.parametrize("use", ["input", "output"])
def test_not_contiguous(use):
    bad = {"x": np.zeros((4, 4), np.float32).T[:, 1:]}
    with pytest.raises(popart.popart_exception) as raised:
        popart.PyStepIO(*(({}, bad) if use == "output" else (bad, {})))
    assert raised.value.args[0] == (
        f"PyStepIO is unable to use the numpy {use} array for tensor 'x' as it is not c-contiguous (a data conversion "
        "here could have a significant impact on performance and hence is not allowed)"
    )
    with pytest.raises(popart.popart_exception, match=r"^PyWeightsIO is unable to use the provided numpy output array"):
        popart.PyWeightsIO(bad)


def test_data_for_weights_are_accepted_and_ignored():
    proto, w = linear()
    session = train(proto, {"loss": "All"}, popart.ConstSGD(0.1))
    found = run(session, x=np.ones(3, np.float32), w=np.zeros(3, np.float32))
    np.testing.assert_allclose(found["loss"], w.sum())


def test_unused_input_only_warns():
    session = _session()
    found = run(session, x=np.ones(2, np.float32), unused=np.ones(2, np.float32))
    np.testing.assert_array_equal(found["y"], [2, 2])


def test_arrays_are_referenced():
    session = _session()
    x, anchors = np.ones(2, np.float32), session.initAnchorArrays()
    stepio = popart.PyStepIO({"x": x}, anchors)
    for value in (1, 5):
        x[:] = value
        session.run(stepio)
        np.testing.assert_array_equal(anchors["y"], [2 * value] * 2)


def test_positions_advance_without_asserts():
    session = _session()
    data = np.arange(6, dtype=np.float32)
    out = np.zeros(4, np.float32)
    stepio = popart.PyStepIO({"x": data}, {"y": out})
    stepio.enableRuntimeAsserts(False)
    for _ in range(4):
        session.run(stepio)
    np.testing.assert_array_equal(out, [8, 10, 0, 2])


def test_output_bytes_are_copied_without_type_check():
    session = _session()
    out = np.zeros(2, np.int32)
    session.run(popart.PyStepIO({"x": np.ones(2, np.float32)}, {"y": out}))
    np.testing.assert_array_equal(out.view(np.float32), [2, 2])


def test_int64_data_for_int32():
    session = _session(text="g (int32[2] x) => (int32[2] y) { y = Add(x, x) }")
    np.testing.assert_array_equal(run(session, x=np.asarray([3, 4]))["y"], [6, 8])


def test_int64_data_are_converted_anew_at_each_run():
    session = _session(text="g (int64[2] x, float[2] f) => (int64[2] y) { g = Cast<to = 7>(f) y = Add(x, g) }")
    x, out = np.asarray([3, 4]), {"y": np.zeros(2, np.int64)}
    stepio = popart.PyStepIO({"x": x, "f": np.ones(2, np.float32)}, out)
    for first in (3, 7, -2):
        x[0] = first
        session.run(stepio)
        np.testing.assert_array_equal(out["y"], [first + 1, 5])
    x[0] = 1 << 31
    with pytest.raises(popart.popart_runtime_error, match="reach from 4 to 2147483648; the device holds INT32"):
        session.run(stepio)
    x[0] = 5
    session.run(stepio)
    np.testing.assert_array_equal(out["y"], [6, 5])


def test_int64_model_takes_both():
    session = _session(text="g (int64[2] x) => (int64[2] y) { y = Add(x, x) }")
    assert run(session, x=np.asarray([3, 4]))["y"].dtype == np.int64


def test_synthetic_data_reads_and_writes_nothing():
    session = infer(model(ADD), {"y": "All"}, syntheticDataMode=popart.SyntheticDataMode.Zeros)
    out = {"y": np.full(2, 7, np.float32)}
    session.run(popart.PyStepIO({}, out))
    np.testing.assert_array_equal(out["y"], [7, 7])


class Recorder:
    """Callbacks that hand out numbered data and note every call."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.shapes, self.calls, self.given, self.buffers = shapes, [], {}, {}

    def input(self, name: str, is_prefetch: bool) -> np.ndarray:
        number = len(self.given.setdefault(name, []))
        self.given[name].append(np.full(self.shapes[name], number, np.float32))
        self.calls.append(("in", name))
        return self.given[name][-1]

    def output(self, name: str) -> np.ndarray:
        self.calls.append(("out", name))
        self.buffers.setdefault(name, []).append(np.zeros(self.shapes[name], np.float32))
        return self.buffers[name][-1]

    def stepio(self) -> popart.PyStepIOCallback:
        done = lambda kind: lambda name: self.calls.append((kind, name))  # noqa: E731
        return popart.PyStepIOCallback(self.input, done("in-done"), self.output, done("out-done"))


def test_callbacks():
    proto, w = linear()
    session = train(proto, {"y": "All", "loss": "Sum"}, sgd(1e-30), 2, **accumulated(3), **replicated(2))
    recorder = Recorder({"x": (3,), "y": (3,), "loss": ()})
    session.run(recorder.stepio())
    assert len(recorder.given["x"]) == 12
    for i, buffer in enumerate(recorder.buffers["y"]):
        np.testing.assert_allclose(buffer, i * w)
    sums = [sum(i for i in range(12) if i % 2 == r) * w.sum() for r in range(2)]
    np.testing.assert_allclose(recorder.buffers["loss"], sums)
    kinds = [kind for kind, name in recorder.calls if name == "x"]
    assert kinds == ["in", "in-done"] * 12
    assert [k for k, n in recorder.calls if n == "y"] == ["out", "out-done"] * 12


def test_inputs_of_callbacks_take_turns():
    """A program may make the micro-batches of all its inputs together, and no more before both are taken."""
    builder = popart.Builder()
    names = [builder.addInputTensor("FLOAT", [3], name) for name in ("a", "b")]
    wide = builder.addInputTensor(
        popart.TensorInfo("FLOAT", [1]), popart.InputSettings(popart.ReplicatedStreamMode.Broadcast), "wide"
    )
    total = builder.aiOnnx.sum([*names, wide])
    options = nets.make_options(**replicated(2))
    device = popart.DeviceManager().createIpuModelDevice({})
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(4, [total]), device, userOptions=options)
    session.prepareDevice()
    recorder = Recorder({"a": (3,), "b": (3,), "wide": (1,), total: (3,)})
    session.run(recorder.stepio())
    taken = [name for kind, name in recorder.calls if kind == "in" and name != "wide"]
    assert taken in (["a", "b"] * 8, ["b", "a"] * 8)
    np.testing.assert_allclose(recorder.buffers[total], [np.full(3, 2 * i + i // 2) for i in range(8)])


def test_callback_errors_leave_weights():
    proto, w = linear()
    session = train(proto, {"y": "All"}, sgd(1.0))

    def refuse(name, is_prefetch):
        raise KeyError("no data today")

    nothing = lambda name: None  # noqa: E731
    with pytest.raises(KeyError, match="no data today"):
        session.run(popart.PyStepIOCallback(refuse, nothing, nothing, nothing))
    with pytest.raises(popart.popart_runtime_error, match="no data for tensor x"):
        session.run(popart.PyStepIOCallback(lambda n, p: None, nothing, nothing, nothing))
    with pytest.raises(popart.popart_exception, match="c-contiguous"):
        session.run(popart.PyStepIOCallback(lambda n, p: np.zeros((3, 2), np.float32)[:, 0], nothing, nothing, nothing))
    np.testing.assert_array_equal(nets.weights_of(session, w=w)["w"], w)


def test_errors_of_output_callbacks_undo_the_step():
    proto, w = linear()
    session = train(proto, {"y": "All"}, sgd(1.0))
    take = lambda name, is_prefetch: np.ones(3, np.float32)  # noqa: E731
    done = lambda name: None  # noqa: E731

    def refuse(name):
        raise KeyError("nowhere to put it")

    with pytest.raises(KeyError, match="nowhere to put it"):
        session.run(popart.PyStepIOCallback(take, done, refuse, done))
    np.testing.assert_array_equal(nets.weights_of(session, w=w)["w"], w)
    session.run(popart.PyStepIOCallback(take, done, lambda name: np.empty(3, np.float32), done))
    np.testing.assert_array_equal(nets.weights_of(session, w=w)["w"], w - 1)  # the gradient of sum(w x) is x


def test_step_io_of_a_class_of_the_program():
    class Counted(popart.PyStepIO):
        runs = 0

    session = infer(linear()[0], {"y": "All"})
    found, plain = session.initAnchorArrays(), session.initAnchorArrays()
    x = np.arange(3, dtype=np.float32)
    for _ in range(2):
        session.run(Counted({"x": x}, found))
    session.run(popart.PyStepIO({"x": x}, plain))
    np.testing.assert_array_equal(found["y"], plain["y"])


def test_callbacks_may_hand_out_larger_arrays_than_asked_for():
    """PopART counts nothing there: it reads the first elements, and writes into them."""
    session = infer(linear()[0], {"y": "All"})
    done, larger = (lambda name: None), np.full(5, 9, np.float32)
    given = np.arange(5, dtype=np.float32)
    session.run(popart.PyStepIOCallback(lambda name, is_prefetch: given, done, lambda name: larger, done))
    exact = np.empty(3, np.float32)
    session.run(popart.PyStepIOCallback(lambda name, is_prefetch: given[:3], done, lambda name: exact, done))
    np.testing.assert_array_equal(larger, [*exact, 9, 9])
    with pytest.raises(popart.popart_runtime_error, match="returned 2 elements for tensor x"):
        session.run(popart.PyStepIOCallback(lambda name, is_prefetch: given[:2], done, lambda name: exact, done))


def test_broadcast_input():
    builder = popart.Builder()
    settings = popart.InputSettings(popart.ReplicatedStreamMode.Broadcast)
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]), settings)
    y = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    z = builder.aiOnnx.add([x, y])
    session = infer(builder.getModelProto(), {z: "All"}, **replicated(3))
    a, b = np.asarray([1, 2], np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(run(session, **{x: a, y: b})[z], a + b)


def test_unknown_program():
    session = _session()
    with pytest.raises(popart.popart_exception, match="Program other not found"):
        session.run("other", popart.PyStepIO({}, {}))
