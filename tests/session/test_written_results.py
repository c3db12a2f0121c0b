"""Large results are written into the arrays of `initAnchorArrays`, and copied into any other ones."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popart_jax as popart
from popart_jax.execution import written_results
from popart_jax.execution.written_results import LEAST, Destinations, ResultMemory, memory_of
from popart_jax.session.feeding.arrays import FeedPlan

from ..platforms import ON_CPUS

pytestmark = ON_CPUS

ROWS, COLUMNS = 64, LEAST // 4 // 64
SMALL = LEAST // 4 - 1  # elements of the largest float32 result that is copied


def model(rows: int = ROWS, columns: int = COLUMNS, kind: int = TensorProto.FLOAT) -> bytes:
    """``y = 2 * x + 1``, the same negated, and its first row."""
    stored = {"two": np.array(2), "one": np.array(1), "zero": np.array(0), "first": np.array([1])}
    dtypes = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16, TensorProto.INT32: np.int32}
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["twice"]),
        helper.make_node("Add", ["twice", "one"], ["y"]),
        helper.make_node("Neg", ["y"], ["negative"]),
        helper.make_node("Gather", ["y", "zero"], ["row"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, (rows, columns))],
        [helper.make_tensor_value_info(n, kind, None) for n in ("y", "negative", "row")],
        [numpy_helper.from_array(stored[n].astype(dtypes[kind]), n) for n in ("two", "one")]
        + [numpy_helper.from_array(stored["zero"].astype(np.int32), "zero")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def session(proto: bytes | str | None = None, *names: str, batches: int = 1, kind: str = "All", **more: Any) -> Any:
    flow = popart.DataFlow(batches, {n: popart.AnchorReturnType(kind) for n in names or ("y",)})
    device = popart.DeviceManager().createCpuDevice()
    made = popart.InferenceSession(model() if proto is None else proto, flow, device, **more)
    made.prepareDevice()
    return made


def data(seed: int = 0, shape: tuple[int, ...] = (ROWS, COLUMNS), dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).integers(-50, 50, shape).astype(dtype)


def is_in_place(array: np.ndarray) -> bool:
    """Whether the array shows memory that XLA has written."""
    memory = memory_of(array)
    return memory is not None and memory.array.unsafe_buffer_pointer() == array.ctypes.data


def run_often(made: Any, arrays: dict[str, np.ndarray], times: int = 4, wanted: Any = lambda x: 2 * x + 1) -> None:
    x = data()
    stepio = popart.PyStepIO({"x": x}, arrays)
    for seed in range(times):
        x[...] = data(seed)
        made.run(stepio)
        np.testing.assert_array_equal(arrays["y"], wanted(x))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT32])
def test_runs_write_into_the_arrays_of_the_session(kind: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    columns = COLUMNS * 4 // dtype.itemsize
    made = session(model(columns=columns, kind=kind), "y", "negative", "row")
    arrays = made.initAnchorArrays()
    x = data(0, (ROWS, columns), dtype)
    addresses = {n: a.ctypes.data for n, a in arrays.items()}
    stepio = popart.PyStepIO({"x": x}, arrays)
    for seed in range(4):
        x[...] = data(seed, (ROWS, columns), dtype)
        made.run(stepio)
        np.testing.assert_array_equal(arrays["y"], 2 * x + 1)
        np.testing.assert_array_equal(arrays["negative"], -(2 * x + 1))
        np.testing.assert_array_equal(arrays["row"], 2 * x[0] + 1)
    assert is_in_place(arrays["y"])
    assert is_in_place(arrays["negative"])
    assert memory_of(arrays["row"]) is None
    assert addresses == {n: a.ctypes.data for n, a in arrays.items()}


def test_a_copy_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second run on; what else the caller passes gets a copy of what the session's own memory holds."""
    viewed: list[int] = []
    view = ResultMemory.view
    made, other = session(), {"y": np.empty((ROWS, COLUMNS), np.float32)}
    arrays = made.initAnchorArrays()
    run_often(made, arrays, 2)
    monkeypatch.setattr(ResultMemory, "view", lambda self: viewed.append(1) or view(self))
    run_often(made, arrays)
    assert not viewed
    run_often(made, other)
    assert viewed


def test_a_new_step_io_for_each_run_writes_in_place() -> None:
    made = session()
    arrays = made.initAnchorArrays()
    for seed in range(4):
        made.run(popart.PyStepIO({"x": data(seed)}, arrays))
        np.testing.assert_array_equal(arrays["y"], 2 * data(seed) + 1)
    assert is_in_place(arrays["y"])
    for seed in range(3):
        own = {"y": np.zeros((ROWS, COLUMNS), np.float32)}
        made.run(popart.PyStepIO({"x": data(seed)}, own))
        np.testing.assert_array_equal(own["y"], 2 * data(seed) + 1)


def test_small_results_are_copied() -> None:
    made = session(model(1, SMALL))
    arrays = made.initAnchorArrays()
    made.run(popart.PyStepIO({"x": data(0, (1, SMALL))}, arrays))
    assert memory_of(arrays["y"]) is None
    np.testing.assert_array_equal(arrays["y"], 2 * data(0, (1, SMALL)) + 1)


