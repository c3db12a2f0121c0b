"""Small models of what one node alone does not show: function bodies, sparse constants, sequences, training."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from popart_jax import backend, popart_exception
from popart_jax.ops import registry

F32 = np.float32


def text(source: str) -> onnx.ModelProto:
    return ir.to_proto(ir.from_onnx_text(source))


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Celu", {"alpha": 0.7}),
        ("HardSwish", {}),
        ("ThresholdedRelu", {"alpha": 0.3}),
        ("Gelu", {"approximate": "tanh"}),
    ],
)
def test_function_body_agrees_with_the_translation(op: str, attributes: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(-3, 3, 13, dtype=F32)
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    (own,) = backend.run_node(node, [x], opset_version=22)
    monkeypatch.delitem(registry._TABLE, ("", op))
    (body,) = backend.run_node(node, [x], opset_version=22)
    np.testing.assert_allclose(body, own, rtol=1e-5, atol=1e-6)


def test_sparse_constants_become_dense() -> None:
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [3.0, 5.0])
    for indices in (
        helper.make_tensor("i", TensorProto.INT64, [2], [1, 5]),
        helper.make_tensor("i", TensorProto.INT64, [2, 2], [0, 1, 1, 2]),
    ):
        node = helper.make_node("Constant", [], ["y"], sparse_value=helper.make_sparse_tensor(values, indices, [2, 3]))
        (y,) = backend.run_node(node, [], opset_version=13)
        np.testing.assert_array_equal(y, [[0, 3, 0], [0, 0, 5]])


def test_sequences() -> None:
    model = text("""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[3, 2] x, int64 at) => (float[a, b] joined, int64 n, float[c] one)
    {
      parts = SplitToSequence <keepdims = 0>(x)
      fewer = SequenceErase(parts, at)
      more = SequenceInsert(fewer, one)
      n = SequenceLength(more)
      joined = ConcatFromSequence <axis = 0, new_axis = 1>(more)
      last = Constant <value_int = -1>()
      one = SequenceAt(parts, last)
    }
    """)
    nodes = {n.output[0]: n for n in model.graph.node}
    order = ["parts", "last", "one", "fewer", "more", "n", "joined"]
    del model.graph.node[:]
    model.graph.node.extend(nodes[name] for name in order)
    feeds = {"x": np.arange(6, dtype=F32).reshape(3, 2), "at": np.array(0, np.int64)}
    for ours, theirs in zip(backend.run_model(model, feeds), ReferenceEvaluator(model).run(None, feeds), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(popart_exception, match="sequence position 9 is outside"):
        backend.run_model(model, {**feeds, "at": np.array(9, np.int64)})


def test_gradient_operator_of_second_order() -> None:
    node = [
        helper.make_node("Mul", ["x", "x"], ["s"]),
        helper.make_node("Mul", ["s", "x"], ["y"]),
        helper.make_node("Gradient", ["x"], ["d"], domain="ai.onnx.preview.training", xs=["x"], y="y"),
        helper.make_node("Gradient", ["x"], ["dd"], domain="ai.onnx.preview.training", xs=["x"], y="d"),
    ]
    graph = helper.make_graph(
        node, "g", [helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info(n, 1, [2]) for n in ("d", "dd")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.preview.training", 1)]
    x = np.array([1.0, 2.0], F32)
    d, dd = backend.run_model(helper.make_model(graph, opset_imports=opsets), [x])
    np.testing.assert_allclose(d, 3 * x**2)
    np.testing.assert_allclose(dd, 6 * x)


def test_random_operators_follow_their_seed_and_keys_differ_by_node() -> None:
    model = text("""
    <ir_version: 8, opset_import: ["" : 15]>
    g () => (float[a] u, float[a] v, float[a] w)
    {
      u = RandomNormal <shape = [1000], seed = 3.0, mean = 2.0, scale = 0.5>()
      v = RandomUniform <shape = [1000], low = -1.0, high = 1.0>()
      w = RandomUniform <shape = [1000], low = -1.0, high = 1.0>()
    }
    """)
    u, v, w = backend.run_model(model, [])
    again, *_ = backend.run_model(model, [])
    np.testing.assert_array_equal(u, again)
    assert abs(u.mean() - 2) < 0.1
    assert abs(u.std() - 0.5) < 0.05
    assert v.min() >= -1
    assert v.max() < 1
    assert not np.array_equal(v, w)


KIND = {"O": TensorProto.STRING, "i": TensorProto.INT64, "b": TensorProto.BOOL}
TEXTS = np.array([["b", "a", "é"], ["c", "", "b"]], object)


@pytest.mark.parametrize(
    ("op", "more", "attributes"),
    [
        ("Identity", [], {}),
        ("Gather", [np.array([1, -1], np.int64)], {"axis": 1}),
        ("GatherElements", [np.array([[2, 0, 1]], np.int64)], {"axis": 1}),
        ("GatherND", [np.array([[0, 1], [1, 0]], np.int64)], {}),
        ("ScatterElements", [np.array([[1]], np.int64), np.array([["z"]], object)], {"axis": 1}),
        ("ScatterND", [np.array([[1, 0]], np.int64), np.array(["z"], object)], {}),
        ("Concat", [TEXTS], {"axis": 0}),
        ("Slice", [np.array([1], np.int64), np.array([3], np.int64), np.array([1], np.int64)], {}),
        ("Transpose", [], {"perm": [1, 0]}),
        ("Reshape", [np.array([-1], np.int64)], {}),
        ("Unsqueeze", [np.array([0], np.int64)], {}),
        ("Expand", [np.array([2, 2, 3], np.int64)], {}),
        ("Tile", [np.array([1, 2], np.int64)], {}),
        ("Flatten", [], {}),
        ("Equal", [TEXTS[:1]], {}),
        ("Compress", [np.array([False, True])], {"axis": 0}),
        ("Shape", [], {}),
        ("Size", [], {}),
    ],
)
def test_texts_pass_the_operators_that_take_them(op: str, more: list, attributes: dict) -> None:
    inputs = [TEXTS, *more]
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node(op, [f"x{i}" for i in range(len(inputs))], ["y"], **attributes)], "g",
            [helper.make_tensor_value_info(f"x{i}", KIND[x.dtype.kind], x.shape) for i, x in enumerate(inputs)],
            [helper.make_empty_tensor_value_info("y")],
        ), opset_imports=[helper.make_opsetid("", 19)], ir_version=9,
    )  # fmt: skip
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    (theirs,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    (ours,) = backend.run_model(model, feeds)
    assert ours.tolist() == theirs.tolist()
