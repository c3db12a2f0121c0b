"""Reports of a session as programs read them, and what happens when memory does not suffice."""

from __future__ import annotations

import json
import re

import cbor2
import numpy as np
import pytest

import ipu_model
import popart_jax as popart
from ipu_model import pva


def session(engine=None, report=None, *, width=32, batch=8, name="layers", device=None):
    b = popart.Builder()
    x = h = b.addInputTensor(popart.TensorInfo("FLOAT", [batch, width]))
    for k in range(2):
        w = b.addInitializedInputTensor(np.zeros((width, width), np.float32), f"w{k}")
        h = b.aiOnnx.relu([b.aiOnnx.matmul([h, w], f"fc{k}")], f"relu{k}")
    loss = b.aiGraphcore.identityloss([h], debugContext="loss")
    options = popart.SessionOptions()
    options.engineOptions = engine or {}
    options.reportOptions = report or {}
    made = popart.TrainingSession(
        fnModel=b.getModelProto(),
        dataFlow=popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}),
        loss=loss,
        optimizer=popart.ConstSGD(0.1),
        userOptions=options,
        deviceInfo=device or popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 1472}),
        name=name,
    )
    return made, x


@pytest.fixture(scope="module")
def ran():
    made, x = session()
    made.prepareDevice()
    made.weightsFromHost()
    anchors = made.initAnchorArrays()
    for name in ("warm up", "step"):
        made.run(popart.PyStepIO({x: np.ones((8, 32), np.float32)}, anchors), name)
    return made


def test_runs_have_the_names_they_were_given(ran):
    runs = ran.getReport().execution.runs
    assert [r.name for r in runs] == ["warm up", "step"]
    assert runs[0].microseconds.end == runs[1].microseconds.start > 0


def test_before_a_run_there_is_none():
    made, _ = session()
    made.prepareDevice()
    report = made.getReport()
    assert str(report) == str(report.model)  # ten lines
    assert report.execution.runs == []
    assert report.execution.totalCycles > 0


def test_the_forms_of_the_report_agree(ran):
    graph, execution, report = json.loads(ran.getGraphReport()), json.loads(ran.getExecutionReport()), ran.getReport()
    assert isinstance(report, pva.Report)
    assert cbor2.loads(ran.getGraphReport(useCbor=True)) == graph
    assert cbor2.loads(ran.getExecutionReport(useCbor=True)) == execution
    assert graph["memory"]["byTile"]["total"] == [t.memory.total.excludingGaps for t in report.compilation.tiles]
    assert round(execution["simulation"]["cycles"]) == report.execution.totalCycles
    names = {v.name for v in report.compilation.alwaysLiveVariables}
    assert {"w0", "w1"} <= names
    assert f"{report.execution.totalCycles:,}" in ran.getSummaryReport()


def test_unprepared_and_cpu_sessions_have_no_report():
    made, _ = session()
    for query in (made.getSummaryReport, made.getReport, made.getGraphReport, made.getExecutionReport):
        with pytest.raises(popart.popart_runtime_error, match="must have been prepared"):
            query()
    made, _ = session(device=popart.DeviceManager().createCpuDevice())
    made.prepareDevice()
    for query in (made.getSummaryReport, made.getReport):
        with pytest.raises(popart.poplar_exception, match=r"Profiling is disabled for current device type\.$"):
            query()


def test_hardware_has_as_few_tiles_as_were_asked_for():
    made, _ = session(device=popart.DeviceManager().createOfflineIPUDevice({"tilesPerIPU": 4}))
    made.prepareDevice()
    assert len(made.getReport().compilation.tiles) == 4


@pytest.fixture
def large(monkeypatch):
    """A session of small arrays on a chip with little memory, so that nothing large has to be made."""
    from popart_jax.session.reports import pricing

    real = pricing.target_of
    monkeypatch.setattr(pricing, "target_of", lambda device: real(device).replace(tile_memory=4096))
    return session


def test_too_large_without_asking_is_no_error(large):
    made, _ = large()
    made.prepareDevice()


