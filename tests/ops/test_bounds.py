"""Results whose size depends on data, compiled with a bound, against the exact eager results."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from popart_jax import backend, popart_exception, to_jax

from .single import model

RNG = np.random.default_rng(3)
X = (RNG.integers(0, 3, (4, 5))).astype(np.float32)
BOXES = RNG.uniform(0, 10, (2, 12, 4)).astype(np.float32)
SCORES = RNG.uniform(0, 1, (2, 3, 12)).astype(np.float32)
LIMITS = [np.array(3, np.int64), np.array(0.3, np.float32), np.array(0.2, np.float32)]


def compiled(proto: onnx.ModelProto, bounds: Any, inputs: list[Any]) -> dict[str, np.ndarray]:
    fn, params = to_jax(proto, bounds=bounds)
    fed = {f"x{i}": x for i, x in enumerate(inputs)}
    return {n: np.asarray(y) for n, y in jax.jit(fn)(params, fed).items()}


@pytest.mark.parametrize(
    ("op", "inputs", "axis", "fill", "size"),
    [
        ("NonZero", [X], 1, 0, 20),
        ("NonZero", [X], 1, -1, 18),
        ("NonZero", [X], 1, 0, 4),
        ("Compress", [X.reshape(-1), X.reshape(-1) > 1], 0, 0, 20),
        ("Compress", [X.reshape(-1), X.reshape(-1) > 1], 0, 7, 19),
        ("NonMaxSuppression", [BOXES, SCORES, *LIMITS], 0, -1, 30),
        ("NonMaxSuppression", [BOXES, SCORES, *LIMITS], 0, -1, 5),
    ],
)
def test_results_are_the_exact_ones_filled_up(op: str, inputs: list[Any], axis: int, fill: int, size: int) -> None:
    proto = model(op, inputs)
    (exact,) = backend.run_model(proto, inputs)
    got = compiled(proto, {"y0": (size, fill)}, inputs)["y0"]
    pads = [(0, 0)] * exact.ndim
    pads[axis] = (0, max(0, size - exact.shape[axis]))
    padded = np.pad(exact, pads, constant_values=fill)
    np.testing.assert_array_equal(got, np.take(padded, range(size), axis))
    assert got.dtype == exact.dtype


def test_a_mask_of_lengths_compiles_for_a_longest_one() -> None:
    text = """(float[B, T] x, int64[B] n) => (float[B, T] y) {
        zero = Constant<value_int=0>() one = Constant<value_int=1>() last = Constant<value_ints=[1]>()
        none = Constant<value_float=0.0>() longest = ReduceMax<keepdims=0>(n) places = Range(zero, longest, one)
        wide = Unsqueeze(n, last) mask = Less(places, wide) y = Where(mask, x, none) }"""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')
    feeds = {"x": X + 1, "n": np.array([2, 5, 0, 4])}
    fn, params = to_jax(proto, bounds={"places": 5})
    plain, filled = (to_jax(proto, bounds=bounds)[0] for bounds in ({}, {"places": (5, -1)}))
    expected = (X + 1) * (np.arange(5) < feeds["n"][:, None])
    np.testing.assert_array_equal(fn.jit(params, feeds)["y"], expected)
    np.testing.assert_array_equal(plain(params, feeds)["y"], expected)
    with pytest.raises(popart_exception, match="bounds="):
        plain.jit(params, feeds)
    with pytest.raises(popart_exception, match="'places' is made by Range, which takes a size and no fill value"):
        filled.jit(params, feeds)


@pytest.mark.parametrize("sort", [0, 1])
@pytest.mark.parametrize("attributes", [{}, {"axis": 0}])
def test_unique_has_counts_of_zero_beyond_its_end(sort: int, attributes: dict[str, int]) -> None:
    x = X if not attributes else X[[0, 1, 0, 3, 1]][:, :2]
    proto = model("Unique", [x], 4, sorted=sort, **attributes)
    exact = backend.run_model(proto, [x])
    got = compiled(proto, {"y0": 8}, [x])
    count = exact[0].shape[0]
    assert got["y0"].shape[0] == 8
    np.testing.assert_array_equal(got["y0"][:count], exact[0])
    np.testing.assert_array_equal(got["y1"][:count], exact[1])
    np.testing.assert_array_equal(got["y2"], exact[2])
    np.testing.assert_array_equal(got["y3"], [*exact[3], *[0] * (8 - count)])


def doubling() -> onnx.ModelProto:
    """Doubles `x` while it is below a limit, at most `trip` times, and lists the values."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["v_out"]),
            helper.make_node("Less", ["v_out", "limit"], ["go_out"]),
            helper.make_node("Identity", ["v_out"], ["row"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v_out", TensorProto.FLOAT, []),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, []),
        ],
    )
    nodes = [helper.make_node("Loop", ["trip", "", "x"], ["last", "rows"], body=body)]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, []),
        helper.make_tensor_value_info("limit", TensorProto.FLOAT, []),
        helper.make_tensor_value_info("trip", TensorProto.INT64, []),
    ]
    outputs = [
        helper.make_tensor_value_info("last", TensorProto.FLOAT, []),
        helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n"]),
    ]
    graph = helper.make_graph(nodes, "doubling", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize(("limit", "trip"), [(20.0, 9), (1e9, 4), (0.1, 9), (1e9, 0)])
def test_a_bounded_loop_pads_its_rows(limit: float, trip: int) -> None:
    fed = {"x": np.float32(1), "limit": np.float32(limit), "trip": np.int64(trip)}
    last, rows = backend.run_model(doubling(), fed)
    fn, params = to_jax(doubling(), bounds={"rows": 12})
    got = jax.jit(fn)(params, fed)
    assert got["last"] == last
    np.testing.assert_array_equal(got["rows"], [*rows, *[0.0] * (12 - len(rows))])
    slope = jax.grad(lambda x: fn(params, {**fed, "x": x})["last"])(np.float32(1))
    assert slope == 2.0 ** len(rows)


@pytest.mark.parametrize("op", ["NonZero", "Unique", "Compress", "NonMaxSuppression"])
def test_without_a_bound_the_error_says_how_to_give_one(op: str) -> None:
    inputs = {"Compress": [X, X[:, 0] > 0], "NonMaxSuppression": [BOXES, SCORES, *LIMITS]}.get(op, [X])
    proto = model(op, inputs)
    with pytest.raises(popart_exception, match=r"node 'node'.*bounds=\{'y0': N\}"):
        compiled(proto, None, inputs)


@pytest.mark.parametrize(
    ("bounds", "match"),
    [({"z": 3}, "no node makes the tensor 'z'"), ({"y0": -1}, "size from 0 on"), ({"y0": 1.5}, "size")],
)
def test_bad_bounds_are_refused(bounds: Any, match: str) -> None:
    with pytest.raises(popart_exception, match=match):
        to_jax(model("NonZero", [X]), bounds=bounds)


def test_an_attribute_bounds_a_node_of_a_session() -> None:
    import popart_jax as popart

    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [5])
    found = builder.aiOnnx.nonzero([x])
    builder.addNodeAttribute("__size", 4, {found})
    builder.addOutputTensor(found)
    flow = popart.DataFlow(1, {found: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createIpuModelDevice({})
    session = popart.InferenceSession(builder.getModelProto(), flow, device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.array([0, 3, 0, 1, 2], np.float32)}, anchors))
    np.testing.assert_array_equal(anchors[found], [[1, 3, 4, 2**31 - 1]])
