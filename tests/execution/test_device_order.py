"""Trained weights are kept on the device in the order their reader wants; nobody outside can tell."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax as popart

torch = pytest.importorskip("torch")

STEPS, RATE, MOMENTUM = 3, 0.1, 0.9
RNG = np.random.default_rng(0)
KERNEL, DENSE, BIAS = (RNG.normal(size=s).astype(np.float32) / 4 for s in ((4, 3, 3, 2), (5, 4 * 6 * 7), (5,)))
X = RNG.normal(size=(STEPS, 2, 3, 8, 8)).astype(np.float32)
Y = RNG.integers(0, 5, size=(STEPS, 2)).astype(np.int32)


def ours(adam: bool, shown: tuple[str, ...]):
    builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3, 8, 8]), "x")
    y = builder.addInputTensor(popart.TensorInfo("INT32", [2]), "y")
    k, d, b = (builder.addInitializedInputTensor(v, n) for v, n in ((KERNEL, "k"), (DENSE, "d"), (BIAS, "b")))
    flat = builder.aiOnnx.flatten([builder.aiOnnx.relu([builder.aiOnnx.conv([x, k])])])
    logits = builder.aiOnnx.gemm([flat, d, b], transB=1)
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([logits]), y])
    values = {"defaultLearningRate": (RATE, False)}
    optimizer = popart.Adam(values) if adam else popart.SGD(values | {"defaultMomentum": (MOMENTUM, True)})
    flow = popart.DataFlow(STEPS, {n: popart.AnchorReturnType("All") for n in (loss, *shown)})
    device = popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, optimizer, device)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: X, y: Y}, anchors))
    session.weightsToHost()
    read = {n: np.empty_like(v) for n, v in (("k", KERNEL), ("d", DENSE), ("b", BIAS))}
    session.readWeights(popart.PyWeightsIO(read))
    orders = {n: v.order for n, v in session._engine.programs[""].laid_out.program.variables.items()}
    return anchors, read, orders


def theirs():
    weights = [torch.tensor(v, requires_grad=True) for v in (KERNEL, DENSE, BIAS)]
    optimizer = torch.optim.SGD(weights, lr=RATE, momentum=MOMENTUM)
    gradients, after = [], []
    for x, y in zip(torch.tensor(X), torch.tensor(Y).long(), strict=True):
        optimizer.zero_grad()
        hidden = torch.relu(torch.conv2d(x, weights[0])).flatten(1)
        torch.nn.functional.cross_entropy(hidden @ weights[1].T + weights[2], y).backward()
        gradients.append([w.grad.numpy().copy() for w in weights])
        optimizer.step()
        after.append([w.detach().numpy().copy() for w in weights])
    return gradients, after


def test_weights_gradients_and_updates_are_seen_in_their_own_order():
    shown = ("Gradient___k", "UpdatedVar___d", "k", "Gradient___d", "Accl___k")
    anchors, read, orders = ours(False, shown)
    assert orders["k"] == orders["Accl___k"] == (2, 3, 1, 0)
    assert orders["d"] == (1, 0)
    assert orders["b"] is None
    gradients, after = theirs()
    for step in range(STEPS):
        np.testing.assert_allclose(anchors["Gradient___k"][step], gradients[step][0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(anchors["Gradient___d"][step], gradients[step][1], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(anchors["UpdatedVar___d"][step], after[step][1], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(anchors["k"][step], after[step][0], rtol=1e-4, atol=1e-6)
    velocity = sum(MOMENTUM ** (STEPS - i) * g[0] for i, g in enumerate(gradients))
    np.testing.assert_allclose(anchors["Accl___k"][-1], velocity, rtol=1e-4, atol=1e-6)
    for name, expected in zip("kdb", after[-1], strict=True):
        np.testing.assert_allclose(read[name], expected, rtol=1e-4, atol=1e-6)


def test_a_weight_with_two_readers_stays_as_it_is():
    builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 4]), "x")
    w = builder.addInitializedInputTensor(RNG.normal(size=(4, 4)).astype(np.float32), "w")
    h = builder.aiOnnx.matmul([builder.aiOnnx.gemm([x, w], transB=1), w])
    loss = builder.aiGraphcore.l1loss([h], 0.1)
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    optimizer = popart.SGD({"defaultLearningRate": (RATE, False)})
    device = popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, optimizer, device)
    session.prepareDevice()
    assert session._engine.programs[""].laid_out.program.variables["w"].order is None


def test_adams_moments_follow_their_weight():
    _, _, orders = ours(True, ())
    assert {orders[f"{p}k"] for p in ("", "Accl1___", "Accl2___")} == {(2, 3, 1, 0)}
