"""Products and convolutions of 8-bit numbers: exact against NumPy and ONNX, at the ends of their range too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import helper as oh
from onnx import numpy_helper as nh
from onnx.reference import ReferenceEvaluator

import popart_jax
from popart_jax.lowering.kernels import onednn
from popart_jax.lowering.passes import compiler_options
from popart_jax.ops.kernels import library_called, staying, tracing_for

RNG = np.random.default_rng(0)
pytestmark = pytest.mark.filterwarnings("ignore:The model has no trainable parameters")
Arrays = dict[str, Any]
Traced = tuple[Callable[[Arrays, Arrays], Arrays], tuple[Arrays, Arrays]]


def byte(kind: Any, *shape: int, extreme: bool = False) -> np.ndarray:
    """Random 8-bit numbers, or the one of the largest magnitude everywhere."""
    info = np.iinfo(kind)
    drawn = RNG.integers(info.min, info.max, shape, endpoint=True)
    return np.full_like(drawn, 255 if info.min == 0 else -128).astype(kind) if extreme else drawn.astype(kind)


def model(op: str, inputs: dict[str, np.ndarray], fed: set[str], **attributes: Any) -> onnx.ModelProto:
    """One node; inputs that are not fed are initializers."""
    node = oh.make_node(op, list(inputs), ["y"], **attributes)
    types = {n: oh.np_dtype_to_tensor_dtype(x.dtype) for n, x in inputs.items()}
    graph = oh.make_graph(
        [node], "g", [oh.make_tensor_value_info(n, types[n], inputs[n].shape) for n in inputs if n in fed],
        [oh.make_empty_tensor_value_info("y")],
        [nh.from_array(x, n) for n, x in inputs.items() if n not in fed],
    )  # fmt: skip
    graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32 if op.endswith("Integer") else types["y_zero"]
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 13)], ir_version=8)


def traces(op: str, inputs: dict[str, np.ndarray], fed: set[str], calls: bool = True, **attributes: Any) -> Traced:
    """As XLA computes it in programs for files, on a GPU and on a TPU, and what oneDNN makes of it where that is there.

    Only traced by `one_program`: to compile each on its own takes most of the time.
    """
    fn, params = popart_jax.to_jax(model(op, inputs, fed, **attributes))

    def trace(params: Arrays, feed: Arrays) -> Arrays:
        with staying(False):
            found = {"file": fn(params, feed)["y"]}
        if op.endswith("Integer"):
            with staying(False), tracing_for("gpu"):  # and on a TPU
                found["gpu"] = fn(params, feed)["y"]
        with staying():
            found["called"] = fn(params, feed)["y"]
            assert library_called() == (calls and onednn.usable())
        return found

    return trace, (params, {n: inputs[n] for n in fed})


def one_program(*cases: Traced) -> list[np.ndarray]:
    """The result of each case, which must be the same by all ways."""
    made = jax.jit(lambda feeds: [trace(*feed) for (trace, _), feed in zip(cases, feeds, strict=True)])
    found = [{way: np.asarray(y) for way, y in one.items()} for one in made([feed for _, feed in cases])]
    for one in found:
        for way, there in one.items():
            np.testing.assert_array_equal(there, one["file"], way)
    return [one["file"] for one in found]


def reference(op: str, inputs: dict[str, np.ndarray], **attributes: Any) -> np.ndarray:
    evaluator = ReferenceEvaluator(model(op, inputs, set(inputs), **attributes))
    (found,) = evaluator.run(None, dict(inputs))
    return np.asarray(found)


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8"), ("int8", "int8")])
def test_matrix_products_are_exact_whatever_the_zero_points(kinds, known, extreme):
    a, b = byte(kinds[0], 2, 5, 1100, extreme=extreme), byte(kinds[1], 1100, 7, extreme=extreme)
    cases, exact = [], []
    for p, q in ((byte(kinds[0]), byte(kinds[1])), (byte(kinds[0], 5), byte(kinds[1], 7)), (None, None)):
        inputs = {"a": a, "b": b} | ({} if p is None else {"p": p, "q": q})
        rows = 0 if p is None else p.astype(np.int64).reshape(-1, 1)
        columns = 0 if q is None else q.astype(np.int64)
        exact.append((a.astype(np.int64) - rows) @ (b.astype(np.int64) - columns))
        cases.append(traces("MatMulInteger", inputs, {"a"} if known else set(inputs)))
    for found, wanted in zip(one_program(*cases), exact, strict=True):
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "uint8")])
def test_a_row_times_many_known_weights_is_exact(kinds: tuple[str, str], extreme: bool) -> None:
    """Also where the sum is cut, and the library isn't called."""
    a, b = byte(kinds[0], 1, 4100, extreme=extreme), byte(kinds[1], 4100, 33, extreme=extreme)
    p, q = byte(kinds[0]), byte(kinds[1], 33)
    inputs = {"a": a, "b": b, "p": p, "q": q}
    fn, params = popart_jax.to_jax(model("MatMulInteger", inputs, {"a"}))
    program = jax.make_jaxpr(lambda a: fn(params, {"a": a})["y"])(a)
    assert "i8[33,4000]" in str(program)
    assert "product_of_bytes" not in str(program)
    exact = (a.astype(np.int64) - int(p)) @ (b.astype(np.int64) - q)
    np.testing.assert_array_equal(fn.jit(params, {"a": a})["y"], exact)


