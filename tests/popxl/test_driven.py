"""A PopXL program behind PopART's session interface: every method works, or says what to do in its place."""

from __future__ import annotations

import json

import numpy as np
import pytest

import popart_jax as popart
from popart_jax import popxl
from popart_jax.popxl import ops

ONES = np.ones(2, np.float32)


@pytest.fixture(scope="module")
def session():
    ir = popxl.Ir()
    ir._pb_ir.getSessionOptions().instrumentWithHardwareCycleCounter = True
    with ir.main_graph, popxl.in_sequence():
        source, sink = popxl.h2d_stream((2,), popxl.float32, "x"), popxl.d2h_stream((2,), popxl.float32, "y")
        weight = popxl.variable(ONES, name="w")
        ops.host_store(sink, ops.host_load(source) + weight)
        ops.add_(weight, popxl.constant(ONES))
    ir._pb_ir.setDataFlow(popart.DataFlow(1, {"y": popart.AnchorReturnType("All")}))
    device = popart.DeviceManager().createIpuModelDevice({})
    made = popart.InferenceSession.fromIr(ir=ir._pb_ir, deviceInfo=device)
    made.prepareDevice()
    with pytest.raises(popart.popart_runtime_error, match=r"^Must call run before getCycleCount\.$"):
        made.getCycleCount()
    return made


def test_facts(session):
    assert session.getIr().getMainGraph().getOps()
    assert session.getInfo("w").shape() == [2]
    assert {"x", "y", "w", "add_out"} <= session.getAllTensorIds()
    assert (session.dataFlow.batchesPerStep(), session.replicationFactor, session.accumulationFactor) == (1, 1, 1)
    assert session.memory.peak > 0
    with pytest.raises(popart.popart_exception, match="No tensor with id 'z'"):
        session.getInfo("z")


def test_weights_and_their_copies(session):
    session.loadEngineAndConnectStreams()
    arrays = {"w": np.zeros(2, np.float32)}
    io, found = popart.PyWeightsIO(arrays), {"y": np.zeros(2, np.float32)}
    session.run(popart.PyStepIO({"x": ONES}, found))
    assert not session.areHostWeightsInSync()
    session.copyDeviceWeightsToHost()
    assert session.areHostWeightsInSync()
    session.readWeights(io)
    np.testing.assert_array_equal(arrays["w"], found["y"])
    session.markHostWeightsOutOfSync()
    assert not session.areHostWeightsInSync()
    session.markHostWeightsInSync()
    assert session.areHostWeightsInSync()


def test_reports(session):
    session.run(popart.PyStepIO({"x": ONES}, {}))
    assert session.getCycleCount() == round(session.getReport().execution.totalCycles) > 0
    for text in (session.getGraphReport(), session.getExecutionReport()):
        assert json.loads(text)
    assert b"module" in session.getSerializedGraph()
    session.setRandomSeed(3)
    assert session.getRandomSeed() == 0


@pytest.mark.parametrize("method", ["saveExecutable", "modelToHost", "getRNGState"])
def test_what_such_a_session_has_not(session, method):
    text = rf"^{method} is not available for the session of a PopXL program\.\n  fix: "
    with pytest.raises(popart.popart_exception, match=text):
        getattr(session, method)(*[] if method == "getRNGState" else ["file"])


def test_too_large_a_program_fills_the_error_that_is_given(monkeypatch):
    from popart_jax.popxl._running import reports

    real = reports.target_of
    monkeypatch.setattr(reports, "target_of", lambda device: real(device).replace(tile_memory=64))
    ir = popxl.Ir()
    ir._pb_ir.getSessionOptions().engineOptions = {"debug.allowOutOfMemory": "true"}
    with ir.main_graph:
        ops.add_(popxl.variable(np.ones(60_000, np.float32)), popxl.constant(1.0))
    device = popart.DeviceManager().createIpuModelDevice({})
    outcome = popart.OutOfMemoryError()
    popart.InferenceSession.fromIr(ir, device).prepareDevice(err=outcome)
    assert not outcome.isSuccessful()
    assert "needs" in str(outcome)
    with pytest.raises(popart.OutOfMemoryException):
        popart.InferenceSession.fromIr(ir, device).prepareDevice()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (("All",), [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (("Final",), [6, 7]),
        (("EveryN", 2), [[2, 3], [6, 7]]),
        (("Sum",), [12, 16]),
    ],
)
def test_return_types_of_anchors(kind, expected):
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        source, sink = popxl.h2d_stream((2,), popxl.float32, "x"), popxl.d2h_stream((2,), popxl.float32, "y")
        ops.repeat(ir.create_graph(lambda: ops.host_store(sink, ops.host_load(source) + 0.0)), 4)
    ir._pb_ir.setDataFlow(popart.DataFlow(4, {"y": popart.AnchorReturnType(*kind)}))
    session = popart.InferenceSession.fromIr(ir, popart.DeviceManager().createCpuDevice())
    session.prepareDevice()
    found = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.arange(8, dtype=np.float32).reshape(4, 2)}, found))
    np.testing.assert_array_equal(found["y"], expected)
