"""Executable cache, log lines, dot files, reports, PopART's session interface."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import popart_jax as popart
from ipu_model import pva
from popart_jax import popxl
from popart_jax._compat.jax import compilation_cache
from popart_jax.popxl import ops
from popart_jax.popxl._running import program as _program

from . import process_worker


def program(factor=2.0, initial=1.0):
    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable(np.full((3,), initial, np.float32), name="v")
        sink = popxl.d2h_stream((3,), popxl.float32, "out")
        ops.host_store(sink, v * factor)
    return ir, sink


@pytest.fixture
def info_log():
    popart.getLogger().setLevel("INFO")
    yield
    popart.getLogger().setLevel("WARN")


def test_cache(tmp_path, capfd, monkeypatch, info_log):
    monkeypatch.setenv("POPXL_CACHE_DIR", str(tmp_path))

    def run(**keywords):
        ir, sink = program(**keywords)
        with popxl.Session(ir) as session:
            value = session.run()[sink]
        return value, capfd.readouterr().err

    value, log = run()
    assert "Starting compilation" in log
    (file,) = tmp_path.glob("*.popef")
    value, log = run(initial=5.0)
    np.testing.assert_array_equal(value, [10, 10, 10])
    assert "Starting compilation" not in log
    assert f"Loading serialized PopART executable from {file}" in log
    assert f"PopEF file inferred to have hash '{file.stem}' has been found: {file}" in log
    _, log = run(factor=3.0)
    assert "Starting compilation" in log
    assert len(list(tmp_path.glob("*.popef"))) == 2
    monkeypatch.setenv("POPART_PRELOAD_POPEF", "full-preload")
    _, log = run()
    assert "Performing preload of popef file" in log
    assert "Completed preload of popef file" in log
    for path in tmp_path.glob("*.popef"):
        path.write_bytes(b"nonsense")
    _, log = run()
    assert "Ignoring cache file because it does not contain" in log
    assert "Starting compilation" in log


def two_streams(factor=2.0, initial=1.0, twice=False):
    """A called graph with a gradient, on two inputs that are loaded together."""
    ir = popxl.Ir()
    with ir.main_graph:
        streams = [popxl.h2d_stream((3,), popxl.float32, n) for n in "ab"]
        a, b = (ops.host_load(s) for s in streams)
        v = popxl.variable(np.full((3,), initial, np.float32), name="v")
        graph = ir.create_graph(lambda x, w: ops.tanh(x * w * factor), a, v)
        site = ops.call_with_info(graph, a, v)
        info = popxl.transforms.autodiff(graph)
        grads = ops.call(info.graph, b, inputs_dict=info.inputs_dict(site))
        again = (ops.call(graph, b, v) if twice else site.outputs)[0]
        sink = popxl.d2h_stream((3,), popxl.float32, "out")
        ops.host_store(sink, grads[0] + again)
    return ir, sink


@pytest.mark.parametrize("make", [program, two_streams])
def test_a_second_session_traces_nothing(make, tmp_path, monkeypatch):
    monkeypatch.delenv("POPXL_CACHE_DIR", raising=False)
    walks = []
    run_graph = _program.run
    monkeypatch.setattr(_program, "run", lambda *args: (walks.append(1), run_graph(*args))[1])

    def run(cached, **keywords):
        with compilation_cache(str(tmp_path) if cached else None):
            ir, sink = make(**keywords)
            with popxl.Session(ir) as session:
                loads = ir.get_all_h2d_streams()
                return session.run({s: np.arange(3, dtype=np.float32) / len(s.tensor_id) for s in loads})[sink]

    changes = [{}, {"initial": 0.5}, {"factor": 3.0}, {}, {"factor": 3.0}]
    changes += [{"twice": True}] if make is two_streams else []
    seen = set()
    for change in changes:
        walks.clear()
        found = run(True, **change)
        facts = tuple(sorted((n, v) for n, v in change.items() if n != "initial"))
        assert bool(walks) == (facts not in seen)
        seen.add(facts)
        np.testing.assert_array_equal(found, run(False, **change))
    assert len(list(tmp_path.glob("popart_jax-*.popef"))) == len(seen)


def test_upload_is_logged_once(capfd):
    ir, _ = program()
    popart.getLogger().setLevel("TRACE")
    try:
        with popxl.Session(ir):
            pass
        log = capfd.readouterr().err
    finally:
        popart.getLogger().setLevel("WARN")
    assert log.count("Writing weights from host, ") == 1
    assert log.count("Reusing TensorData for d2hWeightBuffer of tensor v") == 1


def test_dot_files(tmp_path, monkeypatch):
    monkeypatch.delenv("POPART_DOT_CHECKS", raising=False)
    ir, _ = program()
    ir.dot_checkpoint("mine", tmp_path / "here")
    assert len(list((tmp_path / "here").glob("*.dot"))) == 1
    monkeypatch.setenv("POPART_DOT_CHECKS", "")
    other, _ = program()
    other.dot_checkpoint("mine", tmp_path / "there")
    assert not list((tmp_path / "there").glob("*.dot"))


def test_driven_by_the_popart_session():
    ir = popxl.Ir()
    with ir.main_graph:
        source, sink = popxl.h2d_stream((2,), popxl.float32, "x"), popxl.d2h_stream((2,), popxl.float32, "y")
        ops.host_store(sink, ops.host_load(source) + 1.0)
    ir._pb_ir.setDataFlow(popart.DataFlow(1, {sink.tensor_id: popart.AnchorReturnType("All")}))
    ir._pb_ir.updateVertices()
    device = popart.DeviceManager().createIpuModelDevice({})
    session = popart.InferenceSession.fromIr(ir=ir._pb_ir, deviceInfo=device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.weightsFromHost()
    session.run(popart.PyStepIO({source.tensor_id: np.ones(2, np.float32)}, anchors))
    np.testing.assert_array_equal(anchors["y"], [2, 2])


def test_report_of_a_modelled_device():
    ir, _ = program()
    session = popxl.Session(ir, "ipu_model")
    assert "Total" in session._pb_session.getSummaryReport()
    with pytest.raises(popart.poplar_exception):
        popxl.Session(ir, "cpu")._pb_session.getReport()


@pytest.mark.parametrize("by_environment", [False, True])
def test_engine_options_ask_for_a_profile(monkeypatch, tmp_path, by_environment):
    asked = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    ir, _ = program()
    if by_environment:
        monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(asked))
    else:
        ir._pb_ir.getSessionOptions().engineOptions = asked
    popxl.Session(ir, "cpu")
    assert not list(tmp_path.iterdir())
    session = popxl.Session(ir, "ipu_model")
    stored = pva.openReport(tmp_path / "fromIr" / "profile.pop")
    assert stored.execution.totalCycles == session._pb_session.getReport().execution.totalCycles
    ir, _ = program()
    ir._pb_ir.getSessionOptions().engineOptions = asked
    device = popart.DeviceManager().createIpuModelDevice({})
    popart.InferenceSession.fromIr(ir, device, name="mine").prepareDevice()
    assert (tmp_path / "mine" / "profile.pop").exists()


SCRIPT = """
import jax
from tests.popxl import process_worker
print(len(jax.devices()), process_worker.losses_of_replicas())
"""


@pytest.mark.processes
def test_replicas_over_several_devices_give_the_same():
    env = {**os.environ, "JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    count, _, values = done.stdout.strip().splitlines()[-1].partition(" ")
    assert int(count) == 8
    here = np.asarray(process_worker.losses_of_replicas())
    np.testing.assert_allclose(here, np.asarray(eval(values)), rtol=1e-4)
    assert here.shape == (3, 4)


def _workers(processes):
    import socket
    from pathlib import Path

    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    script = str(Path(__file__).with_name("process_worker.py"))
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": root}
    started = [
        subprocess.Popen(
            [sys.executable, script, str(processes), str(i), str(port)], env=env, stdout=subprocess.PIPE, text=True
        )
        for i in range(processes)
    ]
    texts = [p.communicate(timeout=300)[0] for p in started]
    assert all(p.returncode == 0 for p in started)
    return [eval(next(line for line in t.splitlines() if line.startswith("RESULT"))[7:]) for t in texts]


@pytest.mark.processes
def test_two_processes_give_the_same(monkeypatch):
    monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", "4")
    whole, weight = process_worker.results(1, 0)
    parts = _workers(2)
    joined = np.concatenate([np.asarray(losses) for losses, _ in parts], 1)
    np.testing.assert_allclose(joined, np.asarray(whole), rtol=1e-4)
    for _, value in parts:
        np.testing.assert_allclose(value, weight, rtol=1e-4)


def test_loading_code_is_a_stream_copy_of_the_report():
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(np.ones((8, 8), np.float32))
        graph = ir.create_graph(lambda t: t @ t, x)
        ops.call(graph, x)
        sink = popxl.d2h_stream((8, 8), popxl.float32)
        ops.host_store(sink, ops.call(graph, x)[0])
    before = popxl.Session(ir, "ipu_model")._pb_session.getReport()
    with ir.main_graph:
        ops.remote_code_load(graph, "executable")
    (load,) = [op for op in ir.main_graph._pb_graph.getOps() if op.opType() == "RemoteCodeLoad"]
    after = popxl.Session(ir, "ipu_model")._pb_session.getReport()
    copies = lambda r: [s.program.name for s in r.execution.steps if "StreamCopy" in s.program.name]  # noqa: E731
    new = [name for name in copies(after) if name not in copies(before)]
    kind = f"RemoteCodeLoad Remote -> Device , graph: {load._options['graph'].id}"
    assert new == [f"remote_code_load/{load.id}/{kind}/StreamCopy/in"]
    assert after.model.cycles.host > before.model.cycles.host


def test_weights_io_of_the_internal_session():
    import popart_jax as popart

    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable(np.zeros(3, np.float32), name="v")
        ops.var_updates.accumulate_(v, popxl.constant(np.ones(3, np.float32)))
    session = popxl.Session(ir)
    session._pb_session.writeWeights(popart.PyWeightsIO({"v": np.arange(3, dtype=np.float32)}))
    with session:
        session.run()
        session.weights_to_host()
        found = {"v": np.zeros(3, np.float32)}
        session._pb_session.readWeights(popart.PyWeightsIO(found))
    np.testing.assert_array_equal(found["v"], [1, 2, 3])
    with pytest.raises(ValueError, match="shape"):
        session._pb_session.writeWeights(popart.PyWeightsIO({"v": np.zeros(2, np.float32)}))