def test_too_large_raises_with_the_explanation_when_asked(large, tmp_path):
    made, _ = large({"debug.allowOutOfMemory": "true", "autoReport.outputGraphProfile": "true",
                     "autoReport.directory": str(tmp_path)}, name="big")  # fmt: skip
    with pytest.raises(popart.OutOfMemoryException) as caught:
        made.prepareDevice()
    err = caught.value
    text = str(err)
    assert text == err.args[0]
    assert text.startswith("Out of memory: Cannot fit all variable data onto one or more tiles")
    assert "tile 0 needs " in text
    assert "always live" in text
    assert "lever" in text
    assert "Memory Usage:" in err.getSummaryReport()
    path = err.getProfilePath()
    assert path == str(tmp_path / "big" / "profile.pop")
    stored = pva.openReport(path)
    worst = max(t.memory.total.includingGaps for t in stored.compilation.tiles)
    assert worst > 4096
    graph = json.loads(err.getGraphReport())
    assert max(graph["memory"]["byTile"]["totalIncludingGaps"]) == worst
    assert cbor2.loads(err.getGraphReport(useCbor=True)) == graph
    assert not err.error.isSuccessful()
    assert "Memory Usage:" in made.getSummaryReport()


def test_an_error_object_is_filled_instead(large):
    made, _ = large({"debug.allowOutOfMemory": "true"})
    outcome = popart.OutOfMemoryError()
    assert outcome.getGraphReport() == b""
    made.prepareDevice(err=outcome)
    assert not outcome.isSuccessful()
    assert "needs" in str(outcome)
    assert outcome.getProfilePath() == ""


def test_what_fits_is_no_error():
    made, _ = session({"debug.allowOutOfMemory": "true"})
    outcome = popart.OutOfMemoryError()
    made.prepareDevice(err=outcome)
    assert outcome.isSuccessful()


@pytest.mark.parametrize("grouped", [False, True])
def test_grouped_transfers_are_the_first_and_the_last_step(grouped):
    builder = popart.Builder()
    x, y = (builder.addInputTensor(popart.TensorInfo("FLOAT", [4])) for _ in range(2))
    first = builder.aiOnnx.exp([x])
    last = builder.aiOnnx.add([first, y])
    flow = popart.DataFlow(1, {out: popart.AnchorReturnType("All") for out in (first, last)})
    options = popart.SessionOptions()
    options.groupHostSync, options.reportOptions = grouped, {"showExecutionSteps": "true"}
    device = popart.DeviceManager().createIpuModelDevice({})
    session = popart.InferenceSession(builder.getModelProto(), flow, device, userOptions=options)
    session.prepareDevice()
    text = session.getSummaryReport()
    steps = [line.split(":")[0].strip() for line in text[text.index("Program:") :].split("\n\n")[0].splitlines()[1:]]
    assert steps[:2] == ["Switch", "Sequence"]
    kinds = [step for step in steps[2:] if step in ("StreamCopy", "OnTileExecute")]
    if grouped:
        assert (kinds[0], kinds[-1], kinds.count("StreamCopy")) == ("StreamCopy", "StreamCopy", 2)
    else:
        assert kinds.count("StreamCopy") == 4


def test_each_convolution_of_a_multiconv_has_its_own_partial_sums():
    builder = popart.Builder()
    x, k = builder.addInputTensor("FLOAT16", [2, 4, 4, 4]), builder.addInputTensor("FLOAT16", [3, 4, 3, 3])
    outs = builder.aiGraphcore.multiconv([[x, k], [x, k]], partialsTypes=["HALF", "FLOAT"])
    flow = popart.DataFlow(1, {out: popart.AnchorReturnType("All") for out in outs})
    session = popart.InferenceSession(builder.getModelProto(), flow, popart.DeviceManager().createIpuModelDevice({}))
    session.prepareDevice()
    text = session.getSummaryReport()
    names = [line.split()[0] for line in text.splitlines() if line.strip().startswith("poplin::ConvPartial")]
    assert {re.search("<.*>", name)[0] for name in names} == {"<half,half>", "<half,float>"}


