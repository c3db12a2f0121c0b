# ruff: noqa: E501 - tables read better unwrapped
"""Rules that the official suites leave out: kinks, old versions, known-bad values, types."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest

from popart_jax import NeedsConstantError, popart_exception
from popart_jax.backend import run_node

from .single import function, model, run

F32 = np.float32


def gradient(op: str, inputs: list[Any], which: int = 0, **kwargs: Any) -> np.ndarray:
    fn = function(op, inputs, **kwargs)
    return np.asarray(jax.grad(lambda x: jnp.sum(fn(*inputs[:which], x, *inputs[which + 1 :])[0]))(inputs[which]))


def at(*values: float) -> np.ndarray:
    return np.asarray(values, F32)


@pytest.mark.parametrize(
    ("op", "inputs", "expected", "attributes"),
    [
        ("Relu", [at(0.0)], [0.0], {}),
        ("Abs", [at(0.0)], [0.0], {}),
        ("Sign", [at(0.0, 2.0)], [0.0, 0.0], {}),
        ("Floor", [at(1.0)], [0.0], {}),
        ("Round", [at(0.5)], [0.0], {}),
        ("Max", [at(1.0, 2.0), at(1.0, 3.0)], [1.0, 0.0], {}),
        ("Min", [at(1.0, 2.0), at(1.0, 3.0)], [1.0, 1.0], {}),
        ("ReduceMax", [at(2.0, 2.0, 1.0)], [1.0, 1.0, 0.0], {}),
        ("ReduceMin", [at(2.0, 1.0, 1.0)], [0.0, 1.0, 1.0], {}),
        ("ReduceProd", [at(0.0, 2.0, 3.0)], [6.0, 0.0, 0.0], {}),
        ("ReduceProd", [at(0.0, 0.0, 3.0)], [0.0, 0.0, 0.0], {}),
        ("ReduceL2", [at(0.0, 0.0)], [0.0, 0.0], {}),
        ("Clip", [at(-1.0, 0.0, 0.5, 1.0), at(0.0)[0], at(1.0)[0]], [0.0, 0.0, 1.0, 0.0], {}),
        ("LeakyRelu", [at(0.0, -1.0)], [1.0, 0.25], {"alpha": 0.25}),
        ("Elu", [at(0.0)], [1.25], {"alpha": 1.5}),
        ("Selu", [at(0.0)], [1.0507009873554805 * (1 + 1.6732632423543772) / 2], {}),
        ("HardSigmoid", [at(-2.5, 0.0, 2.5, 3.0)], [0.1, 0.2, 0.1, 0.0], {}),
        ("ThresholdedRelu", [at(1.0, 1.5)], [0.0, 1.0], {}),
        ("Shrink", [at(0.5, -0.5, 0.4, 0.6)], [0.5, 0.5, 0.0, 1.0], {}),
        ("Sqrt", [at(0.0)], [np.inf], {}),
        ("Softplus", [at(200.0, -200.0)], [1.0, 0.0], {}),
        ("Pow", [at(0.0, -2.0), at(2.0)], [0.0, -4.0], {}),
        ("Mish", [at(60.0, -200.0)], [1.0, 0.0], {}),
    ],
)
def test_gradient_at_a_kink_is_popart_s(
    op: str, inputs: list[Any], expected: list[float], attributes: dict[str, Any]
) -> None:
    np.testing.assert_allclose(gradient(op, inputs, **attributes), expected, rtol=1e-5)


def test_norm_of_zeros_has_no_gradient_in_popart() -> None:
    assert np.all(np.isnan(gradient("ReduceL2", [at(0.0, 0.0)], settings={"popart": True})))


def test_masked_rows_send_no_nan_back() -> None:
    scores = np.stack([np.full(3, -np.inf, F32), at(1.0, 2.0, 3.0)])
    assert np.all(np.isfinite(gradient("Softmax", [scores])))


@pytest.mark.parametrize("op", ["Sqrt", "Log"])
def test_masked_branches_send_nothing_back(op: str) -> None:
    fn = function(op, [at(0.0, -1.0, 4.0)])
    slope = jax.grad(lambda x: jnp.sum(jnp.where(x > 0, fn(x)[0], 0.0)))(at(0.0, -1.0, 4.0))
    np.testing.assert_allclose(slope, [0, 0, 0.25], rtol=1e-6)


def test_masked_power_sends_nothing_back() -> None:
    x, y = at(-2.0, 4.0), at(0.5)
    fn = function("Pow", [x, y])
    dx, dy = jax.grad(lambda x, y: jnp.sum(jnp.where(x > 0, fn(x, y)[0], 0.0)), (0, 1))(x, y)
    np.testing.assert_allclose(dx, [0, 0.25], rtol=1e-6)
    np.testing.assert_allclose(dy, [2 * np.log(4)], rtol=1e-6)


def test_full_gradient_reaches_every_operand_of_a_tie() -> None:
    x = at(1.0, 2.0)
    for which in (0, 1):
        np.testing.assert_array_equal(gradient("Max", [x, x.copy()], which), [1.0, 1.0])


def test_round_breaks_ties_as_the_dialect_says() -> None:
    x = at(0.5, 1.5, 2.5, -0.5, -2.5)
    np.testing.assert_array_equal(run("Round", [x])[0], [0, 2, 2, 0, -2])
    np.testing.assert_array_equal(run("Round", [x], settings={"popart": True})[0], [1, 2, 3, -1, -3])


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize(("window", "stride"), [(1, 2), (1, 3), (2, 5), (3, 2)])
def test_transposed_convolution_of_small_windows_is_padded_on_both_sides(upper: bool, window: int, stride: int) -> None:
    """Beside ONNX's reference; ONNX Runtime returns less than the shape that ONNX infers."""
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=s).astype(F32) for s in ((1, 2, 4, 3), (2, 3, window, window))]
    attributes = {"auto_pad": "SAME_UPPER" if upper else "SAME_LOWER", "strides": [stride] * 2}
    node = onnx.helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)
    want = onnx.reference.ReferenceEvaluator(node).run(None, dict(zip("xw", inputs, strict=True)))[0]
    assert want.shape == (1, 3, 4 * stride, 3 * stride)
    np.testing.assert_allclose(run("ConvTranspose", inputs, **attributes)[0], want, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, -2])
