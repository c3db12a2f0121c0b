"""What moves numbers between DequantizeLinear and QuantizeLinear of one scale moves the bytes, to the same ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper as nh
from onnx.reference import ReferenceEvaluator

import popart_jax
from popart_jax.lowering.passes import rewrite_for_kernels
from popart_jax.lowering.passes.moved_bytes import move_bytes
from popart_jax.model.files.load import load

BEFORE, AFTER = "d = DequantizeLinear(x, s, z)", "q = QuantizeLinear({}, s, z) y = DequantizeLinear(q, t, z)"
MOVED = {
    "reshape": "a = Reshape(d, sizes)",
    "flatten": "a = Flatten(d)",
    "transpose": "a = Transpose<perm=[0,2,3,1]>(d)",
    "slice": "a = Slice(d, first, last)",
    "maximum": "a = MaxPool<kernel_shape=[2,2], pads=[1,1,0,1], strides=[2,1]>(d)",
    "several": "c = MaxPool<kernel_shape=[2,2]>(d) e = Transpose(c) a = Flatten(e)",
    "one after the other": "b = Transpose(d) c = QuantizeLinear(b, s, z) e = DequantizeLinear(c, s, z) a = Flatten(e)",
}
STAYING = {
    "of numbers": "a = Neg(d)",
    "of another scale": "c = Transpose(d) e = QuantizeLinear(c, t, z) a = DequantizeLinear(e, t, z)",
    "of two operands": "a = Add(d, d)",
    "joined": "c = Neg(d) a = Concat<axis=0>(d, c)",
    "read twice": "c = Transpose(d) e = Neg(c) a = Max(c, e)",
    "of negative scale": """e = QuantizeLinear(d, n, z) f = DequantizeLinear(e, n, z) c = Flatten(f)
        g = QuantizeLinear(c, n, z) a = DequantizeLinear(g, t, z)""",
}  # fmt: skip
VALUES = {
    "s": np.float32(0.0371), "t": np.float32(0.29), "n": np.float32(-0.3), "sizes": np.array([2, -1], np.int64),
    "first": np.array([0, 1], np.int64), "last": np.array([2, 3], np.int64),
}  # fmt: skip


def model(nodes: str, kind: str = "uint8", zero: int = 117) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["": 19]> g({kind}[2,3,8,6] x) => (float[] y)
        {{ {BEFORE} {nodes} {AFTER.format("a")} }}"""
    proto = onnx.parser.parse_model(text)
    values: dict[str, Any] = VALUES | {"z": np.array(zero, kind)}
    proto.graph.initializer.extend(nh.from_array(np.asarray(v), n) for n, v in values.items())
    return proto


def every_byte(kind: str) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.arange(288) % 256).reshape(2, 3, 8, 6).astype(kind)


def count(graph: ir.Graph) -> int:
    return Counter(node.op_type for node in graph)["QuantizeLinear"]


@pytest.mark.parametrize(("kind", "zero"), [("uint8", 117), ("int8", -128), ("int8", 0)])
@pytest.mark.parametrize("name", MOVED)
def test_bytes_are_moved(name: str, kind: str, zero: int) -> None:
    proto = model(MOVED[name], kind, zero)
    graph = load(proto).graph
    assert move_bytes(graph)
    assert count(graph) == 0
    x = every_byte(kind)
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
    fn, params = popart_jax.to_jax(proto)
    np.testing.assert_array_equal(fn.jit(params, {"x": x})["y"], wanted)


@pytest.mark.parametrize("name", STAYING)
def test_others_stay(name: str) -> None:
    graph = load(model(STAYING[name])).graph
    before = count(graph)
    assert not move_bytes(graph)
    assert count(graph) == before


@pytest.mark.parametrize("own", ["d", "a"])
def test_values_that_are_read_under_their_own_names_stay(own: str) -> None:
    graph = load(model(MOVED["transpose"])).graph
    rewrite_for_kernels(graph, {own})
    assert count(graph) == 1
