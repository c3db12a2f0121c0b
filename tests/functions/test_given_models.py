"""A ModelProto or an onnx_ir model that is given stays as it is, whatever `to_jax` makes of its own copy."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

import popart_jax

HANDED_OUT = """
<ir_version: 9, opset_import: ["": 17]>
g (float[2] x, bool c) => (float[2] y) {
  y = If (c) <
    then_branch = g1 () => (float[2] w) <float[2] w = {1.0, 2.0}> {},
    else_branch = g2 () => (float[2] z) {z = Neg(x)}
  >
}
"""
SHARED = """
<ir_version: 9, opset_import: ["": 17]>
g (float[2] x, bool c) => (float[2] y) <float[2] w = {1.0, 2.0}> {
  v = Identity(w)
  a = Mul(x, w)
  y = Add(a, v)
}
"""
OPTIONS: list[dict[str, Any]] = [{}, {"split": True}, {"dtype": "bfloat16"}, {"training": True}]


@pytest.mark.parametrize("text", [HANDED_OUT, SHARED], ids=["handed out", "shared"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_is_given_stays(text: str, options: dict[str, Any]) -> None:
    proto = parser.parse_model(text)
    before = proto.SerializeToString(deterministic=True)
    feeds = {"x": np.array([3, 4], np.float32), "c": np.array(True)}
    expected = [1, 2] if text is HANDED_OUT else [4, 10]
    model = ir.from_proto(onnx.ModelProto.FromString(before))
    for given in (proto, proto, model, model):
        fn, params = popart_jax.to_jax(given, **options)
        np.testing.assert_array_equal(np.float32(fn(params, feeds)["y"]), np.array(expected, np.float32))
    assert proto.SerializeToString(deterministic=True) == before
    assert ir.to_proto(model).SerializeToString(deterministic=True) == ir.to_proto(
        ir.from_proto(onnx.ModelProto.FromString(before))
    ).SerializeToString(deterministic=True)


def test_open_files_are_read_as_onnx_reads_them(tmp_path: Path) -> None:
    """From where they stand; external data lie beside the file that is open."""
    proto = parser.parse_model(SHARED)
    data, numbers = proto.SerializeToString(), {"w": np.float32([5, 7])}
    held = io.BytesIO(b"head" + data)
    held.seek(4)
    onnx.save(proto, tmp_path / "beside.onnx", save_as_external_data=True, size_threshold=0, location="beside.data")
    (tmp_path / "m.gz").write_bytes(gzip.compress(data))
    with open(tmp_path / "beside.onnx", "rb") as file, gzip.open(tmp_path / "m.gz") as packed:
        for model in (held, file, packed):
            fn, params = popart_jax.to_jax(model)
            x = np.array([3, 4], np.float32)
            np.testing.assert_array_equal(fn(params, {"x": x, "c": True})["y"], [4, 10])
            fn.save(tmp_path / "saved.onnx", numbers)
            np.testing.assert_array_equal(popart_jax.to_jax(tmp_path / "saved.onnx")[1]["w"], [5, 7])
    with pytest.raises(popart_jax.popart_exception, match="binary mode"):
        popart_jax.to_jax(io.StringIO("model"))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", ["file", "onnx_ir"])
def test_sessions_builders_and_backends_take_them_too(kind: str) -> None:
    proto = parser.parse_model(SHARED.replace("bool c", "float[2] c"))
    flow = popart_jax.DataFlow(1, {"y": popart_jax.AnchorReturnType("All")})
    feeds = {"x": np.float32([3, 4]), "c": np.zeros(2, np.float32)}

    def model() -> Any:
        return io.BytesIO(proto.SerializeToString()) if kind == "file" else ir.from_proto(proto)

    device = popart_jax.DeviceManager().createIpuModelDevice({})
    session = popart_jax.InferenceSession(model(), flow, device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart_jax.PyStepIO(feeds, anchors))
    np.testing.assert_array_equal(anchors["y"], [4, 10])
    np.testing.assert_array_equal(popart_jax.backend.prepare(model()).run(feeds)[0], [4, 10])
    if kind == "file":
        assert popart_jax.Builder(model()).getOutputTensorIds() == ["y"]
        assert onnx.load_model_from_string(popart_jax.GraphTransformer(model()).getModelProto()) == proto
