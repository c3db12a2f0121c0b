"""Operators of one's own: from a file, in to_jax, with attributes, static inputs and gradients."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import popart_jax
from popart_jax import backend
from popart_jax.ops import Key, Static

DOMAIN = "test.custom"


def model(op: str, n_in: int = 1, domain: str = DOMAIN, **attributes) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(n_in)]
    node = helper.make_node(op, names, ["y"], domain=domain, name="mine", **attributes)
    kinds = [TensorProto.FLOAT, *[TensorProto.INT64] * (n_in - 1)]
    inputs = [helper.make_tensor_value_info(n, k, None) for n, k in zip(names, kinds, strict=True)]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain, 2)])


@popart_jax.custom_op(DOMAIN, "Polynomial", 1)
def polynomial(x, /, *, alpha: float = 1.0):
    return alpha * x**3


@popart_jax.custom_op(DOMAIN, "Repeat")
def repeat(x, times: Static, /):
    return jnp.tile(x, int(times))


def steep(cotangents, inputs, outputs, *, slope: float = 1.0):
    return (cotangents[0] * slope + 0 * outputs[0] * inputs[0],)


@popart_jax.custom_op(DOMAIN, "StraightThrough", gradient=steep)
def straight_through(x, /, *, slope: float = 1.0):
    return jnp.round(x)


def random_first(x, key: Key, /):
    return x


def test_from_a_file_with_attributes(tmp_path: Path) -> None:
    onnx.save(model("Polynomial", alpha=0.5), tmp_path / "m.onnx")
    x = np.array([1.0, 2.0], np.float32)
    (y,) = backend.run_model(str(tmp_path / "m.onnx"), [x])
    np.testing.assert_array_equal(y, 0.5 * x**3)


def test_in_to_jax_with_its_derivative() -> None:
    fn, _ = popart_jax.to_jax(model("Polynomial", alpha=2.0))
    x = np.array([1.0, 2.0], np.float32)
    np.testing.assert_allclose(jax.grad(lambda v: fn({}, {"x0": v})["y"].sum())(x), 6 * x**2)


def test_static_input() -> None:
    proto = model("Repeat", 2)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(3, np.int64), "x1"))
    fn, _ = popart_jax.to_jax(proto)
    assert jax.jit(lambda v: fn({}, {"x0": v})["y"])(np.ones(2, np.float32)).shape == (6,)


def test_own_gradient_is_used_also_under_jit() -> None:
    fn, _ = popart_jax.to_jax(model("StraightThrough", slope=4.0))
    x = np.array([0.4, 1.6], np.float32)
    np.testing.assert_array_equal(fn({}, {"x0": x})["y"], [0.0, 2.0])
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda v: fn({}, {"x0": v})["y"].sum()))(x), [4.0, 4.0])


def test_registering_again_replaces_and_onnx_operators_are_safe() -> None:
    popart_jax.custom_op(DOMAIN, "Changing")(lambda x, /: x + 1)
    popart_jax.custom_op(DOMAIN, "Changing")(lambda x, /: x + 2)
    (y,) = backend.run_model(model("Changing"), [np.zeros(1, np.float32)])
    assert y.tolist() == [2.0]
    with pytest.raises(ValueError, match="domain of your own"):
        popart_jax.custom_op("", "Relu")


def test_without_registration_the_operator_is_named() -> None:
    with pytest.raises(popart_jax.UnsupportedOpError, match=r"No class for test\.custom\.Absent:2") as caught:
        backend.prepare(model("Absent"))
    assert "popart_jax.custom_op('test.custom', 'Absent')" in str(caught.value)
    gap = popart_jax.UnsupportedOpError([("ai.onnx.Absent:9", "mine")])
    assert "in a domain of your own" in str(gap)  # those of ONNX can't be replaced


def test_in_a_training_session_built_with_custom_op() -> None:
    builder = popart_jax.Builder()
    x = builder.addInputTensor(popart_jax.TensorInfo("FLOAT", [3]))
    w = builder.addInitializedInputTensor(np.array([1.0, 2.0, 3.0], np.float32))
    scaled = builder.aiOnnx.mul([x, w])
    (y,) = builder.customOp("Polynomial", 1, DOMAIN, [scaled], {"alpha": 0.5}, 1)
    loss = builder.aiGraphcore.l1loss([y], 1.0, popart_jax.ReductionType.Sum)
    gradient = popart_jax.reservedGradientPrefix() + w
    session = popart_jax.TrainingSession(
        builder.getModelProto(),
        dataFlow=popart_jax.DataFlow(1, {n: popart_jax.AnchorReturnType("All") for n in (y, gradient)}),
        loss=loss,
        optimizer=popart_jax.ConstSGD(0.1),
        deviceInfo=popart_jax.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    given = np.array([1.0, 2.0, 0.5], np.float32)
    session.run(popart_jax.PyStepIO({x: given}, anchors))
    weights = np.array([1.0, 2.0, 3.0], np.float32)
    np.testing.assert_allclose(anchors[y], 0.5 * (given * weights) ** 3, rtol=1e-6)
    np.testing.assert_allclose(anchors[gradient], 1.5 * (given * weights) ** 2 * given, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "version", "function", "text"),
    [
        ("", 1, lambda x, /: x, "domain and op are names"),
        ("Bad", 0, lambda x, /: x, "versions count from 1, not 0"),
        ("Bad", "1", lambda x, /: x, "interpreted as an integer"),
        ("Bad", 1, lambda x, /, **more: x, r"`\*\*` would get none"),
        ("Bad", 1, random_first, "'key' is no input of the node"),
    ],
)
def test_what_could_not_work_is_refused_when_it_is_registered(name, version, function, text) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        popart_jax.custom_op(DOMAIN, name, version)(function)


def test_a_function_that_returns_no_array_is_named() -> None:
    popart_jax.custom_op(DOMAIN, "Nothing")(lambda x, /: None)
    with pytest.raises(popart_jax.NodeError, match=r"Nothing failed .* result 0 is None, no array"):
        backend.run_model(model("Nothing"), [np.zeros(1, np.float32)])


def test_a_gradient_of_another_shape_is_named() -> None:
    popart_jax.custom_op(DOMAIN, "Short", gradient=lambda cotangents, *_: (cotangents[0][:1],))(lambda x, /: x)
    fn, _ = popart_jax.to_jax(model("Short"))
    with pytest.raises(ValueError, match=r"^Short: gradient 0 has the shape \(1,\), its input \(2,\)"):
        jax.grad(lambda v: fn({}, {"x0": v})["y"].sum())(np.ones(2, np.float32))


def test_sessions_warn_of_an_attribute_that_nothing_reads(caplog) -> None:
    """Elsewhere it is an error."""
    flow = popart_jax.DataFlow(1, {"y": popart_jax.AnchorReturnType("All")})
    proto = model("Polynomial", alhpa=0.5)
    proto.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 2
    popart_jax.InferenceSession(proto, flow, popart_jax.DeviceManager().createCpuDevice())
    expected = "node 'mine': test.custom.Polynomial has an unknown attribute 'alhpa'; it takes ['alpha']."
    assert expected in [record.getMessage() for record in caplog.records]
