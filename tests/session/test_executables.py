"""Executables on disk, the engine cache, reports, cycle counts, several sessions, device life."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

import popart_jax as popart
from popart_jax._compat.jax import compilation_cache
from popart_jax.lowering.kernels import onednn

from . import nets
from .nets import infer, linear, run, sgd, train

X = np.ones(3, np.float32)


def _training(device, **options) -> popart.TrainingSession:
    proto, _ = linear()
    flow = nets.flow(1, {"loss": "All"})
    return popart.TrainingSession(proto, flow, "loss", sgd(), device, userOptions=nets.make_options(**options))


@pytest.fixture
def log(caplog):
    """Messages of the session and device loggers, at level info."""
    popart.getLogger().setLevel("INFO")
    yield lambda: [r.getMessage() for r in caplog.records]
    popart.getLogger().setLevel("WARN")


def test_engine_cache(tmp_path, log, caplog, monkeypatch):
    monkeypatch.setenv("POPART_PRELOAD_POPEF", "full-preload")
    for hit in (False, True):
        caplog.clear()
        with popart.DeviceManager().acquireAvailableDevice(1) as device:
            session = _training(device, enableEngineCaching=True, cachePath=str(tmp_path))
            session.prepareDevice()
            session.weightsFromHost()
            assert run(session, x=X)["loss"] == 6
            assert run(session, x=X)["loss"] == 4.5
            assert ("Graph compiled" in log()) != hit
            assert any(m.startswith("Loading serialized PopART executable from ") for m in log()) == hit
            assert "Engine loaded" in log()
            assert any(m.startswith("Completed preload of popef file ") for m in log()) == hit
            if hit:
                for read in (session.getSummaryReport, session.getReport, session.getSerializedGraph):
                    with pytest.raises(popart.popart_runtime_error) as caught:
                        read()
                    (path,) = tmp_path.glob("*.popef")
                    assert caught.value.args[0] == (
                        "Unable to get reports when using a cached executable.\n"
                        f"Either remove the cache file ({path}), or \n"
                        "disable engine caching (userOptions.enableEngineCaching = false)"
                    )
    (file,) = tmp_path.glob("*.popef")
    assert file.suffix == ".popef"
    assert file.stem.isdecimal()


def test_a_program_out_of_a_cache_is_exported_all_the_same(tmp_path):
    """XLA can't write such a program again, so the export compiles it anew; `cachePath` holds containers alone."""
    cache, export = tmp_path / "cache", tmp_path / "export.popef"
    options = {"enableEngineCaching": True, "cachePath": str(cache)}
    with compilation_cache(str(tmp_path / "jax")), popart.DeviceManager().acquireAvailableDevice(1) as device:
        _training(device, **options).prepareDevice()
        (container,) = cache.iterdir()
        container.unlink()
        assert len(list((tmp_path / "jax").glob("popart_jax-*"))) == 1
        session = _training(device, **options)
        session.prepareDevice()
        assert not session._engine.portable
        session.weightsFromHost()
        assert run(session, x=X)["loss"] == 6
        session.saveExecutable(str(export))
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        for loads in (lambda s: s.loadExecutable(str(export)), lambda s: None):  # the export, then the empty container
            loaded = _training(device, **options)
            loads(loaded)
            loaded.prepareDevice()
            loaded.weightsFromHost()
            assert run(loaded, x=X)["loss"] == 6


def test_a_program_that_calls_libraries_is_exported_without_the_calls(tmp_path):
    """XLA can't write them. With a folder for compiled programs there are none from the start."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g(uint8[64,80] x) => (int32[64,256] y) { y = MatMulInteger(x, w) }'
    )
    weights = np.random.default_rng(0).integers(-128, 128, (80, 256)).astype(np.int8)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    fed, export = np.full((64, 80), 255, np.uint8), str(tmp_path / "export.popef")

    def has_calls(device, act=lambda _: None, **options):
        """Whether a session's program has calls, after it gave the right numbers."""
        flow, options = nets.flow(1, {"y": "All"}), nets.make_options(**options)
        session = popart.InferenceSession(proto.SerializeToString(), flow, device, userOptions=options)
        act(session)
        session.prepareDevice()
        np.testing.assert_array_equal(run(session, x=fed)["y"].reshape(64, 256), fed.astype(int) @ weights)
        text = session._engine.stable_hlo()
        session.saveExecutable(export)
        np.testing.assert_array_equal(run(session, x=fed)["y"].reshape(64, 256), fed.astype(int) @ weights)
        return "__onednn" in text

    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        assert has_calls(device) == onednn.usable()
        assert not has_calls(device, lambda session: session.loadExecutable(export))
        assert not has_calls(device, enableEngineCaching=True, cachePath=str(tmp_path / "cache"))


