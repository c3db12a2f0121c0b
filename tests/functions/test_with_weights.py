"""A model's function with its weights given once: ONNX Runtime's values, no work on weights at run time."""

from __future__ import annotations

import jax
import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime
import pytest

import popart_jax as popart
from popart_jax.functions.with_weights import Inference
from popart_jax.lowering.passes import autotune

from ..platforms import ON_CPUS

RNG = np.random.default_rng(0)
F, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(RNG.normal(size=shape).astype(np.float32) / 2, name)


def model(nodes: str, weights: list[onnx.TensorProto], x: str = "float[N,3,8,8]", y: str = "float[N,5]") -> bytes:
    text = f'<ir_version: 8, opset_import: ["": 17]> g({x} x) => ({y} y) {{ {nodes} }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(weights)
    return proto.SerializeToString()


NET = model(
    "a = Conv<pads=[1,1,1,1]>(x, k) b = AveragePool<kernel_shape=[2,2], pads=[1,1,1,1], count_include_pad=1>(a) "
    "c = Relu(b) d = Flatten(c) y = Gemm<transB=1>(d, w, v)",
    [weight("k", 4, 3, 3, 3), weight("w", 5, 4 * 81), weight("v", 5)],
)


def images(count: int) -> np.ndarray:
    return RNG.normal(size=(count, 3, 8, 8)).astype(np.float32)


def theirs(proto: bytes, x: np.ndarray) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(proto).run(None, {"x": x})[0])


def lowered_text(infer: Inference) -> list[str]:
    return [c.call.as_text() for c in infer._programs.found.values()]


@ON_CPUS
def test_values_for_every_batch_size_and_no_weight_is_turned_at_run_time() -> None:
    fn, params = popart.to_jax(NET)
    infer = fn.with_weights(params)
    for count in (1, 3, 3):
        x = images(count)
        np.testing.assert_allclose(infer({"x": x})["y"], theirs(NET, x), rtol=1e-4, atol=1e-5)
    assert len(infer._programs.found) == 2
    sizes = {n: np.size(p) for n, p in params.items()}
    for text in lowered_text(infer):
        turned = [line for line in text.splitlines() if " transpose(" in line or " copy(" in line]
        assert not [line for line in turned if any(f"[{n}]" in line for n in map(str, sizes.values()))]
        assert "f32[3,3,3,4]" in text  # the kernel comes laid out
        assert "f32[4,3,3,3]" not in text
        assert "f32[5,324]" not in text


def test_shapes_share_the_weights_that_were_laid_out() -> None:
    fn, params = popart.to_jax(NET)
    infer = fn.with_weights(params)
    for count in (1, 2):
        infer({"x": images(count)})
    first, second = (c.weights for c in infer._programs.found.values())
    assert all(a is b for a, b in zip(first, second, strict=True))


def test_calls_of_several_shapes_put_nothing_on_the_device(monkeypatch) -> None:
    """Where the weights lie is asked once: asked anew, a call with 160 weights took 8 ms in place of 0.08."""
    fn, params = popart.to_jax(NET)
    infer, given = fn.with_weights(jax.device_put(params, jax.devices()[0])), [{"x": images(n)} for n in (1, 3)]
    for inputs in given:
        infer(inputs)
    puts, put = [], jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda *args, **how: puts.append(args) or put(*args, **how))
    for inputs in given:
        infer(inputs)
    assert puts == []


def test_trained_weights_are_the_ones_used_and_the_function_keeps_its_gradient() -> None:
    fn, params = popart.to_jax(NET)
    x = images(2)
    gradients = jax.grad(lambda p: fn(p, {"x": x})["y"].sum())(params)
    np.testing.assert_allclose(gradients["v"], np.full(5, 2.0), rtol=1e-6)
    trained = {n: p - 0.1 * gradients[n] for n, p in params.items()}
    np.testing.assert_allclose(
        fn.with_weights(trained)({"x": x})["y"], fn(trained, {"x": x})["y"], rtol=1e-4, atol=1e-5
    )


def test_64_bit_integers_arrive_whole() -> None:
    proto = model("y = Add(x, k)", [onnx.numpy_helper.from_array(np.array([1]), "k")], "int64[N]", "int64[N]")
    fn, params = popart.to_jax(proto)
    x = np.array([2**40, -7])
    found = np.asarray(fn.with_weights(params)({"x": x})["y"])
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, x + 1)


def test_python_numbers_and_a_key_are_taken() -> None:
    proto = model("u = RandomUniformLike(x) y = Add(u, x)", [], "float[2]", "float[2]")
    fn, params = popart.to_jax(proto)
    infer = fn.with_weights(params)
    x = np.ones(2, np.float32)
    one, two = (np.asarray(infer({"x": x}, jax.random.key(s))["y"]) for s in (0, 1))
    assert ((one >= 1) & (one < 2)).all()
    assert (one != two).any()


def test_texts_are_refused_with_advice() -> None:
    graph = oh.make_graph(
        [oh.make_node("StringNormalizer", ["x"], ["y"])],
        "g",
        [oh.make_tensor_value_info("x", onnx.TensorProto.STRING, [1])],
        [oh.make_tensor_value_info("y", onnx.TensorProto.STRING, [1])],
    )
    fn, params = popart.to_jax(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8))
    with pytest.raises(popart.popart_exception, match="to_jax"):
        fn.with_weights(params)({"x": np.array(["a"])})


def test_a_missing_input_is_named() -> None:
    fn, params = popart.to_jax(NET)
    with pytest.raises(popart.popart_exception, match="'x'"):
        fn.with_weights(params)({})


@ON_CPUS
def test_measured_options_are_kept_in_the_folder_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(autotune.CANDIDATES, "cpu", ({"xla_cpu_enable_fast_math": "False"},))
    fn, params = popart.to_jax(NET)
    x = images(1)
    found = fn.with_weights(params, autotune=tmp_path)({"x": x})["y"]
    np.testing.assert_allclose(found, theirs(NET, x), rtol=1e-4, atol=1e-5)
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_it_may_be_called_inside_transformations() -> None:
    fn, params = popart.to_jax(NET)
    infer, x = fn.with_weights(params), images(2)
    np.testing.assert_allclose(jax.jit(infer)({"x": x})["y"], theirs(NET, x), rtol=1e-4, atol=1e-4)
    stacked = jax.vmap(lambda x: infer({"x": x})["y"])(np.stack([x, 2 * x]))
    np.testing.assert_allclose(stacked[1], theirs(NET, 2 * x), rtol=1e-4, atol=1e-4)
    found = jax.grad(lambda x: infer({"x": x})["y"].sum())(x)
    plain = jax.grad(lambda x: fn(params, x)["y"].sum())(x)
    np.testing.assert_allclose(found, plain, rtol=1e-4, atol=1e-5)