CONVOLUTIONS = {
    "one channel": ((1, 1, 9, 8), (6, 1, 5, 5), {"pads": [2, 2, 2, 2]}),
    "one channel, dilated": (
        (2, 1, 9, 8),
        (6, 1, 3, 2),
        {"pads": [3, 2, 0, 1], "dilations": [2, 3], "strides": [2, 1]},
    ),
    "3x3": ((1, 40, 9, 8), (6, 40, 3, 3), {"pads": [1, 1, 1, 1]}),
    "three channels": ((2, 3, 9, 8), (6, 3, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "strides": ((2, 16, 9, 8), (6, 16, 3, 3), {"pads": [0, 1, 2, 1], "strides": [2, 3]}),
    "pointwise": ((2, 70, 4, 5), (6, 70, 1, 1), {}),
    "pointwise with strides": ((2, 70, 4, 5), (6, 70, 1, 1), {"strides": [2, 2]}),
    "dilations": ((1, 64, 9, 9), (6, 64, 3, 3), {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    "depthwise": ((1, 12, 9, 9), (12, 1, 3, 3), {"group": 12, "pads": [1, 1, 1, 1]}),
    "groups": ((1, 64, 5, 5), (6, 32, 3, 3), {"group": 2}),
    "depthwise, two kernels a channel": ((1, 12, 9, 9), (24, 1, 3, 3), {"group": 12, "strides": [2, 2]}),
    "one dimension": ((2, 100, 20), (6, 100, 5), {"pads": [2, 2]}),
    "one dimension, dilated": ((2, 6, 20), (6, 6, 3), {"pads": [2, 1], "strides": [2], "dilations": [3]}),
    "three dimensions": ((1, 8, 4, 5, 4), (3, 8, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
}


PADDED = [
    ((1, 64, 4, 1), (512, 64, 3, 1), [1, 2, 0, 0]),
    ((1, 8, 2, 4), (512, 8, 3, 3), [1, 1, 0, 1]),
    ((1, 4, 4, 4), (512, 4, 3, 3), [0, 2, 0, 2]),
    ((1, 64, 7, 4), (64, 64, 3, 3), [0, 2, 0, 1]),
]


@pytest.mark.usefixtures("optimised")  # XLA's passes make the padding a part of the convolution
@pytest.mark.parametrize(("data", "weights", "pads"), PADDED)
def test_bytes_that_are_zero_after_padding_are_summed_exactly_by_xla(data: Any, weights: Any, pads: list[int]) -> None:
    inputs = {"x": byte("uint8", *data), "w": byte("int8", *weights), "p": np.asarray(128, np.uint8)}
    fn, params = popart_jax.to_jax(model("ConvInteger", inputs, {"x"}, pads=pads))
    with staying(False):
        found = jax.jit(lambda x: fn(params, {"x": x})["y"])(inputs["x"])
    np.testing.assert_array_equal(found, reference("ConvInteger", inputs, pads=pads))


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_exact(name, kinds, extreme):
    shape, kernel, attributes = CONVOLUTIONS[name]
    x, w = byte(kinds[0], *shape, extreme=extreme), byte(kinds[1], *kernel, extreme=extreme)
    p, q = byte(kinds[0]), byte(kinds[1])
    wide = {"x": x.astype(np.float64) - float(p), "w": w.astype(np.float64) - float(q)}
    node = oh.make_node("Conv", ["x", "w"], ["y"], **attributes)
    infos = [oh.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, v.shape) for n, v in wide.items()]
    graph = oh.make_graph([node], "g", infos, [oh.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, None)])
    (exact,) = ReferenceEvaluator(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 13)])).run(None, wide)
    inputs = {"x": x, "w": w, "p": p, "q": q}
    many = attributes.get("group", 1) > 1 or math.prod(kernel[2:]) == 1 or math.prod(kernel[1:]) > 49
    for found in one_program(*(traces("ConvInteger", inputs, fed, many, **attributes) for fed in ({"x"}, {*inputs}))):
        np.testing.assert_array_equal(found, np.rint(exact))


@pytest.mark.parametrize("per_filter", [False, True])
def test_quantised_layers_agree_with_onnx(per_filter):
    x, w = byte("uint8", 1, 40, 9, 8), byte("int8", 6, 40, 3, 3)
    count = (6,) if per_filter else ()
    scales = {"x_scale": np.float32(0.02), "x_zero": np.uint8(100)}
    of_weights = {"w_scale": RNG.random(count, np.float32) * np.float32(0.01), "w_zero": np.zeros(count, np.int8)}
    of_result = {"y_scale": np.float32(0.7), "y_zero": np.uint8(130)}
    inputs = {"x": x} | scales | {"w": w} | of_weights | of_result
    inputs = {n: np.asarray(v) for n, v in inputs.items()} | {"bias": RNG.integers(-9999, 9999, 6).astype(np.int32)}
    wanted = reference("QLinearConv", inputs, pads=[1, 1, 1, 1])
    (found,) = one_program(traces("QLinearConv", inputs, {"x"}, pads=[1, 1, 1, 1]))
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1  # where a product lies between two
    assert np.mean(found != wanted) < 0.01
    a, b = byte("uint8", 5, 1100), byte("int8", 1100, 7)
    inputs = {"a": a} | {f"a{n[1:]}": v for n, v in scales.items()} | {"b": b, "b_scale": np.float32(0.01)}
    inputs = {n: np.asarray(v) for n, v in (inputs | {"b_zero": np.int8(3)} | of_result).items()}
    wanted = reference("QLinearMatMul", inputs)
    (found,) = one_program(traces("QLinearMatMul", inputs, {"a"}))
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1
    assert np.mean(found != wanted) < 0.05


@pytest.mark.parametrize("platform", ["gpu", "tpu", "one that is new"])
def test_other_platforms_take_none_of_the_cpus_choices(platform):
    a, b, w = byte("uint8", 4, 300), byte("int8", 300, 4), byte("int8", 4, 1, 3, 3)
    image = byte("uint8", 1, 4, 6, 6)
    product = model("MatMulInteger", {"a": a, "b": b}, {"a", "b"})
    depthwise = model("ConvInteger", {"x": image, "w": w}, {"x", "w"}, group=4)
    for proto, inputs in ((product, {"a": a, "b": b}), (depthwise, {"x": image, "w": w})):
        fn, params = popart_jax.to_jax(proto)
        with tracing_for(platform):
            there = str(jax.make_jaxpr(lambda feed, fn=fn, params=params: fn(params, feed))(inputs))
        with tracing_for("cpu"):
            here = str(jax.make_jaxpr(lambda feed, fn=fn, params=params: fn(params, feed))(inputs))
        assert "i32[" in there
        assert there != here
    graph = popart_jax.to_jax(floats())[0].model.graph
    assert compiler_options(graph, training=False, platform="cpu")
    assert compiler_options(graph, training=False, platform=platform) == {}


def floats() -> onnx.ModelProto:
    """A convolution of floats, for which the CPU has compiler options."""
    x, y = (oh.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 2, 5, 5]) for n in "xy")
    weights = nh.from_array(np.ones((2, 2, 1, 1), np.float32), "w")
    graph = oh.make_graph([oh.make_node("Conv", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 13)], ir_version=8)


