"""PyTorch eager on the same ONNX graphs: a walk over the few operators that the benchmark networks use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper

from .networks import Network


def _attributes(node: onnx.NodeProto) -> dict:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _ints(x: torch.Tensor) -> list[int]:
    return [int(v) for v in x]


def _conv(x, w, b=None, *, pads=(0, 0), strides=(1, 1), group=1, **_):
    return F.conv2d(x, w, b, tuple(strides), tuple(pads[:2]), groups=group)


def _batch_norm(x, g, b, mean, var, *, outputs, epsilon=1e-5, **_):
    return F.batch_norm(x, mean, var, g, b, outputs > 1, 0.1, epsilon)


def _lstm(x, w, r, b, *, hidden_size, **_):
    """ONNX gates i, o, f, c to PyTorch's i, f, c, o."""

    def turn(t):
        i, o, f, c = t.chunk(4)
        return torch.cat([i, f, c, o])

    zero = x.new_zeros(1, x.shape[1], hidden_size)
    wb, rb = b[0].chunk(2)
    flat = [turn(w[0]), turn(r[0]), turn(wb), turn(rb)]
    y, h, c = torch.lstm(x, (zero, zero), flat, True, 1, 0.0, False, False, False)
    return y, h, c


_OPS: dict[str, Callable] = {
    "Conv": _conv,
    "LSTM": _lstm,
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

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of one batch."""
        env = {**self.constants, **self.weights, "x": x}
        for node in self.graph.node:
            if node.op_type == "Constant":
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


def torch_training(network: Network, xs: np.ndarray, ys: np.ndarray, rate: float, momentum: float):
    """Eager training steps with momentum SGD; returns the losses."""
    walk = Walk(network, training=True)
    trained = [w for w in walk.weights.values() if w.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=rate, momentum=momentum)
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
