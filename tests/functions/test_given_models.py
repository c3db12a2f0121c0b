"""A ModelProto or an onnx_ir model that is given stays as it is, whatever `to_jax` makes of its own copy."""

from __future__ import annotations

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
