"""64-bit types stay exact under the caller's own transformations, or the caller is told."""

from __future__ import annotations

import jax
import numpy as np
import onnx
import pytest

import popart_jax as popart

BIG = np.array([2**40, -(2**41) + 1])


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')


NEGATE = model("g(int64[N] x) => (int64[N] y) { y = Neg(x) }")
SCALED = model("g(double[N] x) => (double[N] y) <double[2] w = {1.0, 2.0}> { y = Mul(x, w) }")


def test_integers_beyond_32_bits_are_exact() -> None:
    fn, params = popart.to_jax(NEGATE)
    np.testing.assert_array_equal(fn(params, BIG)["y"], -BIG)
    np.testing.assert_array_equal(fn.jit(params, BIG)["y"], -BIG)
    np.testing.assert_array_equal(fn.exactly(jax.jit(fn))(params, BIG)["y"], -BIG)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(fn)(params, BIG)["y"], -BIG)


def test_a_plain_jit_that_would_cut_is_refused() -> None:
    fn, params = popart.to_jax(NEGATE)
    with pytest.raises(popart.popart_exception, match=r"'x' \(INT64\) came as 32-bit numbers(.|\n)*fix: use fn.jit"):
        jax.jit(fn)(params, BIG)
    fn, params = popart.to_jax(SCALED)
    with pytest.raises(popart.popart_exception, match=r"\(DOUBLE\) came as 32-bit"):
        jax.jit(fn)(params, np.ones(2))


def test_indices_may_be_cut_with_a_warning() -> None:
    fn, params = popart.to_jax(
        model("g(int64[N] x) => (float[N,2] y) <float[3,2] table = {1,2,3,4,5,6}> { y = Gather(table, x) }")
    )
    with pytest.warns(UserWarning, match="came as 32-bit numbers"):
        y = jax.jit(fn)(params, np.array([2, 0]))["y"]
    np.testing.assert_array_equal(y, [[5, 6], [1, 2]])


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_operators_that_make_indices_work_under_jit(op: str) -> None:
    fn, params = popart.to_jax(model(f"g(float[N,4] x) => (int64[N,1] y) {{ y = {op}<axis = 1>(x) }}"))
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    want = getattr(np, op.lower())(x, axis=1)[:, None]
    np.testing.assert_array_equal(jax.jit(fn)(params, x)["y"], want)


def test_double_precision_gradients_with_their_own_cotangents() -> None:
    fn, params = popart.to_jax(SCALED)
    x = np.array([1e-9, 3.0])
    gradient = jax.grad(lambda p: fn(p, x)["y"].sum())(params)["w"]
    assert gradient.dtype == np.float64
    np.testing.assert_array_equal(gradient, x)

    def pulled(p, cotangent):
        return jax.vjp(lambda q: fn(q, x)["y"], p)[1](cotangent)[0]["w"]

    np.testing.assert_array_equal(fn.exactly(pulled)(params, np.array([2.0, 0.5])), x * [2.0, 0.5])
    step = fn.exactly(jax.jit(jax.grad(lambda p, v: fn(p, v)["y"].sum())))
    np.testing.assert_array_equal(step(params, x)["w"], x)


def test_axes_that_a_jitted_function_closes_over_are_known() -> None:
    text = "g(float[2,3] x, int64[A] axes) => (float[M,N] y) { y = ReduceSum(x, axes) }"
    fn, params = popart.to_jax(model(text), trainable=())
    x, axes = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1])
    slope = jax.jit(jax.grad(lambda x: (fn(params, {"x": x, "axes": axes})["y"] ** 2).sum()))(x)
    np.testing.assert_allclose(slope, 2 * x.sum(1, keepdims=True).repeat(3, 1))
    with pytest.raises(popart.popart_exception, match=r"'axes'.* must be a compile-time constant"):
        jax.jit(lambda a: fn(params, {"x": x, "axes": a})["y"])(axes.astype(np.int32))


@pytest.mark.parametrize("wrap", ["plain", "exactly"])
def test_spectrograms_have_gradients_outside_of_the_64_bit_scope(wrap: str) -> None:
    """Beside float64 differences of NumPy's transform; the forward pass uses 64 bits, the backward pass has none."""
    text = """<float[16] w, int64 hop = {4}, int64 size = {8}>
        { s = Mul(x, w) f = STFT<onesided=1>(s, hop, , size) y = ReduceL2<axes=[3], keepdims=0>(f) }"""
    proto = model("g(float[1,16] x) => (float[1,F,B] y) " + text)
    rng = np.random.default_rng(0)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(16, np.float32), "w"))
    x, v = rng.normal(size=(1, 16)).astype(np.float32), rng.normal(size=16)
    fn, params = popart.to_jax(proto)

    def total(p):
        return fn(p, x)["y"].sum()

    grad = jax.grad(total) if wrap == "plain" else fn.exactly(jax.jit(jax.grad(total)))

    def reference(w):
        frames = np.stack([(x[0] * w)[k : k + 8] for k in (0, 4, 8)])
        return np.abs(np.fft.rfft(frames)).sum()

    expected = (reference(1 + 1e-5 * v) - reference(1 - 1e-5 * v)) / 2e-5
    np.testing.assert_allclose(np.asarray(grad(params)["w"]) @ v, expected, rtol=1e-4)
