"""Batch serialisation: what the op list shows, that the pieces compute the whole, and what is refused."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from popart_jax import popart_exception
from popart_jax.ir_view import BatchSerialisation, batch_axes, batch_serial, nodes

from .helpers import counts, find, inference, ops, parse, training

NET = """BuilderGraph_1 (float[4,2,3] x, float[3,5] w, float[5] b, float[4,10] m) => () {
  a = MatMul(x, w)
  c = Add(a, b)
  r = Relu(c)
  f = ai.graphcore.Reshape<shape=[4, 10]>(r)
  s = Add(f, m)
  t = Transpose<perm=[1, 0]>(s)
  e = ReduceSum<axes=[0], keepdims=0>(t)
  p = Softmax<axis=1>(s)
  l = ReduceSum<keepdims=0>(p)
}"""
TYPES = {
    "l": (), "a": (4, 2, 5), "c": (4, 2, 5), "r": (4, 2, 5), "f": (4, 10), "s": (4, 10), "t": (10, 4), "e": (4,),
    "p": (4, 10),
}  # fmt: skip


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _reduce_sum(x: np.ndarray, axes: Any = None, **_: Any) -> np.ndarray:
    return x.sum(None if axes is None else tuple(axes))


def _slice(x: np.ndarray, axes: Any, starts: Any, ends: Any) -> np.ndarray:
    return np.take(x, range(starts[0], ends[0]), axes[0])


NUMPY: dict[str, Any] = {
    "MatMul": np.matmul, "Add": np.add, "Relu": lambda x: np.maximum(x, 0), "ReduceSum": _reduce_sum,
    "Reshape": lambda x, shape, **_: x.reshape(shape), "Transpose": lambda x, perm: x.transpose(perm),
    "Softmax": lambda x, axis: _softmax(x), "Slice": _slice, "Concat": lambda *xs, axis: np.concatenate(xs, axis),
}  # fmt: skip


def _evaluated(graph: ir.Graph, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    known = dict(feeds)
    for node in graph:
        attributes = {k: list(a.value) if isinstance(a.value, tuple) else a.value for k, a in node.attributes.items()}
        known[node.outputs[0].name] = NUMPY[node.op_type](*(known[v.name] for v in node.inputs), **attributes)
    return known


def test_pieces_compute_the_whole():
    rng = np.random.default_rng(0)
    shapes = {"x": (4, 2, 3), "w": (3, 5), "b": (5,), "m": (4, 10)}
    feeds = {n: rng.normal(size=s) for n, s in shapes.items()}
    wanted = ("r", "e", "l", "t")
    plain, split = (parse(NET, "w b") for _ in range(2))
    for value in split.inputs:
        value.meta[nodes.KIND] = "stream"
    batch_serial.serialise(split, BatchSerialisation(2, "UnrollStatic"), set(wanted), count())
    assert sum(n.op_type == "MatMul" for n in split) == 2
    assert all(n.outputs[0].shape[0] == 2 for n in split if n.op_type == "MatMul")
    before, after = _evaluated(plain, feeds), _evaluated(split, feeds)
    for name in wanted:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-12)


def _facts(anchors: str = "l", **settings: Any):
    return training(NET, "w b", TYPES, anchors, batch_serialisation=BatchSerialisation(**settings))


@pytest.mark.parametrize("factor", [0, 1])
def test_off(factor):
    assert counts(_facts(factor=factor)) == counts(training(NET, "w b", TYPES, "l"))


@pytest.mark.parametrize(
    ("method", "cut", "join"), [("UnrollStatic", "Slice", "Concat"), ("UnrollDynamic", "DynamicSlice", "DynamicUpdate")]
)
@pytest.mark.parametrize("late", [False, True])
def test_unrolled(method, cut, join, late):
    found = counts(_facts(factor=2, method=method, after_backward=late))
    assert sum(n for t, n in found.items() if t in ("Relu", "ReluInplace")) == 2
    assert any(t.startswith(cut) for t in found)
    assert any(t.startswith(join) for t in found)
    assert sum(t.endswith("VarUpdate") * n for t, n in found.items()) == 2
    if not late:
        assert found["ReluGrad"] == 2


@pytest.mark.parametrize(
    ("schedule", "order"),
    [
        ("Scheduler", "x0 x1 a0 a1 c0 c1 z0 z1 d0 d1"),
        ("Isomorphic", "x0 a0 c0 z0 d0 x1 a1 c1 z1 d1"),
        ("OverlapOnIo", "x0 z0 a0 c0 d0 x1 z1 a1 c1 d1"),
        ("OverlapOnCompute", "x0 z0 x1 z1 a0 c0 d0 a1 c1 d1"),
    ],
)
def test_schedules(schedule, order):
    """Piece after piece, or with the next piece cut off early; in each order all that an op reads is there."""
    text = """BuilderGraph_1 (float[4,3] x, float[4,3] z) => () {
      a = Relu(x)
      c = Sigmoid(a)
      d = Add(c, z)
      l = ReduceSum<keepdims=0>(d)
    }"""
    types = {"l": ()} | dict.fromkeys("acd", (4, 3))
    settings = BatchSerialisation(2, "UnrollStatic", schedule=schedule)
    listed = [op["outputs"][0]["name"] for op in ops(training(text, "", types, "l", batch_serialisation=settings))]
    assert [name[0] + name[-1] for name in listed if name[-1] in "01"] == order.split()


def test_a_loop_over_the_pieces():
    facts = _facts(factor=2, method="Loop", after_backward=True)
    assert counts(facts)["Loop"] >= 1
    bodies = [op["type"] for name in ("loop_subgraph(0)", "loop_subgraph(1)") for op in ops(facts, name)]
    assert "DynamicSlice" in bodies
    assert "MatMul" in bodies


def test_wholes_at_other_places():
    text = """BuilderGraph_1 (float[4,3] x) => () {
      a = Relu<__ipu_number=0>(x)
      b = Sigmoid<__ipu_number=1>(a)
    }"""
    joined = {}
    for places in ((), ("__ipu_number",)):
        settings = BatchSerialisation(2, "UnrollStatic", joined_at=places)
        facts = training(
            text, "", {"a": (4, 3), "b": (4, 3)}, "b", virtual_graphs="Manual", ipus=2, batch_serialisation=settings
        )
        joined[places] = len(find(inference(facts, "b"), "IpuCopy"))
    assert joined == {(): 2, ("__ipu_number",): 1}


def test_a_factor_that_does_not_divide():
    with pytest.raises(popart_exception, match=r"batch size 4 of tensor 'x' is not divisible by .* factor 3"):
        counts(_facts(factor=3))


@pytest.mark.parametrize(
    ("expression", "expect"),
    [
        ("y = Softmax(x)", 0),  # along all but the first before opset 13
        ("y = LpNormalization(x)", 0),  # along the last
        ("y = Split(x)", None),  # along the first
        ("y = Gather(w, i)", 0),
    ],
)
def test_default_axes_are_those_of_the_operators_version(expression, expect):
    graph = parse(f"f (float[6,2,5] x, float[9,5] w, int64[6] i) => () {{ {expression} }}")
    batched = graph.inputs[2 if "Gather" in expression else 0]
    found = batch_axes.results(graph[0], {batched: 0})
    assert found == (None if expect is None else [expect])


def test_softmax_of_opset_13_is_along_the_last_axis():
    graph = parse("f (float[2,6,5] x) => () { y = Softmax(x) }")
    assert batch_axes.results(graph[0], {graph.inputs[0]: 1}) is None
    graph[0].version = 13
    assert batch_axes.results(graph[0], {graph.inputs[0]: 1}) == [1]