@pytest.mark.parametrize("part", [lambda y: y, lambda y: y.reshape(ROWS, COLUMNS), lambda y: y.view(np.float32)])
def test_what_a_run_reads_is_not_overwritten(part: Callable[[np.ndarray], np.ndarray]) -> None:
    """The result is the next input: ``y = 2 * y + 1``, and its rows in reverse, which a run in place would mix up."""
    graph = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 13]>
        g (float[{ROWS},{COLUMNS}] x) => (float[{ROWS},{COLUMNS}] y)
        <int64[1] axis = {{0}}, int64[1] begin = {{-1}}, int64[1] end = {{-1000000}}, int64[1] step = {{-1}}>
        {{ y = Slice (x, begin, end, axis, step) }}
    """)
    made = session(graph.SerializeToString())
    arrays = made.initAnchorArrays()
    run_often(made, arrays, wanted=lambda x: x[::-1])
    stepio = popart.PyStepIO({"x": part(arrays["y"])}, arrays)
    for _ in range(3):
        before = arrays["y"].copy()
        made.run(stepio)
        np.testing.assert_array_equal(arrays["y"], before[::-1])
    run_often(made, arrays, wanted=lambda x: x[::-1])


def test_arrays_of_another_session_get_copies_until_that_one_is_gone() -> None:
    one, two = session(), session()
    arrays = one.initAnchorArrays()
    run_often(one, arrays)
    memory = memory_of(arrays["y"])
    assert memory is not None
    held = memory.array
    run_often(two, arrays)
    assert memory.array is held, "the first session's next run would find its memory taken"
    run_often(one, arrays)
    assert memory.array is not held
    del one
    gc.collect()
    held = memory.array
    run_often(two, arrays)
    assert memory.array is not held


def test_arrays_outlive_their_session() -> None:
    made = session()
    arrays = made.initAnchorArrays()
    run_often(made, arrays, 2)
    row = arrays["y"][3]
    wanted = row.copy()
    del made, arrays
    gc.collect()
    np.testing.assert_array_equal(row, wanted)


@pytest.mark.parametrize("kind", ["All", "Final", "Sum"])
def test_several_batches_and_micro_batches(kind: str) -> None:
    options = popart.SessionOptions()
    made = session(None, batches=3, kind=kind, userOptions=options)
    arrays = made.initAnchorArrays()
    x = data(1, (3, ROWS, COLUMNS))
    wanted = {"All": 2 * x + 1, "Final": 2 * x[2] + 1, "Sum": (2 * x + 1).sum(0)}[kind]
    stepio = popart.PyStepIO({"x": x}, arrays)
    for _ in range(3):
        arrays["y"][...] = 0
        made.run(stepio)
        np.testing.assert_array_equal(arrays["y"], wanted)
    assert is_in_place(arrays["y"])


def test_replicas_on_one_device() -> None:
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    made = session(None, userOptions=options)
    arrays = made.initAnchorArrays()
    x = data(1, (2, ROWS, COLUMNS))
    stepio = popart.PyStepIO({"x": x}, arrays)
    for _ in range(3):
        arrays["y"][...] = 0
        made.run(stepio)
        np.testing.assert_array_equal(arrays["y"], 2 * x + 1)


def training(optimizer: popart.Optimizer) -> tuple[Any, str]:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [ROWS, COLUMNS]), "x")
    w = builder.addInitializedInputTensor(np.zeros((ROWS, COLUMNS), np.float32), "w")
    y = builder.aiOnnx.add([x, w])
    loss = builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)
    anchors = {n: popart.AnchorReturnType("All") for n in (y, "w", popart.reservedGradientPrefix() + "w", loss)}
    made = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, anchors),
        loss,
        optimizer,
        popart.DeviceManager().createCpuDevice(),
    )
    made.prepareDevice()
    made.weightsFromHost()
    return made, y


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_training(momentum: float) -> None:
    """The result, the gradient and the weight itself, of one shape and type with all that the step is given."""
    made, y = training(popart.SGD({"defaultLearningRate": (1.0, False), "defaultMomentum": (momentum, False)}))
    arrays = made.initAnchorArrays()
    stepio = popart.PyStepIO({"x": np.full((ROWS, COLUMNS), 1e3, np.float32)}, arrays)
    w = velocity = np.float32(0)
    for _ in range(5):
        made.run(stepio)
        np.testing.assert_array_equal(arrays[y], np.full((ROWS, COLUMNS), 1e3 + w, np.float32))
        np.testing.assert_array_equal(arrays[popart.reservedGradientPrefix() + "w"], 1)
        velocity = momentum * velocity + 1
        w -= velocity
        np.testing.assert_array_equal(arrays["w"], np.full((ROWS, COLUMNS), w, np.float32))
    made.weightsToHost()
    into = {"w": np.empty((ROWS, COLUMNS), np.float32)}
    made.readWeights(popart.PyWeightsIO(into))
    np.testing.assert_array_equal(into["w"], w)


def test_sessions_that_start_from_a_file(cache: Path, made_in_full: list[str], tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(model())
    for _ in range(2):
        made = session(str(file), "y", "row")
        arrays = made.initAnchorArrays()
        run_often(made, arrays)
        assert is_in_place(arrays["y"])
        run_often(made, {n: np.zeros_like(a) for n, a in arrays.items()})
        x = arrays["y"]
        for _ in range(2):
            wanted = 2 * x + 1
            made.run(popart.PyStepIO({"x": x}, arrays))
            np.testing.assert_array_equal(arrays["y"], wanted)
    assert made_in_full == ["session"]
    made.getInfo("y")  # makes the session in full, whose programs belong to another client of XLA
    run_often(made, arrays)
    arrays = made.initAnchorArrays()
    run_often(made, arrays)
    assert is_in_place(arrays["y"])


def test_callbacks_and_streams_get_copies() -> None:
    made = session()
    x, got = data(5), np.zeros((ROWS, COLUMNS), np.float32)
    for _ in range(2):
        got[...] = 0
        calls = lambda *_: x, lambda _: None, lambda _: got, lambda _: None
        made.run(popart.PyStepIOCallback(*calls))
        np.testing.assert_array_equal(got, 2 * x + 1)
    arrays = made.initAnchorArrays()
    with popart.Stream(iter([{"x": data(1)}, {"x": data(2)}]), arrays) as stream:
        for seed in (1, 2):
            made.run(stream)
            np.testing.assert_array_equal(arrays["y"], 2 * data(seed) + 1)


def test_an_interrupt_between_a_run_and_what_holds_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    made = session()
    arrays = made.initAnchorArrays()
    run_often(made, arrays)
    keep, due = Destinations.keep, [True]

    def interrupted(self: Destinations, results: Any) -> None:
        if due and due.pop():
            raise KeyboardInterrupt
        keep(self, results)

    monkeypatch.setattr(Destinations, "keep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_often(made, arrays)
    run_often(made, arrays)
    assert is_in_place(arrays["y"])


def test_memory_that_a_failed_run_has_lost_is_not_written_to() -> None:
    made = session()
    arrays = made.initAnchorArrays()
    x = data()
    stepio = popart.PyStepIO({"x": x}, arrays)
    made.run(stepio)
    made.run(stepio)
    memory = memory_of(arrays["y"])
    assert memory is not None
    kept, memory.array = memory.array, memory.array.copy()
    memory.array.delete()
    for again in (stepio, popart.PyStepIO({"x": x}, arrays)):
        with pytest.raises(popart.popart_runtime_error, match=r"lost when a run failed.*\n.*initAnchorArrays"):
            made.run(again)
    run_often(made, made.initAnchorArrays())
    own = {"y": np.zeros((ROWS, COLUMNS), np.float32)}
    run_often(made, own)
    del kept


def test_under_ulimit_results_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that finds too little memory would take that of the arrays with it."""
    monkeypatch.setattr(written_results, "is_limited", lambda: True)
    made = session()
    arrays = made.initAnchorArrays()
    memory = memory_of(arrays["y"])
    assert memory is not None
    held = memory.array
    run_often(made, arrays)
    assert memory.array is held