@pytest.mark.parametrize("kind", ["half", "float"])
def test_vertices_name_the_type_of_partial_sums(kind):
    builder = popart.Builder()
    x, k = builder.addInputTensor("FLOAT16", [2, 4, 4, 4]), builder.addInputTensor("FLOAT16", [3, 4, 3, 3])
    several = builder.aiGraphcore.multiconv([[x, k], [x, k]], partialsTypes=[kind.upper()] * 2)
    product = builder.aiOnnx.matmul([x, x])
    builder.setPartialsType(product, kind.upper())
    flow = popart.DataFlow(1, {out: popart.AnchorReturnType("All") for out in (product, *several)})
    session = popart.InferenceSession(builder.getModelProto(), flow, popart.DeviceManager().createIpuModelDevice({}))
    session.prepareDevice()
    text = session.getSummaryReport()
    section = text[text.index("By Type:") :].split("\n\n")[0]
    names = [line.split()[0] for line in section.splitlines() if "ConvPartial" in line]
    assert f"poplin::ConvPartial1x1Out<half,{kind}>" in names
    assert len(set(names)) > 1
    assert all(f"<half,{kind}>" in name for name in names), names


def test_the_environment_gives_engine_options_that_win(monkeypatch, tmp_path):
    asked = {"autoReport.all": True, "autoReport.directory": str(tmp_path / "asked")}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(asked))
    made, _ = session({"autoReport.directory": str(tmp_path / "own")}, name="net")
    made.prepareDevice()
    stored = pva.openReport(tmp_path / "asked" / "net" / "profile.pop")
    assert stored.execution.totalCycles == made.getReport().execution.totalCycles
    assert not (tmp_path / "own").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{", "must be a JSON object"),
        ("[1]", "must be a JSON object"),
        ('{"popart_jax.stages": "devices"}', r"popart_jax\.stages: set it in SessionOptions\.engineOptions"),
    ],
)
def test_engine_options_of_the_environment_that_cannot_be_read(monkeypatch, given, told):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", given)
    made, _ = session()
    with pytest.raises(popart.poplar_exception, match=told):
        made.prepareDevice()


@pytest.mark.parametrize("batches", [1, 3])
def test_optimizer_state_off_chip_is_read_and_written_for_each_batch(batches):
    def host_bytes(off_chip):
        b = popart.Builder()
        x = b.addInputTensor(popart.TensorInfo("FLOAT", [4, 64]))
        w = b.addInitializedInputTensor(np.zeros((64, 64), np.float32), "w")
        loss = b.aiGraphcore.identityloss([b.aiOnnx.matmul([x, w])])
        options = popart.SessionOptions()
        if off_chip:
            options.optimizerStateTensorLocationSettings.location.storage = popart.TensorStorage.OffChip
            options.optimizerStateTensorLocationSettings.minElementsForOffChip = 0
        made = popart.TrainingSession(
            fnModel=b.getModelProto(),
            dataFlow=popart.DataFlow(batches, {loss: popart.AnchorReturnType("Final")}),
            loss=loss,
            optimizer=popart.Adam({"defaultLearningRate": (0.1, True)}),  # two states
            userOptions=options,
            deviceInfo=popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 1472}),
        )
        made.prepareDevice()
        chip = ipu_model.get_target("mk2")
        return made.getReport().model.cycles.host / chip.clock_hz * chip.streaming_bytes_per_second

    assert host_bytes(True) - host_bytes(False) == pytest.approx(batches * 2 * 2 * 4 * 64 * 64, rel=0.01)


def test_steps_outside_of_all_nodes_are_named_by_what_they_do():
    """Lines of our own files say nothing to the user."""
    b = popart.Builder()
    x = b.addInputTensor(popart.TensorInfo("FLOAT", [4, 8]))
    w = b.addInitializedInputTensor(np.zeros((8, 8), np.float32), "w")
    loss = b.aiGraphcore.identityloss([b.aiOnnx.matmul([x, w])])
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    made = popart.TrainingSession(
        fnModel=b.getModelProto(),
        dataFlow=popart.DataFlow(2, {loss: popart.AnchorReturnType("All")}),
        loss=loss,
        optimizer=popart.Adam({"defaultLearningRate": (0.1, False)}),
        userOptions=options,
        deviceInfo=popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 1472}),
    )
    made.prepareDevice()
    names = {row.name for row in made.getReport().model.operations}
    assert {"MatMul:0", "loss scale", "accumulate gradients", "update"} <= names  # not MatMul:MatMul:0
    assert not [name for name in names if ".py:" in name]
