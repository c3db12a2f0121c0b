"""Smaller public things: enums, errors, locations, operators there are, reports on numerics, files, versions."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import onnx
import pytest

import popart_jax as popart
from popart_jax.session.weights.files import makedirsAndCheckWritable

from . import nets


def test_enums_behave_like_the_originals():
    assert repr(popart.DataType.FLOAT) == "<DataType.FLOAT: 11>"
    assert str(popart.DataType.FLOAT) == "DataType.FLOAT"
    assert int(popart.DataType.FLOAT) == popart.DataType.FLOAT.value == 11
    assert popart.DataType(11) is popart.DataType.FLOAT
    assert popart.DataType.FLOAT != 11
    assert popart.DataType.FLOAT.name == "FLOAT"
    assert popart.DataType.__members__["INT8"] is popart.DataType.INT8
    assert pickle.loads(pickle.dumps(popart.ReductionType.Mean)) is popart.ReductionType.Mean
    assert [10, 20][popart.TensorStorage.OffChip] == 20
    assert popart.BatchSerializationTransformContext.Bwd is popart.BatchSerializationTransformContext.Backward


def test_families_of_errors_are_unrelated():
    assert not issubclass(popart.poplar_exception, popart.popart_exception)
    assert not issubclass(popart.poplibs_exception, popart.popart_exception)
    assert issubclass(popart.OutOfMemoryException, popart.popart_exception)


def test_out_of_memory():
    outcome = popart.OutOfMemoryError()
    assert outcome.isSuccessful()
    assert str(outcome) == ""
    outcome.fill("tile 3 needs more", "the report", "profile.pop")
    err = popart.OutOfMemoryException(outcome)
    assert err.args[0].startswith("Out of memory: Cannot fit all variable data onto one or more tiles")
    assert (err.getSummaryReport(), err.getProfilePath(), err.error) == ("the report", "profile.pop", outcome)
    assert not outcome.isSuccessful()


def test_tensor_locations():
    location = popart.TensorLocation(
        popart.TensorStorage.OffChip, popart.TileSet.IO, popart.TileSet.Compute, popart.ReplicatedTensorSharding.On
    )
    assert location.loadTileSet is popart.TileSet.IO
    location.storage = popart.TensorStorage.OnChip
    assert location == copy.deepcopy(location)
    with pytest.raises(TypeError):
        location.storage = 1
    with pytest.raises(AttributeError):
        location.tiles = 1
    with pytest.raises(TypeError):
        popart.TensorLocation("OffChip")
    settings = popart.TensorLocationSettings(location, 10, minElementsForReplicatedTensorSharding=20)
    assert (settings.minElementsForOffChip, settings.minElementsForReplicatedTensorSharding) == (10, 20)


FLOW, MANAGER = popart.DataFlow(1, ["a"]), popart.DeviceManager()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (FLOW.art, "art"),
        (FLOW.isAnchored, "isAnchored"),
        (FLOW.setBatchesPerStep, "setBatchesPerStep"),
        (popart.VariableSettings().getGroupRepresentative, "getGroupRepresentative"),
        (MANAGER.createOfflineIpuFromDeviceInfo, "createOfflineIpuFromDeviceInfo"),
        (popart.syncPatternFromString, "syncPatternFromString"),
        (popart.syncPatternToString, "syncPatternToString"),
        (popart.Builder().outlineAttributes, "outlineAttributes"),
        (popart.OptimizerValue, "__init__"),
        (popart.VirtualGraphMode, "__init__"),
        (popart.ReductionType, "__init__"),
    ],
)
def test_arguments_of_a_wrong_type(call, name):
    with pytest.raises(TypeError) as caught:
        call(object())
    assert caught.value.args[0].startswith(
        f"{name}(): incompatible function arguments. The following argument types are supported:\n    1. {name}("
    )


@pytest.mark.parametrize("call", [popart.Builder, popart.GraphTransformer])
def test_something_else_than_a_model(call):
    with pytest.raises(TypeError):
        call(3)


def test_a_number_that_is_no_member_of_an_enum():
    with pytest.raises(ValueError, match="99 is not a valid VirtualGraphMode"):
        popart.VirtualGraphMode(99)
    assert popart.VirtualGraphMode(np.int64(1)) is popart.VirtualGraphMode.Manual


def test_operators_that_there_are():
    supported = popart.getSupportedOperations(False)
    names = {(o.domain, o.type) for o in supported}
    assert ("ai.onnx", "Conv") in names
    assert ("ai.graphcore", "Gelu") in names
    assert len(popart.getSupportedOperations(True)) > len(supported)
    definitions = popart.getSupportedOperationsDefinition(False)
    assert [len(definitions[popart.OperatorIdentifier("ai.onnx", "Reshape", v)].inputs) for v in (1, 5)] == [1, 2]
    reshape = definitions[popart.OperatorIdentifier("ai.onnx", "Reshape", 5)]
    assert reshape.inputs[1].constant
    assert popart.DataType.FLOAT in reshape.inputs[0].supportedTensors
    assert sorted(definitions) == supported
    one = popart.OperatorIdentifier("ai.onnx", "Add", 7)
    assert one == popart.OperatorIdentifier(version=7, type="Add", domain="ai.onnx")
    assert repr(one) == "ai.onnx.Add:7"


@pytest.mark.parametrize("opset", [6, 9, 11])
def test_an_operator_of_an_opset_is_listed_once_by_its_newest_version(opset):
    """Those that run, by the version that ONNX gives them, and the others."""
    newest = [onnx.defs.get_schema(name, opset, "") for name in ("Abs", "Flatten", "Concat", "If", "Loop", "Relu")]
    identifiers = {popart.OperatorIdentifier("ai.onnx", s.name, s.since_version) for s in newest}
    supported = set(popart.getSupportedOperations(False))
    assert identifiers <= supported
    assert supported.isdisjoint(popart.getUnsupportedOperations(opset))


def test_an_operator_without_a_translation_is_listed(monkeypatch):
    from popart_jax.ops import registry

    for rows in (registry.table(), registry.table(popart=True)):
        monkeypatch.delitem(rows, ("", "Abs"), raising=False)
    monkeypatch.setattr(registry, "_load", lambda key: None)
    assert popart.getUnsupportedOperations(8) == [popart.OperatorIdentifier("ai.onnx", "Abs", 6)]


def weights(path, values: np.ndarray) -> str:
    tensor = onnx.numpy_helper.from_array(values.astype(np.float32), "w")
    graph = onnx.helper.make_graph([], "g", [], [], [tensor])
    onnx.save(onnx.helper.make_model(graph), path)
    return str(path)


def test_numerics_report(tmp_path):
    start = np.array([1.0, 2, 3])
    steps = {"a": np.array([0.1, 0, 0]), "b": np.array([0, 0.1, 0]), "none": np.zeros(3)}
    files = {k: weights(tmp_path / f"{k}.onnx", start + v) for k, v in steps.items()}
    report = popart.NumericsReport(files["none"], files["a"], files["none"], files["b"])
    assert report.getRelativeErrors()["w"] == pytest.approx(np.sqrt(2), rel=1e-5)
    assert "w" in report.fullReport()
    assert report.report("w") == report.fullReport()
    same = popart.NumericsReport(files["none"], files["a"], files["none"], files["a"])
    assert same.getRelativeErrors() == {"w": 0.0}
    with pytest.raises(popart.popart_exception):
        report.report("q")
    other = tmp_path / "other.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])), other)
    with pytest.raises(popart.popart_exception, match="initializers"):
        popart.NumericsReport(files["a"], files["a"], files["a"], str(other))


def test_writable_places(tmp_path):
    makedirsAndCheckWritable(str(tmp_path / "a" / "b" / "file.popef"))
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "plain").write_text("")
    with pytest.raises(OSError):
        makedirsAndCheckWritable(str(tmp_path / "plain" / "x" / "file"))


def test_versions():
    assert popart.versionString() == popart.__version__
    assert ".".join(map(str, popart.versionNumber())) == popart.__version__
    assert re.fullmatch("[0-9a-f]+", popart.packageHash())


def test_input_settings():
    settings = popart.InputSettings(popart.TileSet.IO)
    assert (settings.tileSet(), settings.exchangeStrategy()) == (popart.TileSet.IO, popart.ExchangeStrategy.JustInTime)
    assert settings.replicatedStreamMode() is popart.ReplicatedStreamMode.Replicate
    mode = popart.ReplicatedStreamMode.Broadcast
    assert popart.InputSettings(relicatedStreamMode=mode).replicatedStreamMode() is mode
    with pytest.raises(TypeError):
        popart.InputSettings(replicatedStreamMode=mode)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, None])
def test_seeds_are_numbers_of_64_bits(seed):
    session = nets.train(nets.linear()[0], {"loss": "All"}, nets.sgd())
    with pytest.raises(TypeError):
        session.setRandomSeed(seed)