def test_damaged_cache_file_only_warns(tmp_path, log):
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        session = _training(device, enableEngineCaching=True, cachePath=str(tmp_path))
        session.prepareDevice()
    (file,) = tmp_path.glob("*.popef")
    file.write_bytes(b"nonsense")
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        session = _training(device, enableEngineCaching=True, cachePath=str(tmp_path))
        session.prepareDevice()
        assert any("Failed to load cached PopART executable" in m for m in log())
        session.weightsFromHost()
        assert run(session, x=X)["loss"] == 6


def test_another_learning_rate_hits_the_cache_another_model_does_not(tmp_path):
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        options = {"enableEngineCaching": True, "cachePath": str(tmp_path)}
        _training(device, **options).prepareDevice()
        _training(device, enableStochasticRounding=True, **options).prepareDevice()
        assert len(list(tmp_path.glob("*.popef"))) == 2


def test_cache_is_ignored_on_a_model_device(tmp_path):
    session = _training(nets.device(), enableEngineCaching=True, cachePath=str(tmp_path))
    session.prepareDevice()
    assert not list(tmp_path.iterdir())


def test_export_and_load(tmp_path):
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        _training(device).compileAndExport(str(tmp_path / "a" / "model.bin"))
        session = _training(device)
        session.loadExecutable(str(tmp_path / "a" / "model.bin"))
        assert session._serializeIr(popart.IrSerializationFormat.JSON) == ""
        session.prepareDevice()
        session.weightsFromHost()
        assert run(session, x=X)["loss"] == 6
        session.saveExecutable(str(tmp_path))
        session.saveVariables(str(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "executable.popef", "variables.popef"]


def test_export_errors(tmp_path):
    session = _training(nets.device())
    with pytest.raises(popart.popart_exception, match="Executables for device type ipu-model cannot be saved"):
        session.compileAndExport(str(tmp_path / "x"))
    offline = _training(popart.DeviceManager().createOfflineIPUDevice({}))
    with pytest.raises(popart.popart_exception, match="no such file"):
        offline.loadExecutable(str(tmp_path / "nope"))
    offline.prepareDevice()
    with pytest.raises(popart.popart_runtime_error) as caught:
        offline.loadEngineAndConnectStreams()
    assert caught.value.args[0] == "Trying to load an engine on an offline device"


def test_load_engine_before_prepare():
    session = _training(nets.device())
    with pytest.raises(popart.popart_runtime_error, match="no compiled engine"):
        session.loadEngineAndConnectStreams()


def test_prepare_without_loading():
    session = _training(nets.device())
    session.prepareDevice(loadEngine=False)
    session.weightsFromHost()
    assert run(session, x=X)["loss"] == 6


def test_connection_never():
    """Offline devices compile and export, but do not run."""
    device = popart.DeviceManager().createOfflineIPUDevice({})
    session = popart.InferenceSession(linear()[0], nets.flow(1, {"y": "All"}), device)
    session.prepareDevice(False)
    with pytest.raises(popart.popart_runtime_error, match="Offline IPU device is not configured for execution"):
        run(session, x=X)


def test_a_program_compiled_offline_runs_on_the_hardware(tmp_path):
    file = str(tmp_path / "step.popef")
    _training(popart.DeviceManager().createOfflineIPUDevice({})).compileAndExport(file)
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        session = _training(device)
        session.loadExecutable(file)
        session.prepareDevice()
        session.weightsFromHost()
        assert run(session, x=X)["loss"] == 6


def test_reports():
    session = _training(nets.device())
    with pytest.raises(
        popart.popart_runtime_error, match="Session must have been prepared before a report can be fetched"
    ):
        session.getSummaryReport()
    session.prepareDevice()
    text = session.getSummaryReport()
    assert "Memory Usage:" in text
    assert "By Type:" in text
    assert session.getReport().compilation is not None
    assert b"stablehlo" in session.getSerializedGraph()
    assert session.getGraphReport(True) != session.getGraphReport(False)


def test_reports_on_the_cpu():
    session = infer(linear()[0], {"y": "All"})
    cpu = popart.InferenceSession(linear()[0], nets.flow(1, {"y": "All"}), popart.DeviceManager().createCpuDevice())
    cpu.prepareDevice()
    for call in (cpu.getSummaryReport, cpu.getReport):
        with pytest.raises(popart.poplar_exception, match=r"Profiling is disabled for current device type\.$"):
            call()
    assert "Memory Usage:" in session.getSummaryReport()


def test_cycle_count():
    both = {popart.Instrumentation.Outer, popart.Instrumentation.Inner}
    counts = []
    for batches in (1, 4):
        session = infer(linear()[0], {"y": "All"}, batches, instrumentWithHardwareCycleCounter=True,
                        hardwareInstrumentations=both)  # fmt: skip
        with pytest.raises(popart.popart_runtime_error, match=r"Must call run before getCycleCount."):
            session.getCycleCount()
        run(session, x=np.ones((batches, 3), np.float32))
        counts.append(session.getCycleCount())
        assert 0 < session.getCycleCount("inner_ipu_0") <= session.getCycleCount()
        with pytest.raises(popart.popart_runtime_error, match="Invalid id for cycle counter, 'x'"):
            session.getCycleCount("x")
    assert counts[1] > 2 * counts[0]
    silent = infer(linear()[0], {"y": "All"})
    with pytest.raises(popart.popart_runtime_error, match=r"Must call run before getCycleCount."):
        silent.getCycleCount()
    run(silent, x=np.ones(3, np.float32))
    with pytest.raises(popart.popart_runtime_error, match="instrumentWithHardwareCycleCounter"):
        silent.getCycleCount()


def test_sessions_share_a_device(log):
    """Each session keeps its own state; switching is logged as loading."""
    device = nets.device()
    one, two = _training(device), _training(device)
    for session in (one, two):
        session.prepareDevice()
        session.weightsFromHost()
    loaded = log().count("Engine loaded")
    assert run(one, x=X)["loss"] == 6
    assert run(two, x=X)["loss"] == 6
    assert run(one, x=X)["loss"] == 4.5
    assert log().count("Engine loaded") == loaded + 3


def test_queries():
    proto, _ = linear()
    session = _training(nets.device())
    assert session.getInfo("w").shape() == [3]
    assert {"x", "w", "y", "loss", "Gradient___w"} <= session.getTensorIds()
    assert "y" in infer(proto, {"y": "All"}).getAllTensorIds()
    with pytest.raises(popart.popart_exception, match="nope"):
        session.getInfo("nope")
    assert session.replicationFactor == session.accumulationFactor == 1
    assert session.dataFlow.anchors() == ["loss"]


def test_every_tensor_of_the_serialised_ir_is_known():
    """`getTensorIds` and `getInfo` know what the op list shows, gradients of patterns and optimizer included."""
    proto, _ = linear()
    session = train(proto, {"loss": "All"}, popart.Adam({"defaultLearningRate": (0.1, False)}))
    ops = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))["g"]
    shown = {t["name"]: t["shape"] for op in ops for t in op["inputs"]}
    assert shown.keys() <= session.getTensorIds()
    assert shown.keys() - session._parts.prepared.infos.keys()
    for name, shape in shown.items():
        assert session.getInfo(name).shape() == [int(d) for d in shape.strip("[]").split()], name


