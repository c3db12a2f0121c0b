"""PyTorch eager on the same ONNX graphs: a walk over the few operators that the benchmark networks use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch  # pyright: ignore[reportMissingImports]
import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
from onnx import helper, numpy_helper

from .networks import Network
from .training import ADAM_RATE, BETA1, BETA2, EPSILON, MOMENTUM, RATE


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes of ONNX; those of PopART's Builder begin with two underscores."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.name.startswith("__")}


def _ints(x: torch.Tensor) -> list[int]:
    return [int(v) for v in x]


def _conv(x, w, b=None, *, pads=(0, 0), strides=(1, 1), group=1, **_):
    return F.conv2d(x, w, b, tuple(strides), tuple(pads[:2]), groups=group)


def _batch_norm(x, g, b, mean, var, *, outputs, epsilon=1e-5, **_):
    return F.batch_norm(x, mean, var, g, b, outputs > 1, 0.1, epsilon)


_OPS: dict[str, Callable[..., Any]] = {
    "Conv": _conv,
    "Relu": lambda x: F.relu(x),
    "Clip": lambda x, low, high: torch.clamp(x, float(low), float(high)),
    "MaxPool": lambda x, *, kernel_shape, strides, pads=(0, 0), **_: F.max_pool2d(
        x, tuple(kernel_shape), tuple(strides), tuple(pads[:2])
    ),
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
    "Flatten": lambda x, **_: x.flatten(1),
    "Gemm": lambda x, w, b, *, transB=0, **_: F.linear(x, w if transB else w.T, b),
    "MatMul": torch.matmul,
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Div": torch.div,
    "Erf": torch.erf,
    "Sqrt": torch.sqrt,
    "Softmax": lambda x, *, axis, **_: torch.softmax(x, axis),
    "Transpose": lambda x, *, perm: x.permute(perm),
    "Reshape": lambda x, shape: x.reshape(_ints(shape)),
    "Squeeze": lambda x, *, axes: x.squeeze(axes[0]),
    "ReduceMean": lambda x, *, axes, **_: x.mean(list(axes), keepdim=True),
    "Slice": lambda x, lo, hi, axis: x.narrow(int(axis[0]), int(lo[0]), int(hi[0]) - int(lo[0])),
}


class Walk:
    """The network as a PyTorch function of its input; `weights` are leaf tensors by ONNX name."""

    def __init__(self, network: Network, training: bool) -> None:
        self.graph = onnx.load_model_from_string(network.model).graph
        self.output = network.logits
        self.constants = {
            n.output[0]: torch.from_numpy(numpy_helper.to_array(n.attribute[0].t).copy())
            for n in self.graph.node
            if n.op_type == "Constant"
        }
        self.weights = {k: torch.from_numpy(v.copy()) for k, v in network.params.items()}
        for name, w in self.weights.items():
            w.requires_grad_(training and not name.endswith((".m", ".v")))
        self.lstms = {n.output[0]: self._lstm(n) for n in self.graph.node if n.op_type == "LSTM"}
        self.trained = [w for w in self.weights.values() if w.requires_grad]

    def _lstm(self, node: onnx.NodeProto) -> torch.nn.LSTM:
        """The module with the weights of an LSTM node, which it takes over: gates i, o, f, c become i, f, c, o."""
        w, r, b = (self.weights.pop(n).detach() for n in node.input[1:4])
        order = [t.chunk(4) for t in (w[0], r[0], *b[0].chunk(2))]
        module = torch.nn.LSTM(w.shape[2], r.shape[2])
        with torch.no_grad():
            for parameter, (i, o, f, c) in zip(module.parameters(), order, strict=True):
                parameter.copy_(torch.cat([i, f, c, o]))
        return module

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of one batch."""
        env = {**self.constants, **self.weights, "x": x}
        for node in self.graph.node:
            if node.op_type == "Constant":
                continue
            if node.op_type == "LSTM":
                y, (h, c) = self.lstms[node.output[0]](env[node.input[0]])
                env.update(zip(node.output, (y, h, c), strict=False))
                continue
            extra = {"outputs": len(node.output)} if node.op_type == "BatchNormalization" else {}
            fn = _batch_norm if node.op_type == "BatchNormalization" else _OPS[node.op_type]
            result = fn(*(env[n] for n in node.input), **_attributes(node), **extra)
            results = result if isinstance(result, tuple) else (result,)
            env.update(zip(node.output, results, strict=False))
        return env[self.output]


def torch_inference(network: Network) -> Callable[[], np.ndarray]:
    """Eager inference, NumPy in and out."""
    walk, x = Walk(network, training=False), torch.from_numpy(network.feed["x"])

    def call() -> np.ndarray:
        with torch.inference_mode():
            return walk(x).numpy()

    return call


def torch_training(network: Network, xs: np.ndarray, ys: np.ndarray, rule: str) -> Callable[[], np.ndarray]:
    """Eager training steps; returns the losses."""
    walk = Walk(network, training=True)
    trained = walk.trained + [p for module in walk.lstms.values() for p in module.parameters()]
    if rule == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(trained, lr=ADAM_RATE, betas=(BETA1, BETA2), eps=EPSILON)
    else:
        optimizer = torch.optim.SGD(trained, lr=RATE, momentum=MOMENTUM)
    x, y = torch.from_numpy(xs), torch.from_numpy(ys).long()

    def call() -> np.ndarray:
        losses = []
        for i in range(len(x)):
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(walk(x[i]), y[i])
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return np.asarray(losses, np.float32)

    return call
