"""A maximum equals one of the elements that it is compared with, also where XLA computes these again."""

from __future__ import annotations

import jax
import numpy as np
import onnx
import pytest

import popart_jax as popart

AS_USERS_HAVE_IT: dict[str, str | bool] = {  # tests/conftest.py compiles quickly
    "xla_backend_optimization_level": "3",
    "xla_llvm_disable_expensive_passes": False,
}
if jax.__version__.startswith("0.10.") and jax.default_backend() == "cpu":  # others do not know it
    AS_USERS_HAVE_IT["xla_cpu_use_fusion_emitters"] = True
WINDOWS = np.lib.stride_tricks.sliding_window_view
RNG = np.random.default_rng(1)
X, W, B, Q, V = (RNG.normal(size=s).astype(np.float32) for s in ((2, 8, 20), (8, 1, 3), (8,), (2, 8, 20), (8, 1)))


def slopes(body: str, pool: int, g: np.ndarray, **stored: np.ndarray) -> dict[str, np.ndarray]:
    """Gradients of a weighted sum of the maxima of `pool` neighbours, compiled as users have it."""
    text = f"{body} y = MaxPool<kernel_shape=[{pool}]>(r)"
    head = f"g(float[2,8,20] x) => (float[2,8,{g.shape[-1]}] y)"
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {head} {{ {text} }}')
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in stored.items())
    fn, params = popart.to_jax(proto)
    lowered = jax.jit(jax.grad(lambda p: (fn(p, X)["y"] * g).sum())).lower(params)
    return lowered.compile(AS_USERS_HAVE_IT)(params)


@pytest.mark.parametrize(("pool", "count"), [(9, 1), (5, 5), (3, 7)])
def test_behind_a_depthwise_convolution(pool, count):
    g = RNG.normal(size=(2, 8, count)).astype(np.float32)
    found = slopes("c = Conv<group=8, strides=[2]>(x, w, b) r = LeakyRelu(c)", pool, g, w=W, b=B)
    taps = WINDOWS(X.astype(np.float64), 3, 2)[:, :, ::2]
    windows = WINDOWS(np.einsum("ncjk,ck->ncj", taps, W[:, 0]) + B[:, None], pool, 2)
    of_sums = g * np.where(windows.max(-1) < 0, np.float32(0.01), 1)
    read = np.take_along_axis(taps, (windows.argmax(-1) + np.arange(count))[..., None], 2)
    np.testing.assert_allclose(found["w"][:, 0], np.einsum("ncj,ncjk->ck", of_sums, read), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["b"], of_sums.sum((0, 2)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_behind_a_sum_of_products(op):
    pool, scale = 3, W[:, :, 0]
    g = RNG.normal(size=(2, 8, 20 - pool + 1)).astype(np.float32)
    found = slopes(f"h = Mul(x, w) k = Mul(q, v) r = {op}(h, k)", pool, g, w=scale, v=V, q=Q)
    sign = 1 if op == "Add" else -1
    at = WINDOWS(X.astype(np.float64) * scale + sign * Q * V, pool, 2).argmax(-1) + np.arange(g.shape[-1])
    of_w, of_v = (g * np.take_along_axis(factor, at, 2) for factor in (X, sign * Q))
    np.testing.assert_allclose(found["w"], of_w.sum((0, 2))[:, None], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["v"], of_v.sum((0, 2))[:, None], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_of_two_operands_that_are_sums_of_products(op):
    g = RNG.normal(size=(2, 8, 18)).astype(np.float32)
    body = f"h = Mul(x, w) k = Mul(q, v) s = Add(h, k) t = Mul(x, v) m = {op}(s, t) r = Sigmoid(m)"
    found = slopes(body, 3, g, w=W[:, :, 0], v=V, q=Q)

    def total(w):
        m = getattr(np, f"{op.lower()}imum")(X * w + Q * V.astype(np.float64), X * V)
        return (WINDOWS(1 / (1 + np.exp(-m)), 3, 2).max(-1) * g).sum()

    for c in range(2):
        step = np.zeros((8, 1))
        step[c] = 1e-6
        wide = W[:, :, 0].astype(np.float64)
        slope = (total(wide + step) - total(wide - step)) / 2e-6
        np.testing.assert_allclose(found["w"][c, 0], slope, rtol=1e-3, atol=1e-4)
