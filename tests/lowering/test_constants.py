"""Constants are folded to the numbers that ONNX's reference evaluator finds, in the types of the model."""

from __future__ import annotations

import jax
import numpy as np
import onnx.helper as oh
import onnx_ir as ir
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import popart_jax as popart
from popart_jax.lowering.constants import folded

OPSETS = {"": 11, "ai.graphcore": 1}
A = np.array([[1.5, -2.5, 7.0], [0.25, 3.0, -4.0]], np.float32)
N = np.array([2**40, -7, 3], np.int64)

CASES = {
    "64-bit sums": ("Add", [N, N], {}),
    "quotients": ("Div", [N, np.array([2, 2, 2], np.int64)], {}),
    "casts": ("Cast", [A], {"to": 7}),
    "slices": ("Slice", [A, np.array([1]), np.array([3]), np.array([1])], {}),
    "gathers": ("Gather", [N, np.array([0, 2])], {"axis": 0}),
    "products": ("ReduceProd", [A], {"axes": [1], "keepdims": 0}),
    "concatenation": ("Concat", [N, N], {"axis": 0}),
    "shapes": ("Reshape", [A, np.array([3, -1])], {}),
    "doubles": ("Mul", [A.astype(np.float64), A.astype(np.float64)], {}),
}


def node_of(op: str, operands: list[np.ndarray], domain: str = "", **attributes: object) -> tuple[ir.Node, dict]:
    values = {ir.Value(name=f"x{i}"): x for i, x in enumerate(operands)}
    node = ir.node(op, list(values), attributes, domain=domain)
    node.outputs[0].name = "y"
    return node, values


@pytest.mark.parametrize("case", CASES)
def test_numbers_and_types_are_those_of_the_reference(case):
    op, operands, attributes = CASES[case]
    names = [f"x{i}" for i in range(len(operands))]
    infos = [
        oh.make_tensor_value_info(n, oh.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, operands, strict=True)
    ]
    graph = oh.make_graph(
        [oh.make_node(op, names, ["y"], **attributes)], "g", infos, [oh.make_empty_tensor_value_info("y")]
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 11)])
    expected = ReferenceEvaluator(model).run(None, dict(zip(names, operands, strict=True)))[0]
    node, values = node_of(op, operands, **attributes)
    (found,) = folded(node, values, OPSETS) or []
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


def test_operators_of_graphcore_are_folded_too():
    node, values = node_of("Scale", [A], "ai.graphcore", scale=0.5)
    (found,) = folded(node, values, OPSETS) or []
    np.testing.assert_array_equal(found, A * np.float32(0.5))


def test_what_is_not_all_constant_or_refused_is_left_alone():
    node, values = node_of("Add", [A, A])
    del values[next(iter(values))]
    assert folded(node, values, OPSETS) is None
    assert folded(*node_of("Reshape", [A, np.array([5])]), OPSETS) is None
    assert folded(*node_of("Unheard", [A]), OPSETS) is None


SCALED = """<ir_version: 8, opset_import: ["": 17]> g (float[2,4] x) => (float[2,4] y) {
    sizes = Shape(x)
    last = Constant<value = int64[1] {1}>()
    width = Gather(sizes, last)
    real = Cast<to = 1>(width)
    root = Sqrt(real)
    y = Div(x, root)
}"""


@pytest.mark.parametrize("transform", ["vmap", "jit of vmap", "vmap of jit", "vmap of grad"])
def test_sizes_are_folded_in_every_transformation(transform):
    """Exported attention divides by the root of a size; roots have derivatives of their own."""
    fn, params = popart.to_jax(parser.parse_model(SCALED), trainable=[])

    def one(x):
        return fn(params, x)["y"]

    ways = {
        "vmap": jax.vmap(one),
        "jit of vmap": jax.jit(jax.vmap(one)),
        "vmap of jit": jax.vmap(jax.jit(one)),
        "vmap of grad": jax.vmap(jax.grad(lambda x: (one(x) ** 2).sum())),
    }
    x = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    np.testing.assert_allclose(ways[transform](x), x / 2, rtol=1e-6)


def test_a_shape_read_of_a_tensor_leaves_its_value_to_other_readers():
    """The size [6, 1] follows from a parameter; `d` is an output, so that it is at hand when its shape is asked for."""
    text = """<ir_version: 8, opset_import: ["" : 17]> f (float[1] x) => (float[n, m] y, float[1] d)
    <float[1] w = {3}> {
        d = Add(w, w) s = Shape(d) o = Mul(s, s) v = Cast<to = 7>(d) n = Concat<axis = 0>(v, o) y = Expand(x, n)
    }"""
    model, x = parser.parse_model(text), np.ones(1, np.float32)
    fn, params = popart.to_jax(model)
    np.testing.assert_array_equal(fn.jit(params, {"x": x})["y"], ReferenceEvaluator(model).run(None, {"x": x})[0])
