"""What options and the environment make a session write: IR, dot files, planner lines, tensors (semantics 16.2)."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import popart_jax as popart


def session(options: popart.SessionOptions | None = None, batches: int = 1) -> tuple[popart.TrainingSession, dict]:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    w = builder.addInitializedInputTensor(np.ones((3, 2), np.float32), "w")
    product = builder.aiOnnx.matmul([x, w])
    builder.setAvailableMemoryProportion(product, 0.5)
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.relu([product], "mine")])
    made = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(batches, {loss: popart.AnchorReturnType("All")}),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createIpuModelDevice({}),
        userOptions=options or popart.SessionOptions(),
    )
    return made, {x: np.full((2, 3), 2, np.float32)}


def test_ir_dump(monkeypatch, tmp_path):
    path = tmp_path / "ir.json"
    monkeypatch.setenv("POPART_IR_DUMP", str(path))
    made, _ = session()
    assert json.loads(path.read_text()) == json.loads(made._serializeIr(popart.IrSerializationFormat.JSON))


@pytest.mark.parametrize("by_variable", [True, False])
def test_dot_files(monkeypatch, tmp_path, by_variable):
    options = popart.SessionOptions()
    options.logDir, options.dotOpNames = str(tmp_path / "logs"), True
    if by_variable:
        monkeypatch.setenv("POPART_DOT_CHECKS", "Fwd0:Final")
    else:
        options.dotChecks = {"Fwd0", "Final"}
    session(options)
    files = {p.name: p.read_text() for p in (tmp_path / "logs").iterdir()}
    assert sorted(files) == ["Final_maingraph.dot", "Fwd0_maingraph.dot"]
    assert "mine" in files["Final_maingraph.dot"]
    assert '"Gradient___' in files["Final_maingraph.dot"]
    assert '"Gradient___' not in files["Fwd0_maingraph.dot"]
    nodes = re.findall(r"op\d+ \[shape=box", files["Final_maingraph.dot"])
    assert len(nodes) > 3


def test_dot_files_are_true_to_their_stage(tmp_path):
    """Gradients come after the forward patterns, loops after the updates, in-place variants at the very end."""
    options = popart.SessionOptions()
    options.logDir, options.dotChecks = str(tmp_path), {"ALL"}
    options.useHostCopyOps = options.enableExplicitMainLoops = True
    session(options, batches=2)
    drawn = {p.name: p.read_text() for p in tmp_path.iterdir()}
    main = {name.split("_")[0]: text for name, text in drawn.items() if name.endswith("_maingraph.dot")}
    assert main.keys() == {"Fwd0", "Fwd1", "Bwd0", "PreAlias", "MainLoops", "Final"}
    ops = {check: re.findall(r'label="(\w+)', text) for check, text in main.items()}
    assert ops["Fwd0"] == ["MatMul", "Relu", "IdentityLoss"]
    assert "Reshape" in ops["Fwd1"]  # MatMulOp
    assert "ReluGrad" not in ops["Fwd1"]
    assert "ReluGrad" in ops["Bwd0"]
    assert "SGD0VarUpdate" not in ops["Bwd0"]
    assert ops["MainLoops"] == ["Loop"]
    inner = {check: drawn[f"{check}_loop_subgraph(0).dot"] for check in ("MainLoops", "PreAlias", "Final")}
    assert all("SGD0VarUpdate" in text for text in inner.values())
    assert "ReluInplace" in inner["Final"]
    assert "ReluInplace" not in inner["PreAlias"]


def test_ir_dump_of_a_session_that_can_not_be_made(monkeypatch, tmp_path):
    path = tmp_path / "ir.json"
    monkeypatch.setenv("POPART_IR_DUMP", str(path))
    options = popart.SessionOptions()
    options.accumulationFactor = 2
    with pytest.raises(popart.popart_exception, match="accumulationFactor"):
        session(options)
    assert [op["type"] for op in json.loads(path.read_text())["maingraph"]] == ["MatMul", "Relu", "IdentityLoss"]


def test_dot_range_and_unknown_checkpoints(tmp_path):
    options = popart.SessionOptions()
    options.logDir, options.dotChecks, options.firstDotOp, options.finalDotOp = str(tmp_path), {"ALL"}, 1, 2
    session(options)
    assert len(list(tmp_path.iterdir())) == 6
    assert (tmp_path / "Bwd0_maingraph.dot").read_text().count("shape=box") == 1
    options.dotChecks = {"Nowhere"}
    with pytest.raises(popart.popart_exception, match="Nowhere"):
        session(options)


def test_schedules(tmp_path):
    options = popart.SessionOptions()
    options.serializedPoprithmsShiftGraphsDir = str(tmp_path)
    session(options)
    ops = json.loads((tmp_path / "poprithms_shift_graph_0.json").read_text())["ops"]
    assert all(before < i for i, op in enumerate(ops) for before in op["after"])
    assert "mine" in [op["name"] for op in ops]
    options.serializedPoprithmsShiftGraphsDir = str(tmp_path / "none")
    with pytest.raises(popart.popart_exception, match="is no folder"):
        session(options)


def test_planner_lines(monkeypatch, capsys):
    monkeypatch.setenv("POPLIBS_LOG_LEVEL", "DEBUG")
    made, _ = session()
    made.prepareDevice()
    text = capsys.readouterr().err
    assert f"Planning convolution with a per-tile memory limit of {638976 // 2}" in text
    block = text.split("Options:")[1]
    assert re.search(r"^ +availableMemoryProportion +0\.5$", block, re.M)
    assert re.search(r"^ +partialsType +float$", block, re.M)
    assert re.search(r"^ +enableConvDithering +0$", block, re.M)


def test_dithering_of_a_convolution(monkeypatch, capsys):
    """The op list shows the annotation, also on the gradients, and the planner gets it."""
    monkeypatch.setenv("POPLIBS_LOG_LEVEL", "DEBUG")
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 1, 4, 4], "x")
    w = builder.addInitializedInputTensor(np.ones((1, 1, 3, 3), np.float32), "w")
    out = builder.aiOnnx.conv([x, w])
    builder.setEnableConvDithering(out, 1)
    loss = builder.aiGraphcore.l1loss([out], 0.1)
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createIpuModelDevice({})
    made = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device)
    ops = json.loads(made._serializeIr(popart.IrSerializationFormat.JSON))["maingraph"]
    shown = {op["type"]: op["attributes"]["enableConvDithering"] for op in ops if op["type"].startswith("Conv")}
    assert shown == {"Conv": "1", "ConvWeightsGrad": "1"}
    made.prepareDevice()
    assert set(re.findall(r"^ +enableConvDithering +(\d)$", capsys.readouterr().err, re.M)) == {"1"}


def test_printed_tensors(monkeypatch, capfd):
    monkeypatch.setenv("POPART_PRINT_TENSORS", "MatMul:0 nothing")
    made, feeds = session()
    made.prepareDevice()
    made.weightsFromHost()
    made.run(popart.PyStepIO(feeds, made.initAnchorArrays()))
    assert "MatMul:0: [[6.0000000 6.0000000]" in capfd.readouterr().err


@pytest.mark.parametrize("staged", [False, True])
def test_printed_tensors_stand_on_the_ipu_that_makes_them(monkeypatch, capfd, staged):
    """An operator without a place would be refused in a program whose operators all have one."""
    monkeypatch.setenv("POPART_PRINT_TENSORS", "x Exp:0 Gradient___x")
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    value, layers = x, (builder.aiOnnx.exp, builder.aiOnnx.relu)
    for i, layer in enumerate(layers):
        value = layer([value])
        builder.virtualGraph(value, i)
        if staged:
            builder.pipelineStage(value, i)
    options = popart.SessionOptions()
    options.virtualGraphMode, options.enablePipelining = popart.VirtualGraphMode.Manual, staged
    made = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(2, {value: popart.AnchorReturnType("All")}),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
        userOptions=options,
    )
    made.prepareDevice()
    made.run(popart.PyStepIO({x: np.zeros((2, 2), np.float32)}, made.initAnchorArrays()))
    text = capfd.readouterr().err
    assert text.count("x: [0.0000000 0.0000000]") == text.count("Exp:0: [1.0000000 1.0000000]") == 2
    assert "POPART_PRINT_TENSORS: 'Gradient___x' is no tensor of the model" in text
    ops = json.loads(made._serializeIr(popart.IrSerializationFormat.JSON))["maingraph"]
    assert {op["attributes"]["__ipu_number"] for op in ops if op["type"] == "PrintTensor"} == {"0"}


@pytest.mark.parametrize("replicas", [1, 2])
def test_traced_operators(monkeypatch, capfd, replicas):
    """Each operator is told when it runs, forwards in order and then backwards; values stay."""
    options = popart.SessionOptions()
    if replicas > 1:
        options.enableReplicatedGraphs, options.replicatedGraphCount = True, replicas
    found = []
    for value in ("0", "1"):
        monkeypatch.setenv("POPART_OPX_TRACE", value)
        made, feeds = session(options)
        made.prepareDevice()
        made.weightsFromHost()
        anchors = made.initAnchorArrays()
        made.run(popart.PyStepIO({n: np.stack([x] * replicas) for n, x in feeds.items()}, anchors))
        found.append(anchors)
        text = capfd.readouterr().err
        told = [line for line in text.splitlines() if "Op(" in line]
        assert value == "1" or not told
    for name, expected in found[0].items():
        np.testing.assert_array_equal(found[1][name], expected)
    forward = [line for line in told if not line.startswith("gradient of ")]
    types = [re.search(r"ai\.\w+\.(\w+):", line).group(1) for line in forward]
    assert types == [t for t in ("MatMul", "Relu", "IdentityLoss") for _ in range(replicas)]
    assert told[: len(forward)] == forward
    assert len(told) == 2 * len(forward)


def test_compilation_progress():
    options, seen = popart.SessionOptions(), []
    options.compilationProgressLogger = lambda done, total: seen.append((done, total))
    options.compilationProgressTotal = 30
    made, _ = session(options)
    assert seen == []
    made.prepareDevice()
    assert seen == [(0, 30), (10, 30), (20, 30), (30, 30)]
