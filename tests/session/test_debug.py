"""Debug contexts and the debug file (semantics 1.7)."""

from __future__ import annotations

import gc
import json

import pytest

from popart_jax import (
    Builder,
    DebugContext,
    DebugInfo,
    SourceLocation,
    closePoplarDebugInfo,
    initializePoplarDebugInfo,
)


def read(path) -> dict:
    closePoplarDebugInfo()
    return json.loads(path.read_text())


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "debug.json"
    closePoplarDebugInfo()


def test_path_names():
    outer = DebugInfo(DebugContext("outer"), "layer")
    assert DebugContext(outer, "inner").getPathName() == "outer/inner"
    assert DebugContext("a").getPathName() == "a"
    assert DebugContext().getPathName() == ""
    assert DebugContext(DebugInfo("", "layer"), "x").getPathName() == "x"
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [1], DebugContext(outer, "in"))
    assert x == "outer/in"


def test_numbers_rise():
    first, second = DebugInfo("a", "l"), DebugInfo("b", "l")
    assert second.getId() == first.getId() + 1
    assert first.setValue("k", 1)


def test_records_are_written_when_they_die_children_first(path):
    DebugInfo("before", "mine")
    initializePoplarDebugInfo(str(path))
    parent = DebugInfo(DebugContext("p", SourceLocation("f", "file.py", 12)), "mine")
    parent.setValue("category", "test")
    child = DebugInfo(DebugContext(parent, ""), "mine")
    numbers = (child.getId(), parent.getId())
    del parent
    gc.collect()
    del child
    gc.collect()
    found = read(path)
    strings, records = found["stringTable"], found["contexts"]
    assert [r["id"] for r in records] == list(numbers)
    assert records[0]["parentId"] == numbers[1]
    assert strings[records[0]["name"]] == ""
    assert strings[records[1]["name"]] == "p"
    assert records[1]["layer"] == "mine"
    assert records[1]["category"] == "test"
    where = records[1]["location"]
    assert (strings[where["fileName"]], strings[where["functionName"]], where["lineNumber"]) == ("file.py", "f", 12)
    assert "parentId" not in records[1]


def test_nothing_after_closing(path):
    initializePoplarDebugInfo(str(path))
    late = DebugInfo("late", "mine")
    assert read(path)["contexts"] == []
    del late
    gc.collect()
    assert json.loads(path.read_text())["contexts"] == []


def test_records_of_builder_calls(path):
    initializePoplarDebugInfo(str(path))
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    builder.aiOnnx.leakyrelu([x], 0.5, "mine")
    gc.collect()
    found = read(path)
    records = [r for r in found["contexts"] if r["layer"] == "popartbuilder"]
    variable = next(r for r in records if r["category"] == "variable")
    assert (variable["tensorId"], variable["shape"], variable["type"], variable["api"]) == (
        "x",
        "[2 3]",
        "FLOAT",
        "addInputTensor",
    )
    call = next(r for r in records if r["category"] == "api")
    assert (call["api"], call["inputs"], call["outputs"], call["attributes"]) == (
        "leakyrelu",
        ["x"],
        ["LeakyRelu:0"],
        {"alpha": "0.5"},
    )
    assert found["stringTable"][call["location"]["fileName"]] == __file__
    assert found["stringTable"][call["location"]["functionName"]] == "test_records_of_builder_calls"
    node = next(r for r in found["contexts"] if r["layer"] == "onnx" and r["category"] == "op")
    assert (node["opType"], node["opName"], node["input"]) == ("LeakyRelu", "mine", ["x"])


def test_a_call_is_recorded_with_the_name_of_its_subgraph(path):
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [1])
    inner = builder.createSubgraphBuilder()
    inner.setGraphName("inner")
    inner.addOutputTensor(inner.aiOnnx.relu([inner.addUntypedInputTensor()]))
    initializePoplarDebugInfo(str(path))
    builder.aiGraphcore.call([x], 1, inner)
    gc.collect()
    (call,) = (r for r in read(path)["contexts"] if r["layer"] == "popartbuilder")
    assert (call["api"], call["attributes"]["callee"]) == ("call", "inner")


def test_arguments():
    with pytest.raises(ValueError):
        initializePoplarDebugInfo("x", "xml")
    with pytest.raises(TypeError):
        DebugContext(3)
    with pytest.raises(TypeError):
        SourceLocation("f", "file", "line")