def test_inner_sizes_that_differ_are_an_error():
    """Not the end of the process, as in the library."""
    a, b = np.ones((4, 3), np.uint8), np.ones((5, 2), np.uint8)
    proto = model("MatMulInteger", {"a": a, "b": b}, {"a", "b"})
    fn, params = popart_jax.to_jax(proto)
    for call in (fn, fn.jit):
        with pytest.raises(popart_jax.NodeError, match="MatMulInteger failed for operands"):
            call(params, {"a": a, "b": b})


@pytest.mark.parametrize(("rows", "terms"), [(1, 1024), (3, 300), (1, 1025)])
def test_few_products_with_known_weights_call_no_library(rows: int, terms: int) -> None:
    """In float32 as long as that is exact: with 1,024 terms of the largest magnitude it just is."""
    x, w = np.zeros((rows, terms), np.uint8), np.full((terms, 5), -128, np.int8)
    inputs = {"x": x, "w": w, "x_zero": np.array(128, np.uint8)}
    fn, params = popart_jax.to_jax(model("MatMulInteger", inputs, {"x"}))
    program = str(jax.make_jaxpr(lambda x: fn(params, {"x": x})["y"])(x))
    assert ("preferred_element_type=float32" in program) == (terms <= 1024)
    for value in (0, 255):
        y = fn.jit(params, {"x": np.full_like(x, value)})["y"]
        np.testing.assert_array_equal(y, np.full((rows, 5), (value - 128) * -128 * terms))