def test_constructor_arguments():
    proto, _ = linear()
    flow = nets.flow(1, {"y": "All"})
    with pytest.raises(popart.popart_exception, match="Must pass a valid deviceInfo"):
        popart.InferenceSession(proto, flow, None)
    with pytest.raises(popart.popart_exception, match="User must specify an anchor tensor when doing inference"):
        popart.InferenceSession(proto, popart.DataFlow(1, {}), nets.device())
    with pytest.raises(popart.popart_exception, match="Gradient Accumulation only available when training"):
        infer(proto, {"y": "All"}, **nets.accumulated(2))
    with pytest.raises(TypeError):
        popart.InferenceSession(proto, {"y": 1}, nets.device())
    with pytest.raises(
        popart.popart_exception, match="All operations in the main graph were pruned, nothing to compute"
    ):
        infer(proto, {"x": "All"})


def test_rng_state():
    session = _training(nets.device(), enableLoadAndOffloadRNGState=True)
    session.prepareDevice()
    session.setRNGState([1, 2])
    assert session.getRNGState() == [1, 2]
    with pytest.raises(popart.popart_runtime_error, match="received rngState of size 1; was expecting size 2"):
        session.setRNGState([1])
    with pytest.raises(popart.popart_runtime_error, match="Trying to get the RNG state, but the session option"):
        _training(nets.device()).getRNGState()


