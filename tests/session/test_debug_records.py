"""Records of the IR in the debug file."""

from __future__ import annotations

import json

import numpy as np

import popart_jax as popart


def written(path, outlining=False):
    popart.initializePoplarDebugInfo(str(path), "json")
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 4]))
    w = builder.addInitializedInputTensor(np.ones((4, 4), np.float32))
    y = builder.aiOnnx.matmul([builder.aiOnnx.matmul([x, w], "first"), w], "second")
    options = popart.SessionOptions()
    options.enableOutlining = outlining
    popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, {y: popart.AnchorReturnType("All")}),
        popart.DeviceManager().createCpuDevice(),
        userOptions=options,
    )
    del builder
    popart.closePoplarDebugInfo()
    file = json.loads(path.read_text())
    return [r for r in file["contexts"] if r["layer"] == "popart"], file["stringTable"]


def test_ops_and_tensors(tmp_path):
    records, strings = written(tmp_path / "debug.json")
    ops = [r for r in records if r["category"] == "op"]
    products = [r for r in ops if r["opid"] == "ai.onnx.MatMul:9"]
    assert [strings[r["name"]] for r in sorted(products, key=lambda r: r["instanceId"])] == ["first", "second"]
    assert {r["graphId"] for r in ops} == {"maingraph"}
    assert all(r["discard"] == 0 and r["attributes"]["tileSet"] == "0" for r in ops)
    tensors = {r["tensorId"]: r for r in records if r["category"] == "tensor"}
    assert tensors["input"]["type"] == "Stream"
    assert tensors["init_input"]["type"] == "Const"
    assert (tensors["input"]["shape"], tensors["input"]["elementType"]) == ("[2 4]", "FLOAT")


def test_outlined_calls_are_paired(tmp_path):
    records, _ = written(tmp_path / "debug.json", outlining=True)
    calls = [r for r in records if "replacedDebugContextIds" in r]
    assert len(calls) == 2
    numbers = {r["id"]: r for r in records}
    for call in calls:
        pairs = [call[k].strip("[]").split(",") for k in ("replacedDebugContextIds", "outlinedDebugContextIds")]
        for replaced, copy in zip(*(map(int, ids) for ids in pairs), strict=True):
            assert numbers[replaced]["discard"] == 1
            assert numbers[copy]["graphId"] == call["attributes"]["callee"]
            assert numbers[replaced]["opid"] == numbers[copy]["opid"].replace("Inplace:", ":")


def test_nothing_is_recorded_without_a_file(tmp_path):
    records, _ = written(tmp_path / "a.json")
    assert records
    popart.closePoplarDebugInfo()
    assert not (tmp_path / "b.json").exists()