def test_opset_6_aligns_the_second_operand_at_an_axis(axis: int) -> None:
    x, y = np.arange(24, dtype=F32).reshape(2, 3, 4), np.arange(6, dtype=F32).reshape(2, 3)
    start = axis % 3
    y = y if start == 0 else y[0] if start == 1 else y[0, :1]
    (got,) = run("Add", [x, y], at=6, broadcast=1, axis=axis)
    np.testing.assert_array_equal(got, x + y.reshape(y.shape + (1,) * (3 - start - y.ndim)))


def test_opset_6_without_broadcast_refuses_other_shapes() -> None:
    with pytest.raises(popart_exception, match="broadcast is 0"):
        run("Add", [np.zeros((2, 3), F32), np.zeros(3, F32)], at=6)


@pytest.mark.parametrize(
    ("op", "inputs", "match", "kwargs"),
    [
        ("Add", [np.zeros((2, 3), F32), np.zeros((2, 3), np.float16)],
         r"np broadcasting failed on Op Add, incompatible types FLOAT and FLOAT16 \(shapes \[2 3\] and \[2 3\]\)", {}),
        ("Mul", [np.zeros((2, 3), F32), np.zeros(4, F32)], r"np broadcasting failed on 'Op Mul', frames \[2, 3\] and \[4\] are not aligned", {}),
        ("Sum", [np.zeros(2, F32), np.zeros((1, 2), F32)], "Inputs to ai.onnx.Sum:6 do not all the same type & shape", {"at": 7}),
        ("MatMul", [np.zeros((2, 3), F32), np.zeros((4, 5), F32)], r"contracting dimensions unequal: lhs 'input 0' \[2 3\], rhs 'input 1' \[4 5\]", {}),
        ("MatMul", [np.zeros((), F32), np.zeros((4, 5), F32)], "doesn't support scalar tensor", {}),
        ("Reshape", [np.zeros(6, F32), np.array([-1, -1])], "can only use -1 to specify one unknown dimension", {"static": [1]}),
        ("Reshape", [np.zeros(6, F32), np.array([4, -1])], "Incompatible inferred dimension", {"static": [1]}),
        ("Reshape", [np.zeros(6, F32), np.array([4, 2])], "number of elements cannot change", {"static": [1]}),
        ("Reshape", [np.zeros(6, F32), np.array([-2, 3])], "cannot be smaller than -1", {"static": [1]}),
        ("Gather", [np.zeros((2, 3), F32), np.array([5])], r"index out of range: expected \[-2, 1\], got \[5, 5\]", {"static": [1]}),
        ("Gather", [np.zeros((2, 3), F32), np.array([0])], "is outside the acceptable range", {"axis": 2}),
        ("ScatterElements", [np.zeros(3, F32), np.array([-4]), np.zeros(1, F32)], "index out of range", {"static": [1]}),
        ("Concat", [np.zeros(2, F32), np.zeros(2, np.int32)], "All input tensor types to a concat operation must be equal", {"axis": 0}),
        ("Concat", [np.zeros(2, F32), np.zeros(2, F32)], "is outside of acceptable range", {"axis": 1}),
        ("Concat", [np.zeros((2, 2), F32), np.zeros((2, 3), F32)], "does not have matching shape", {"axis": 0}),
        ("TopK", [np.zeros(3, F32), np.array([4])], "Cannot take top-4", {"n_out": 2}),
        (
            "MatMulInteger",
            [np.ones((2, 2), np.uint8), np.ones((2, 2), np.uint8), np.ones((2, 2), np.uint8)],
            "zero point of A",
            {},
        ),
        ("ArgMax", [np.zeros((), F32)], "input rank must be greater than 0", {"axis": 1}),
        ("Tile", [np.zeros((2, 2), F32), np.array([2])], "should have one element for each dimension", {}),
        ("Transpose", [np.zeros((2, 2), F32)], "must be equal to rank of", {"perm": [0, 1, 2]}),
        ("Expand", [np.zeros((2, 3), F32), np.array([2, 4])], "corresponding dimensions must have the same value", {}),
        ("Pad", [np.zeros((2, 3), F32), np.array([1, 1])], "pads of size 2, and input tensor of rank 2. Expected pads to be exactly 2x", {}),
        ("Split", [np.zeros(5, F32)], "may not be split into equally sized parts", {"n_out": 2, "at": 13}),
        ("CumSum", [np.zeros(3, F32), np.array(0)], "attributes must be 0 or 1", {"exclusive": 2}),
        ("OneHot", [np.array([1]), np.array([2, 2]), np.zeros(2, F32)], "depth tensor should be rank 0", {"static": [1]}),
        ("Squeeze", [np.zeros((2, 3), F32), np.array([0])], "has a size other than 1", {}),
    ],
)  # fmt: skip
def test_known_bad_values_are_refused(op: str, inputs: list[Any], match: str, kwargs: dict[str, Any]) -> None:
    with pytest.raises(popart_exception, match=match):
        run(op, inputs, **{"static": range(1, len(inputs)) if inputs[-1].dtype.kind == "i" else (), **kwargs})


