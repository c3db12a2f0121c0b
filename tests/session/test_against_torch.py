"""A residual convolutional network trained here and in torch: losses, weights and running statistics agree."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax as popart

from . import nets

torch = pytest.importorskip("torch")
STEPS, BATCH, SIDE, CLASSES = 3, 8, 8, 5
MOMENTUM, RATE, DECAY = 0.9, 0.05, 1e-3


class Net(torch.nn.Module):
    """Stem, one residual block with a strided shortcut, pooling, classifier."""

    def __init__(self) -> None:
        super().__init__()
        conv, norm = torch.nn.Conv2d, torch.nn.BatchNorm2d
        self.stem, self.n0 = conv(3, 6, 3, padding=1, bias=False), norm(6)
        self.a, self.n1 = conv(6, 8, 3, stride=2, padding=1, bias=False), norm(8)
        self.b, self.n2 = conv(8, 8, 3, padding=1, bias=False), norm(8)
        self.short, self.n3 = conv(6, 8, 1, stride=2, bias=False), norm(8)
        self.fc = torch.nn.Linear(8, CLASSES)

    def forward(self, x):
        x = torch.relu(self.n0(self.stem(x)))
        y = self.n2(self.b(torch.relu(self.n1(self.a(x)))))
        x = torch.relu(y + self.n3(self.short(x)))
        return self.fc(x.mean((2, 3)))


def _build(net: Net) -> tuple[bytes, str, str, str]:
    builder = popart.Builder()
    onnx = builder.aiOnnx
    state = {n: t.detach().numpy() for n, t in net.state_dict().items() if t.dtype == torch.float32}
    ids = {n: builder.addInitializedInputTensor(np.ascontiguousarray(v), n) for n, v in state.items()}
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [BATCH, 3, SIDE, SIDE]), "x")
    label = builder.addInputTensor(popart.TensorInfo("INT32", [BATCH]), "label")

    def conv(x, name, **more):
        return onnx.conv([x, ids[f"{name}.weight"]], **more)

    def norm(x, name):
        args = [x, *(ids[f"{name}.{p}"] for p in ("weight", "bias", "running_mean", "running_var"))]
        return onnx.batchnormalization(args, 5, 1e-5, 1 - 0.1)[0]

    h = onnx.relu([norm(conv(x, "stem", pads=[1] * 4), "n0")])
    y = onnx.relu([norm(conv(h, "a", pads=[1] * 4, strides=[2, 2]), "n1")])
    y = norm(conv(y, "b", pads=[1] * 4), "n2")
    h = onnx.relu([onnx.add([y, norm(conv(h, "short", strides=[2, 2]), "n3")])])
    flat = onnx.flatten([onnx.globalaveragepool([h])])
    logits = onnx.gemm([flat, ids["fc.weight"], ids["fc.bias"]], transB=1)
    loss = builder.aiGraphcore.nllloss([onnx.softmax([logits]), label], reduction=popart.ReductionType.Mean)
    return builder.getModelProto(), x, label, loss


def test_residual_network():
    torch.manual_seed(0)
    net = Net()
    proto, x_id, label_id, loss_id = _build(net)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS, BATCH, 3, SIDE, SIDE)).astype(np.float32)
    label = rng.integers(0, CLASSES, (STEPS, BATCH)).astype(np.int32)
    optimizer = popart.SGD(
        {
            "defaultLearningRate": (RATE, False),
            "defaultMomentum": (MOMENTUM, True),
            "defaultWeightDecay": (DECAY, True),
        }
    )
    session = nets.train(proto, {loss_id: "All"}, optimizer, STEPS, loss=loss_id)
    losses = nets.run(session, **{x_id: x, label_id: label})[loss_id]
    theirs, expected = torch.optim.SGD(net.parameters(), RATE, MOMENTUM, weight_decay=DECAY), []
    for images, classes in zip(x, label, strict=True):
        theirs.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(torch.tensor(images)), torch.tensor(classes, dtype=torch.int64))
        loss.backward()
        theirs.step()
        expected.append(loss.item())
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    state = {n: t.detach().numpy() for n, t in net.state_dict().items() if t.dtype == torch.float32}
    biased = (BATCH * SIDE * SIDE, *(BATCH * SIDE * SIDE // 4,) * 3)
    got = nets.weights_of(session, **state)
    for name, value in state.items():
        if name.endswith("running_var"):  # torch averages the unbiased variance, ONNX the biased one
            count = biased[int(name[1])]
            start = 0.9**STEPS
            value = start + (value - start) * (count - 1) / count
        np.testing.assert_allclose(got[name], value, rtol=2e-3, atol=2e-5, err_msg=name)