@pytest.mark.parametrize("count", [1, 2])
def test_threads_share_arrays(count: int) -> None:
    """Also of two sessions; the second one copies."""
    sessions, failed = [session() for _ in range(count)], list[BaseException]()
    arrays = sessions[0].initAnchorArrays()

    def work(seed: int) -> None:
        try:
            stepio = popart.PyStepIO({"x": data(seed)}, arrays)
            for _ in range(50):
                sessions[seed % count].run(stepio)
        except BaseException as err:
            failed.append(err)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert any(np.array_equal(arrays["y"], 2 * data(seed) + 1) for seed in range(4))


def test_a_result_is_stored_before_another_thread_takes_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    made, store, other_has_run = session(), FeedPlan.store, threading.Event()
    own = [{"y": np.zeros((ROWS, COLUMNS), np.float32)} for _ in range(3)]
    made.run(popart.PyStepIO({"x": data(0)}, own[0]))

    def late(self: FeedPlan, *args: Any) -> None:
        other_has_run.wait(0.5)
        store(self, *args)

    def other() -> None:
        made.run(popart.PyStepIO({"x": data(2)}, own[2]))
        other_has_run.set()

    monkeypatch.setattr(FeedPlan, "store", late)
    threads = [
        threading.Thread(target=made.run, args=(popart.PyStepIO({"x": iter([data(1)])}, own[1]),)),
        threading.Thread(target=other),
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    for seed in range(3):
        np.testing.assert_array_equal(own[seed]["y"], 2 * data(seed) + 1)


def test_what_is_told_of_memory_counts_results_as_results() -> None:
    told = session().memory
    assert told is not None
    assert LEAST <= told.arguments < LEAST + 64
    assert told.results == LEAST
