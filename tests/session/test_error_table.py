"""The errors that programs meet most often (semantics 15.2): a row each, with the smallest program that meets it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import popart_jax as popart

from . import nets

pytestmark = pytest.mark.usefixtures("popart_names")

Build = Callable[[popart.Builder], Any]
OLD = popart.popart_exception
RUN = popart.popart_runtime_error


def infer(build: Build, **options: Any) -> Callable[[], Any]:
    """A session over what `build` makes."""

    def make() -> popart.InferenceSession:
        builder = popart.Builder()
        out = build(builder)
        outs = [out] if isinstance(out, str) else out
        return popart.InferenceSession(
            builder.getModelProto(),
            popart.DataFlow(1, {o: popart.AnchorReturnType("All") for o in outs}),
            popart.DeviceManager().createIpuModelDevice({"numIPUs": 2 if options else 1}),
            userOptions=nets.make_options(**options),
        )

    return make


def x(builder: popart.Builder, *shape: int, kind: str = "FLOAT") -> str:
    return builder.addInputTensor(kind, list(shape))


def ones(builder: popart.Builder, *shape: int) -> str:
    return builder.addInitializedInputTensor(np.ones(shape, np.float32))


def model(node: onnx.NodeProto, shape: list[Any], opset: int = 10, kind: str = "x") -> bytes:
    infos = [helper.make_tensor_value_info(n, 1, shape) for n in (kind, "y")]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)
    return made.SerializeToString()


def open_session(proto: bytes) -> Callable[[], Any]:
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    return lambda: popart.InferenceSession(proto, flow, nets.device())


def scan_of_opset_8() -> bytes:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["p", "q"], ["s"])], "body", [value(n, 1, [2]) for n in "pq"], [value("s", 1, [2])]
    )
    node = helper.make_node("Scan", ["", "x"], ["y"], body=body, num_scan_inputs=1)
    return model(node, [1, 3, 2], opset=8)


def some_annotated(builder: popart.Builder) -> str:
    with builder.virtualGraph(0):
        y = builder.aiOnnx.relu([x(builder, 2)])
    return builder.aiOnnx.neg([y])


def training(loss: str = "loss", **more: Any) -> popart.TrainingSession:
    proto, _ = nets.linear()
    return popart.TrainingSession(proto, nets.flow(1, {"loss": "All"}), loss, nets.sgd(), nets.device(), **more)


def ready() -> popart.TrainingSession:
    return nets.train(nets.linear()[0], {"loss": "All"}, nets.sgd())


def step(**inputs: np.ndarray) -> Callable[[], Any]:
    return lambda: ready().run(popart.PyStepIO(inputs, {"loss": np.zeros(1, np.float32)}))


def unprepared_run() -> None:
    session = training()
    session.prepareDevice()
    session.run(popart.PyStepIO({"x": np.ones(3, np.float32)}, session.initAnchorArrays()))


def batch_norm(shape: list[int], channels: int) -> Build:
    return lambda b: b.aiOnnx.batchnormalization([x(b, *shape), *(ones(b, channels) for _ in range(4))], 1)


def nll(shape: list[int], kind: str = "INT32") -> Build:
    return lambda b: b.aiGraphcore.nllloss([b.aiOnnx.softmax([x(b, 4, 3)]), x(b, *shape, kind=kind)])


def without_external_file() -> None:
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[2], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="nowhere.bin")
    proto = onnx.load_model_from_string(model(helper.make_node("Add", ["x", "w"], ["y"]), [2]))
    proto.graph.initializer.append(tensor)
    proto.graph.input.append(helper.make_tensor_value_info("w", 1, [2]))
    popart.Builder(proto.SerializeToString())


def mandatory_off() -> None:
    popart.Patterns(popart.PatternsLevel.Default).enablePattern("ExpGradOp", False)


def folded(b: popart.Builder) -> str:
    """Of a model with an operator, only a constant is anchored."""
    b.aiOnnx.relu([x(b, 2)])
    return b.aiOnnx.constant(np.ones(2, np.float32))


def dead_subgraph(builder: popart.Builder) -> str:
    """A call whose operators lead to no output: it returns its argument."""
    callee = builder.createSubgraphBuilder()
    callee.setGraphName("dead")
    inner = callee.addUntypedInputTensor("inner")
    callee.aiOnnx.relu([inner])
    callee.addOutputTensor(inner)
    return builder.aiGraphcore.call([x(builder, 2)], 1, callee)[0]


def cycles_too_early() -> None:
    options = nets.make_options(instrumentWithHardwareCycleCounter=True)
    session = training(userOptions=options)
    session.prepareDevice()
    session.getCycleCount()


RELU = helper.make_node("Relu", ["x"], ["y"])
MANUAL = {"virtualGraphMode": popart.VirtualGraphMode.Manual}
FLAT = np.ones((3, 2), np.float32).T
TABLE: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "unknown tensor": (lambda: popart.Builder().aiOnnx.relu(["q"]), OLD, "Unknown tensor 'q'"),
    "number of inputs": (lambda: popart.Builder().aiOnnx.relu([]), OLD, "has invalid number of inputs"),
    "unsupported op": (open_session(model(helper.make_node("Foo", ["x"], ["y"]), [2])), OLD, "No class for"),
    "unparsable": (lambda: popart.Builder(b"\xff"), OLD, "Failed to load a ModelProto from the string"),
    "external data": (without_external_file, RuntimeError, "doesn't exist or is not accessible"),
    "symbolic dimension": (open_session(model(RELU, ["n"])), OLD, "must be specified in InputShapeInfo"),
    "negative dimension": (open_session(model(RELU, [-1])), OLD, "must be specified in InputShapeInfo"),
    "reserved name": (
        open_session(model(helper.make_node("Relu", ["Accl___x"], ["y"]), [2], kind="Accl___x")),
        OLD,
        "has an invalid name: clash with reserved prefix",
    ),
    "engine too early": (lambda: training().loadEngineAndConnectStreams(), RUN, "no compiled engine"),
    "export": (lambda: ready().compileAndExport("never.popef"), OLD, "Executables for device type"),
    "some annotated": (
        infer(some_annotated, **MANUAL),
        OLD,
        "Either all Ops must have their virtual graph ids set, or none must",
    ),
    "op version": (open_session(scan_of_opset_8()), OLD, "the ONNX spec stipulates that a"),
    "no loss": (lambda: training("zz"), OLD, "Could not find loss tensor"),
    "loss of three": (lambda: training("y"), OLD, "must be a scalar tensor"),
    "no anchor": (infer(lambda b: [b.aiOnnx.relu([x(b, 2)]), "zz"]), OLD, "not in Ir Tensors"),
    "labels": (infer(nll([5])), OLD, "The label tensor"),
    "labels of floats": (infer(nll([4], "FLOAT")), OLD, "integer data type"),
    "l1 of a scalar": (infer(lambda b: b.aiGraphcore.l1loss([x(b)], 0.1)), OLD, "rank-0"),
    "batch norm rank": (infer(batch_norm([4, 3], 3)), OLD, "rank >= 3"),
    "batch norm statistics": (infer(batch_norm([4, 3, 2, 2], 5)), OLD, "expected shape of batch norm"),
    "matmul": (infer(lambda b: b.aiOnnx.matmul([x(b, 2, 3), x(b, 2, 3)])), OLD, "contracting dimensions unequal"),
    "matmul of a scalar": (infer(lambda b: b.aiOnnx.matmul([x(b, 2), x(b)])), OLD, "doesn't support scalar tensor"),
    "broadcast": (infer(lambda b: b.aiOnnx.add([x(b, 2), x(b, 3)])), OLD, "np broadcasting failed"),
    "dropout": (infer(lambda b: b.aiOnnx.dropout([x(b, 2)], 1, 1.0)), OLD, "Please use a value in the interval [0,1)"),
    "seed": (infer(lambda b: b.aiOnnx.randomnormal([2], seed=1.0)), OLD, "Optional seed attribute is not supported"),
    "size": (step(x=np.ones(4, np.float32)), RUN, "Unexpected number of"),
    "dtype": (step(x=np.ones(3)), RUN, "Type discrepancy"),
    "no entry": (step(), RUN, "No tensor"),
    "not contiguous": (lambda: popart.PyStepIO({"x": FLAT}, {}), OLD, "not c-contiguous"),
    "weights": (unprepared_run, RUN, "Must call weightsFromHost before run"),
    "cycles": (cycles_too_early, RUN, "Must call run before getCycleCount"),
    "optimizer": (
        lambda: ready().updateOptimizerFromHost(nets.sgd(0.1, const=False)),
        OLD,
        "Problem with learning rates",
    ),
    "mandatory pattern": (mandatory_off, OLD, "is mandatory and cannot be disabled"),
    "no patterns": (
        lambda: training(patterns=popart.Patterns(popart.PatternsLevel.NoPatterns)),
        OLD,
        "must be enabled",
    ),
    "device option": (lambda: popart.DeviceManager().createIpuModelDevice({"foo": 1}), OLD, "Invalid option"),
    "three IPUs": (lambda: popart.DeviceManager().acquireAvailableDevice(3), OLD, "must be a power of two"),
    "nothing to do": (infer(folded), OLD, "All operations in the main graph were pruned, nothing to compute"),
    "nothing to do in a subgraph": (
        infer(dead_subgraph),
        OLD,
        "All operations in graph dead were pruned, nothing to compute",
    ),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE)
def test_texts(case: tuple[Callable[[], Any], type[Exception], str], monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    call, kind, text = case
    with pytest.raises(kind) as caught:
        call()
    assert text in caught.value.args[0]
    assert isinstance(caught.value, popart.popart_exception) == issubclass(kind, popart.popart_exception)


OF_POPART = {name: case for name, case in TABLE.items() if issubclass(case[1], popart.popart_exception)}


@pytest.mark.parametrize("case", OF_POPART.values(), ids=OF_POPART)
def test_each_error_is_logged_once(case: tuple[Callable[[], Any], type[Exception], str], capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, _, text = case
    with pytest.raises(popart.popart_exception) as caught:
        call()
    lines = [line for line in capfd.readouterr().err.split("\n") if " E: " in line]
    assert len(lines) == 1
    assert lines[0].endswith(f" E: {caught.value.args[0]}".split("\n")[0])
    assert text in caught.value.args[0]


def test_an_error_that_nobody_is_given_is_not_logged(capfd) -> None:
    popart.popart_exception("made, and never raised")
    assert not capfd.readouterr().err
