"""Gradients where several elements are the largest: PyTorch's in functions of `to_jax`, PopART's in sessions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import pytest

import popart_jax as popart

from ..platforms import ON_CPUS

HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[1,2,6,6] x) => (float y) {'
TAIL = " s = Mul(m, m) y = ReduceSum<keepdims=0>(s) }"
BODIES = {
    "tiles": "m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)",
    "overlapping": "m = MaxPool<kernel_shape=[2,2]>(x)",
    "padded": "m = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(x)",
    "dilated": "m = MaxPool<kernel_shape=[2,2], dilations=[2,2]>(x)",
    "reduced": "m = ReduceMax<axes=[2,3]>(x)",
    "two": "r = Relu(x) m = Max(r, x)",
    "channels last": "w = Shape(x) c = Cast<to=1>(w) a = Add(x, x) m = MaxPool<kernel_shape=[3,3]>(a)",
}
X = np.random.default_rng(0).integers(-1, 2, (1, 2, 6, 6)).astype(np.float32)  # few values, so many are equal


def theirs(name: str) -> np.ndarray:
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    pool = torch.nn.functional.max_pool2d
    m = {
        "tiles": lambda: pool(x, 2),
        "overlapping": lambda: pool(x, 2, 1),
        "padded": lambda: pool(x, 3, 2, 1),
        "dilated": lambda: pool(x, 2, 1, 0, 2),
        "reduced": lambda: torch.amax(x, (2, 3)),
        "two": lambda: torch.maximum(torch.relu(x), x),
        "channels last": lambda: pool(x + x, 3, 1),
    }[name]()
    (m * m).sum().backward()
    return x.grad.numpy()


def slope(model: onnx.ModelProto, x: np.ndarray = X) -> Any:
    with pytest.warns(UserWarning, match="no trainable"):
        fn, params = popart.to_jax(model)

    def value(x: Any) -> Any:
        return fn(params, x)["y"]

    return fn.exactly(jax.jit(jax.grad(value)))(x)


@pytest.mark.parametrize("name", BODIES)
def test_a_function_has_pytorchs_gradient(name: str) -> None:
    model = onnx.parser.parse_model(HEAD + BODIES[name] + TAIL)
    np.testing.assert_allclose(slope(model), theirs(name), rtol=1e-6)


def test_windows_of_many_elements_have_it_too() -> None:
    torch = pytest.importorskip("torch")
    model = onnx.parser.parse_model(HEAD.replace("6,6", "14,14") + "m = MaxPool<kernel_shape=[9,9]>(x)" + TAIL)
    data = np.random.default_rng(1).integers(-1, 2, (1, 2, 14, 14)).astype(np.float32)
    x = torch.tensor(data, requires_grad=True)
    (torch.nn.functional.max_pool2d(x, 9, 1) ** 2).sum().backward()
    np.testing.assert_allclose(slope(model, data), x.grad.numpy(), rtol=1e-6)


def test_a_shift_of_equal_maxima_moves_the_result_once() -> None:
    """Relu leaves equal zeros, a bias moves them all: the derivative exists, and counts no element twice."""
    text = HEAD + "r = Relu(x) b = Add(r, shift) m = MaxPool<kernel_shape=[2,2]>(b) y = ReduceSum<keepdims=0>(m) }"
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(1, 0.5, np.float32), "shift"))
    fn, params = popart.to_jax(model, trainable="shift")

    def value(params: Any) -> Any:
        return fn(params, X)["y"]

    slope: Any = jax.grad(value)(params)
    np.testing.assert_allclose(slope["shift"], [2 * 5 * 5])


def test_a_session_keeps_popart_s() -> None:
    """Each of the largest has the whole gradient: shared/spec/popart/semantics.md."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1, 1, 2, 2]))
    w = builder.addInitializedInputTensor(np.zeros((1, 1, 2, 2), np.float32))
    pooled = builder.aiOnnx.maxpool([builder.aiOnnx.add([x, w])], 1, [2, 2])[0]
    loss = builder.aiGraphcore.identityloss([pooled])
    gradient = f"{popart.reservedGradientPrefix()}{w}"
    flow = popart.DataFlow(1, {gradient: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), deviceInfo=device)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.ones((1, 1, 2, 2), np.float32)}, anchors))
    np.testing.assert_array_equal(anchors[gradient], np.ones((1, 1, 2, 2), np.float32))


@pytest.mark.parametrize("pads", [0, pytest.param(1, marks=ON_CPUS)])
@pytest.mark.filterwarnings("ignore:.*no trainable")
def test_the_first_element_of_a_window_of_infinities_has_the_gradient(pads: int) -> None:
    torch = pytest.importorskip("torch")
    x = torch.full((1, 2, 6, 6), -np.inf).requires_grad_()
    torch.nn.functional.max_pool2d(x, 3, 2, pads).backward(torch.ones(1, 2, 2 + pads, 2 + pads))
    text = f"m = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[{pads},{pads},{pads},{pads}]>(x)"
    fn, _ = popart.to_jax(onnx.parser.parse_model(HEAD + text + "y = ReduceSum<keepdims=0>(m) }"))
    found = jax.grad(lambda x: fn({}, x)["y"])(x.detach().numpy())
    np.testing.assert_array_equal(found, x.grad.numpy())
