"""Functions of `to_jax` under settings of JAX that careful programs choose: results are as without them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import pytest

import popart_jax

NET = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,8,6,6] x) => (float[N,3] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, wide, shift) m = MaxPool<kernel_shape = [2, 2]>(c)
    n = InstanceNormalization(m, scale, offset) r = PRelu(n, slope) t = GlobalAveragePool(r) f = Flatten(t)
    z = Gemm<transB = 1>(f, head, last) e = Erf(z) a = Abs(e) y = Pow(a, two)
}"""
SHAPES = {"wide": (8, 8, 3, 3), "shift": (8,), "scale": (8,), "offset": (8,), "slope": (8, 1, 1)}
SHAPES |= {"head": (3, 8), "last": (3,)}


@pytest.fixture(scope="module")
def network() -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(NET)
    weights = {n: rng.normal(size=s).astype(np.float32) for n, s in SHAPES.items()} | {"two": np.int32([2])}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(w, n) for n, w in weights.items())
    fn, params = popart_jax.to_jax(model)
    x = rng.normal(size=(2, 8, 6, 6)).astype(np.float32)
    return fn, params, x, (fn(params, x)["y"], jax.grad(total(fn, x))(params))


def total(fn: Any, x: Any) -> Any:
    return lambda params: fn(params, x)["y"].sum()


SETTINGS = {
    "ranks": lambda: jax.numpy_rank_promotion("raise"),
    "leaks": jax.checking_leaks,
    "no jit": jax.disable_jit,
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_the_caller(name: str, network: tuple[Any, Any, Any, Any]) -> None:
    fn, params, x, (want, slopes) = network
    with SETTINGS[name]():
        found = fn(params, x), fn.with_weights(params)(x)
        gradient = jax.grad(total(jax.jit(fn), x))(params)
    for result in found:
        np.testing.assert_allclose(result["y"], want, rtol=2e-5, atol=1e-6)
    for weight, slope in slopes.items():
        np.testing.assert_allclose(gradient[weight], slope, rtol=1e-3, atol=1e-5)


def test_sessions_say_that_they_need_compiled_programs() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g(float[2] x) => (float[2] y) { y = Neg(x) }'
    )
    flow = popart_jax.DataFlow(1, {"y": popart_jax.AnchorReturnType("All")})
    device = popart_jax.DeviceManager().createIpuModelDevice({})
    with jax.disable_jit():
        session = popart_jax.InferenceSession(model, flow, device)
        with pytest.raises(popart_jax.popart_exception, match=r"jax_disable_jit(.|\n)*fix: .*disable_jit\(False\)"):
            session.prepareDevice()
        with jax.disable_jit(False):
            session.prepareDevice()
            anchors = session.initAnchorArrays()
            session.run(popart_jax.PyStepIO({"x": np.float32([1, 2])}, anchors))
    np.testing.assert_array_equal(anchors["y"], [-1, -2])
