"""SessionOptions and its groups (semantics 1.4, 5.2)."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

import popart_jax
from popart_jax import (
    AutomaticLossScalingSettings,
    BatchSerializationMethod,
    BatchSerializationSettings,
    BatchSerializationTransformContext,
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    ExecutionPhaseSettings,
    Instrumentation,
    NumIOTiles,
    SessionOptions,
    TensorLocation,
    TensorLocationSettings,
    TensorStorage,
)
from popart_jax.session.options.document import render
from popart_jax.session.options.rows import TREATMENTS, rows


@pytest.fixture
def options() -> SessionOptions:
    return SessionOptions()


def test_there_are_109_documented_options():
    assert len(rows(SessionOptions)) == 109
    assert all(row.treatment in TREATMENTS and len(row.meaning) > 10 for row in rows(SessionOptions).values())


def test_the_document_is_current():
    assert (Path(__file__).parents[2] / "docs" / "session_options.md").read_text(encoding="utf-8") == render()


def test_unknown_names_are_refused_with_the_nearest(options):
    with pytest.raises(AttributeError, match="Did you mean 'enablePipelining'"):
        options.enablePipelinig = True
    with pytest.raises(AttributeError):
        options.foo  # noqa: B018
    with pytest.raises(AttributeError):
        options.updatableBuffers  # noqa: B018
    with pytest.raises(AttributeError, match="Did you mean"):
        options.automaticLossScalingSettings.enable = True


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accumulationFactor", 1.5),
        ("accumulationFactor", "2"),
        ("cachePath", b"x"),
        ("virtualGraphMode", 1),
        ("customCodelets", "file"),
        ("hardwareInstrumentations", [Instrumentation.Outer]),
        ("engineOptions", {"a": 1}),
        ("executionPhaseSettings", BatchSerializationSettings()),
    ],
)
def test_wrong_types_are_refused(options, name, value):
    with pytest.raises(TypeError, match=name):
        setattr(options, name, value)


def test_conversions(options):
    options.outlineThreshold = 3
    assert options.outlineThreshold == 3.0
    options.customCodelets = ("a", "b")
    assert options.customCodelets == ["a", "b"]
    options.numIOTiles = NumIOTiles(32)
    assert options.numIOTiles == 32


def test_containers_are_copies(options):
    options.virtualGraphSplitRatios.append(0.5)
    assert options.virtualGraphSplitRatios == []
    options.dotChecks.add("Final")
    assert options.dotChecks == set()


@pytest.mark.parametrize(
    "name", ["engineOptions", "convolutionOptions", "lstmOptions", "matmulOptions", "reportOptions", "gclOptions"]
)
def test_dictionaries_write_through(options, name):
    getattr(options, name)["k"] = "v"
    assert getattr(options, name) == {"k": "v"}
    assert getattr(options, f"_{name}") == {"k": "v"}
    setattr(options, f"_{name}", {"x": "y"})
    assert getattr(options, name) == {"x": "y"}
    with pytest.raises(TypeError):
        getattr(options, name)["k"] = 3


def test_location_override_writes_through(options):
    options.tensorLocationSettingsOverride["w"] = TensorLocation(TensorStorage.OffChip)
    assert options.tensorLocationSettingsOverride["w"].storage is TensorStorage.OffChip


def test_groups_are_held_by_the_options_and_copied_when_assigned(options):
    options.batchSerializationSettings.factor = 4
    assert options.batchSerializationSettings.factor == 4
    settings = TensorLocationSettings(TensorStorage.OffChip)
    options.weightTensorLocationSettings = settings
    settings.minElementsForOffChip = 99
    assert options.weightTensorLocationSettings.minElementsForOffChip == 2
    assert options.weightTensorLocationSettings.location.storage is TensorStorage.OffChip


def test_explicit_ir(options):
    options.enableExplicitIR(True)
    assert (options.useHostCopyOps, options.enableExplicitMainLoops, options.explicitRecomputation) == (
        True,
        True,
        True,
    )


def test_global_replication_factor(options):
    options.replicatedGraphCount = 2
    assert options.getGlobalReplicationFactor() == 1
    options.enableReplicatedGraphs = True
    assert options.getGlobalReplicationFactor() == 2
    options.enableDistributedReplicatedGraphs = True
    options.globalReplicationFactor = 8
    assert options.getGlobalReplicationFactor() == 8


def test_older_names_warn_and_write_the_successor(options, capsys):
    options.defaultPrefetchBufferingDepth = 3
    options.prefetchBufferingDepthMap = {"a": 2}
    assert (options.defaultBufferingDepth, options.bufferingDepthMap) == (3, {"a": 2})
    assert options.prefetchBufferingDepthMap == {"a": 2}
    text = capsys.readouterr().err
    assert "defaultPrefetchBufferingDepth has been deprecated" in text
    assert "prefetchBufferingDepthMap has been deprecated" in text


@pytest.mark.parametrize(
    ("variables", "path"),
    [
        ({"POPART_CACHE_DIR": "a"}, "a"),
        ({"POPXL_CACHE_DIR": "b"}, "b"),
        ({"POPART_CACHE_DIR": "a", "POPXL_CACHE_DIR": "b"}, "b"),
    ],
)
def test_cache_directory_of_the_environment(monkeypatch, variables, path):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    options = SessionOptions()
    assert (options.enableEngineCaching, options.cachePath) == (True, path)


def test_copies_are_independent(options):
    options.automaticLossScalingSettings.enabled = True
    other = copy.deepcopy(options)
    assert other == options
    other.automaticLossScalingSettings.enabled = False
    assert options.automaticLossScalingSettings.enabled
    assert other.changed() == {}


def test_constructors_of_groups():
    settings = AutomaticLossScalingSettings(True, ["a"], 0.5)
    assert (settings.enabled, settings.toTrackTensors, settings.binEdgeLocation) == (True, ["a"], 0.5)
    with pytest.raises(TypeError):
        BatchSerializationSettings(4)
    settings = BatchSerializationSettings(
        4,
        True,
        False,
        True,
        method=BatchSerializationMethod.Loop,
        transformContext=BatchSerializationTransformContext.Bwd,
    )
    assert (settings.factor, settings.concatOnExecutionPhaseChange) == (4, False)
    io = ExecutionPhaseIOSchedule.OnDemand
    phases = ExecutionPhaseSettings(2, 1, io, io, io, io, optimizerSchedule=ExecutionPhaseSchedule.Batch)
    assert phases.schedule is ExecutionPhaseSchedule.Batch
    assert int(BatchSerializationTransformContext.Forward) == int(BatchSerializationTransformContext.Fwd)


def test_what_is_said_to_have_an_effect_is_read_somewhere():
    package = Path(popart_jax.__file__).parent
    own = [package / "session" / "options" / name for name in ("session_options.py", "rows.py", "groups.py")]
    text = "\n".join(f.read_text(encoding="utf-8") for f in package.rglob("*.py") if f not in own)
    idle = [
        name
        for name, row in rows(SessionOptions).items()
        if row.treatment in ("honoured", "modelled") and f".{name}" not in text and f'"{name}"' not in text
    ]
    assert idle == [], idle
