"""A product with a transposed matrix: XLA is given the matrix as it is stored."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import popart_jax as popart

from ..platforms import ON_CPUS

RNG = np.random.default_rng(0)
pytestmark = pytest.mark.filterwarnings("ignore:The model has no trainable parameters")


def model(nodes: str, x: str, w: tuple[int, ...], kind: type = np.float32) -> onnx.ModelProto:
    head = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
    proto = onnx.parser.parse_model(f"{head} g ({x} x) => (y) {{ {nodes} }}")
    proto.graph.initializer.append(numpy_helper.from_array(RNG.normal(size=w).astype(kind), "w"))
    return proto


@ON_CPUS
@pytest.mark.parametrize(
    "nodes",
    ["t = Transpose<perm=[1,0]>(w) y = MatMul(x, t)", "t = Transpose(w) y = MatMul(x, t)",
     "y = com.microsoft.FusedMatMul<transB=1>(x, w)"],
)  # fmt: skip
@pytest.mark.parametrize("shape", ["1,7", "2,3,7", "7"])
def test_no_weight_is_turned_at_each_run(nodes: str, shape: str) -> None:
    made = model(nodes, f"float[{shape}]", (5, 7))
    fn, params = popart.to_jax(made)
    x = RNG.normal(size=[int(n) for n in shape.split(",")]).astype(np.float32)
    assert "transpose[" not in str(jax.make_jaxpr(fn)(params, {"x": x}))
    y = fn.jit(params, {"x": x})["y"]
    np.testing.assert_allclose(y, x @ params["w"].T, rtol=1e-5, atol=1e-6)
    slope = jax.grad(lambda p: fn(p, {"x": x})["y"].sum())(params)["w"]
    np.testing.assert_allclose(slope, np.broadcast_to(x.reshape(-1, 7).sum(0), (5, 7)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("nodes", "x", "kind"),
    [
        ("t = Transpose<perm=[0,1]>(w) y = MatMul(x, t)", "float[3,5]", np.float32),
        ("t = Transpose(w) y = MatMul(t, x)", "float[5,3]", np.float32),
        ("t = Transpose(w) y = MatMul(x, t)", "double[3,7]", np.float64),
        ("t = Transpose(w) u = MatMul(x, t) s = ReduceMax<keepdims=0>(t) y = Add(u, s)", "float[3,7]", np.float32),
    ],
)  # fmt: skip
def test_others_are_computed_as_they_are_written(nodes: str, x: str, kind: type) -> None:
    made = model(nodes, x, (5, 7), kind)
    data = RNG.normal(size=[int(n) for n in x[x.index("[") + 1 : -1].split(",")]).astype(kind)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": data})
    with jax.enable_x64(kind is np.float64):
        fn, params = popart.to_jax(made)
        np.testing.assert_allclose(fn(params, {"x": data})["y"], wanted, rtol=1e-5, atol=1e-5)


@ON_CPUS
@pytest.mark.parametrize(
    ("order", "q", "k", "transposes"),
    [
        ("0,1,3,2", (2, 3, 1, 4), (2, 3, 5, 4), 0),
        ("0,2,3,1", (2, 3, 6, 4), (2, 5, 3, 4), 1),  # heads are still moved before places
        ("0,1,3,2", (2, 3, 6, 4), (1, 3, 5, 4), 2),  # leading dimensions that broadcast
        ("1,0,2", (3, 2, 4), (4, 3, 5), 1),  # nothing is swapped
    ],
)
def test_keys_of_attention_are_read_as_they_come(order: str, q: Any, k: Any, transposes: int) -> None:
    sizes = {"q": ",".join(map(str, q)), "k": ",".join(map(str, k))}
    nodes = f"t = Transpose<perm=[{order}]>(k) y = MatMul(q, t)"
    head = '<ir_version: 8, opset_import: ["": 17]>'
    made = onnx.parser.parse_model(f"{head} g (float[{sizes['q']}] q, float[{sizes['k']}] k) => (y) {{ {nodes} }}")
    feed = {"q": RNG.normal(size=q).astype(np.float32), "k": RNG.normal(size=k).astype(np.float32)}
    fn, _ = popart.to_jax(made)
    assert str(jax.make_jaxpr(lambda f: fn({}, f))(feed)).count("transpose[") == transposes
    np.testing.assert_allclose(fn.jit({}, feed)["y"], ReferenceEvaluator(made).run(None, feed)[0], rtol=1e-5, atol=1e-5)


def test_rows_that_do_not_fit_are_refused_as_a_matmul() -> None:
    fn, params = popart.to_jax(model("t = Transpose(w) y = MatMul(x, t)", "float[2,6]", (5, 7)))
    with pytest.raises(popart.popart_exception, match="MatMul contracting dimensions unequal"):
        fn(params, {"x": np.ones((2, 6), np.float32)})


@pytest.mark.parametrize("order", ["1,1", "2,1", "0,1,3,2"])
@pytest.mark.parametrize("before", ["a = Identity(x)", "a = Reshape(x, s)"])
def test_a_wrong_permutation_is_refused_as_a_transpose(order: str, before: str) -> None:
    made = model(f"{before} t = Transpose<perm=[{order}]>(a) y = MatMul(x, t)", "float[7,7]", (5, 7))
    made.graph.initializer.append(numpy_helper.from_array(np.array([7, 7]), "s"))
    fn, params = popart.to_jax(made)
    with pytest.raises(popart.popart_exception, match="Transpose"):
        fn(params, {"x": np.ones((7, 7), np.float32)})