def test_run_time_shape_names_the_node_and_the_chain() -> None:
    fn = function("Reshape", [np.zeros(6, F32), np.array([2, 3])])
    with pytest.raises(NeedsConstantError, match=r"node 'node': input 1 .* must be a compile-time constant"):
        jax.jit(fn)(np.zeros(6, F32), np.array([2, 3]))


def test_data_dependent_shapes_are_exact_outside_jit_and_named_inside() -> None:
    x = np.array([[0, 1], [2, 0]], F32)
    np.testing.assert_array_equal(function("NonZero", [x])(x)[0], [[0, 1], [1, 0]])
    with pytest.raises(popart_exception, match="how many elements NonZero finds is known only when the program runs"):
        jax.jit(function("NonZero", [x]))(x)


@pytest.mark.parametrize("dtype", [np.int32, np.int8])
def test_integer_division_truncates(dtype: Any) -> None:
    x, y = np.array([7, -7, 7, -7], dtype), np.array([2, 2, -2, -2], dtype)
    for static in ((), (0, 1)):
        np.testing.assert_array_equal(run("Div", [x, y], static=static)[0], [3, -3, -3, 3])
    np.testing.assert_array_equal(run("Mod", [x, y])[0], [1, 1, -1, -1])


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [(ml_dtypes.float8_e4m3fn, 448), (ml_dtypes.float8_e5m2, 57344), (ml_dtypes.float8_e4m3fnuz, 240)],
)
def test_float8_saturates_unless_told_otherwise(dtype: Any, largest: float) -> None:
    x, to = at(1e6, -np.inf, np.nan), onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    kept = np.asarray(run("Cast", [x], to=to)[0]).astype(F32)
    np.testing.assert_array_equal(kept, [largest, -largest, np.nan])
    lost = np.asarray(run("Cast", [x], to=to, saturate=0)[0]).astype(F32)
    assert not np.any(np.isfinite(lost))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_before_13_runs_over_everything_from_the_axis(op: str, axis: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(F32)
    session = onnxruntime.InferenceSession(model(op, [x], at=11, axis=axis).SerializeToString())
    np.testing.assert_allclose(run(op, [x], at=11, axis=axis)[0], session.run(None, {"x0": x})[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "inputs", [[np.arange(6, dtype=F32).reshape(2, 3)], {"x": np.arange(6, dtype=F32).reshape(2, 3)}]
)
def test_run_node(inputs: Any) -> None:
    node = onnx.helper.make_node("ReduceSum", ["x"], ["y"], axes=[1])
    (got,) = run_node(node, inputs, opset_version=11)
    np.testing.assert_array_equal(got, [[3.0], [12.0]])


def test_64_bit_types_are_exact_in_the_backend() -> None:
    big = np.array([2**53 + 1, -(2**62)], np.int64)
    (got,) = run_node(onnx.helper.make_node("Add", ["x", "y"], ["z"]), [big, np.array([1, 1], np.int64)])
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, big + 1)


POPART = {"popart": True}


@pytest.mark.parametrize(
    ("op", "inputs", "position", "words"),
    [
        ("Reshape", [np.zeros(6, F32), np.array([2, 3])], 1, "Need the value of the ai.onnx.Reshape:5 input 'shape'"),
        (
            "Slice",
            [np.zeros(6, F32), np.array([1]), np.array([3])],
            1,
            "Need the value of the ai.onnx.Slice:11 input 'starts'",
        ),
        ("Tile", [np.zeros(2, F32), np.array([2])], 1, "The 'Repeats' Tensor `x1' must be of type Constant"),
        ("CumSum", [np.zeros(2, F32), np.array(0)], 1, "the axis tensor x1 does not have data"),
    ],
)
def test_popart_s_words_for_a_missing_constant(op: str, inputs: list[Any], position: int, words: str) -> None:
    with pytest.raises(NeedsConstantError, match=words) as caught:
        run(op, inputs, settings=POPART, at=11)
    assert (caught.value.node, caught.value.op, caught.value.position) == ("node", op, position)


def test_popart_takes_no_seed_attribute() -> None:
    assert run("RandomUniformLike", [np.zeros(3, F32)], seed=1.0)[0].shape == (3,)
    with pytest.raises(popart_exception, match="Optional seed attribute is not supported"):
        run("RandomUniformLike", [np.zeros(3, F32)], seed=1.0, settings=POPART)
    with pytest.raises(popart_exception, match="Unsupported data type requested: INT32"):
        run("RandomNormalLike", [np.zeros(3, np.int32)], settings=POPART)


@pytest.mark.parametrize("reduction", ["add", "mul"])
@pytest.mark.parametrize(("op", "shape"), [("ScatterElements", (3, 1)), ("ScatterND", (3,))])
def test_truth_values_are_added_and_multiplied_while_scattering(
    op: str, shape: tuple[int, ...], reduction: str
) -> None:
    data = np.array([False, False, True, True]).reshape((4, *shape[1:]))
    inputs = [data, np.array([[0], [2], [2]]), np.array([True, False, True]).reshape(shape)]
    made = model(op, inputs, reduction=reduction)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    (expected,) = session.run(None, {v.name: x for v, x in zip(session.get_inputs(), inputs, strict=True)})
    np.testing.assert_array_equal(run(op, inputs, reduction=reduction)[0], expected)


@pytest.mark.parametrize("largest", [0, 1])
def test_the_zeros_are_equal_when_the_largest_are_chosen(largest: int) -> None:
    x = np.array([[-0.0, 0.0, -0.0], [0.0, -0.0, 0.0]], F32)
    inputs = [x, np.array([2])]
    made = model("TopK", inputs, n_out=2, largest=largest)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    expected = session.run(None, {v.name: a for v, a in zip(session.get_inputs(), inputs, strict=True)})
    values, index = run("TopK", inputs, static=[1], n_out=2, largest=largest)
    np.testing.assert_array_equal(index, expected[1])
    np.testing.assert_array_equal(np.signbit(values), np.signbit(expected[0]))