def test_memory_check():
    """Weights that do not fit on a chip of eight tiles, found when the program asks for it."""
    text = "g (float[1500,1500] x) => (float[1500,1500] y) { y = Mul(x, w) }"
    proto = nets.model(text, w=np.zeros((1500, 1500), np.float32))
    options = nets.make_options(engineOptions={"debug.allowOutOfMemory": "true"})
    device = popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 8})
    session = popart.InferenceSession(proto, nets.flow(1, {"y": "All"}), device, userOptions=options)
    with pytest.raises(
        popart.OutOfMemoryException, match=r"^Out of memory: Cannot fit all variable data onto one or more"
    ):
        session.prepareDevice()


def test_floating_point_checks():
    """On emulated IPUs a step that makes infinity raises; elsewhere the option only warns."""
    text = "g (float[2] x) => (float[2] y) { y = Reciprocal(x) }"
    flow, options = nets.flow(1, {"y": "All"}), nets.make_options(enableFloatingPointChecks=True)
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        session = popart.InferenceSession(nets.model(text), flow, device, userOptions=options)
        session.prepareDevice()
        run(session, x=np.ones(2, np.float32))
        with pytest.raises(popart.poplar_application_runtime_error, match="'y'"):
            run(session, x=np.zeros(2, np.float32))
    run(infer(nets.model(text), {"y": "All"}, enableFloatingPointChecks=True), x=np.zeros(2, np.float32))


def test_a_step_that_makes_infinity_is_undone():
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        session = _training(device, enableFloatingPointChecks=True)
        session.prepareDevice()
        session.weightsFromHost()
        before = nets.weights_of(session, w=X)
        with pytest.raises(popart.poplar_application_runtime_error, match="'w'"):
            run(session, x=np.full(3, np.inf, np.float32))
        np.testing.assert_array_equal(nets.weights_of(session, w=X)["w"], before["w"])


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path, log):
    (tmp_path / "plain").write_text("no folder")
    with popart.DeviceManager().acquireAvailableDevice(1) as device:
        session = _training(device, enableEngineCaching=True, cachePath=str(tmp_path / "plain" / "cache"))
        session.prepareDevice()
        assert sum("The executable is not cached in" in m for m in log()) == 1
        session.weightsFromHost()
        assert run(session, x=X)["loss"] == 6


def test_a_cache_file_of_another_user_is_compiled_anew(tmp_path, log, monkeypatch):
    for user in ("one", "other"):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / user))
        with popart.DeviceManager().acquireAvailableDevice(1) as device:
            session = _training(device, enableEngineCaching=True, cachePath=str(tmp_path / "cache"))
            session.prepareDevice()
            session.weightsFromHost()
            assert run(session, x=X)["loss"] == 6
    (line,) = [m for m in log() if m.startswith("Failed to load cached PopART executable")]
    assert "there is no key to check its seal with" in line
