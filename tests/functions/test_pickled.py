"""Functions are pickled as their model and options; what holds compiled programs says what to pickle in its place."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import popart_jax as popart

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[N,3] x) => (float[N,2] y, float[K] z)
    <float[3,2] w = {1,-2,3,4,-5,6}> { h = MatMul(x, w) y = Dropout(h) n = Constant<value_float=0.0>()
    line = Constant<value_ints=[-1]>() all = Reshape(h, line) more = Greater(all, n) z = Compress(all, more) }"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("form", ["file", "proto", "bytes", "ir"])
def test_a_pickled_function_computes_the_same(form: str, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(TEXT)
    onnx.save(proto, tmp_path / "m.onnx")
    forms: dict[str, Any] = {"file": tmp_path / "m.onnx", "proto": proto, "bytes": proto.SerializeToString()}
    model = forms[form] if form in forms else ir.from_proto(proto)
    fn, params = popart.to_jax(model, bounds={"z": (5, -1)}, dtype="float16")
    other = pickle.loads(pickle.dumps(fn))
    wanted, found = fn(params, {"x": X}), other(params, {"x": X})
    assert found["z"].shape == (5,)
    for name in wanted:
        assert found[name].dtype == wanted[name].dtype
        np.testing.assert_array_equal(found[name], wanted[name])
    other.save(tmp_path / "saved.onnx", params)
    assert copy.deepcopy(fn) is fn
    assert copy.copy(fn) is fn


def test_a_file_that_changed_since_is_refused(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(TEXT)
    onnx.save(proto, tmp_path / "m.onnx")
    stored = pickle.dumps(popart.to_jax(tmp_path / "m.onnx")[0])
    proto.doc_string = "another"
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(popart.popart_exception, match="was changed or removed"):
        pickle.loads(stored)


def test_what_holds_programs_says_what_to_pickle() -> None:
    fn, params = popart.to_jax(onnx.parser.parse_model(TEXT))
    infer = fn.with_weights(params)
    with pytest.raises(TypeError, match="pickle the function and its weights"):
        pickle.dumps(infer)
    assert copy.deepcopy(infer) is infer
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    y = builder.aiOnnx.relu([x])
    flow = popart.DataFlow(1, {y: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createIpuModelDevice({})
    session = popart.InferenceSession(builder.getModelProto(), flow, device)
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"InferenceSession holds compiled programs.*modelToHost"):
            attempt(session)
