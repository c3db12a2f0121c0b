"""PyTorch on the same ONNX graphs: a walk over the few operators that the benchmark networks use.

It runs on the kind of device that JAX runs on. On a GPU the walk can also be compiled (`torch.compile`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import jax
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


def device() -> str:
    """Where PyTorch computes: on a GPU if JAX does."""
    return "cuda" if jax.default_backend() == "gpu" else "cpu"


def multiply_in(precision: str) -> None:
    """Compute float32 products on a GPU in float32 (`highest`) or in `tensorfloat32`."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tensorfloat32"


def _constant(value: np.ndarray) -> Any:
    """Whole numbers and single floats as Python numbers: shapes and limits must not be read back from a device."""
    if value.dtype.kind == "i" or not value.ndim:
        return value.tolist()
    return torch.from_numpy(value.copy()).to(device())


def _conv(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None = None,
    *,
    pads: Sequence[int] = (0, 0),
    strides: Sequence[int] = (1, 1),
    group: int = 1,
    **_: Any,
):
    return F.conv2d(x, w, b, tuple(strides), tuple(pads[:2]), groups=group)


def _batch_norm(
    x: torch.Tensor,
    g: torch.Tensor,
    b: torch.Tensor,
    mean: torch.Tensor,
    var: torch.Tensor,
    *,
    outputs: int,
    epsilon: float = 1e-5,
    **_: Any,
):
    return F.batch_norm(x, mean, var, g, b, outputs > 1, 0.1, epsilon)


def _recurrent(module: torch.nn.LSTM) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, (h, c) = module(x)
        return y, h, c

    return run


def _max_pool(
    x: torch.Tensor, *, kernel_shape: Sequence[int], strides: Sequence[int], pads: Sequence[int] = (0, 0), **_: Any
) -> torch.Tensor:
    return F.max_pool2d(x, tuple(kernel_shape), tuple(strides), tuple(pads[:2]))


def _flatten(x: torch.Tensor, **_: Any) -> torch.Tensor:
    return x.flatten(1)


def _gemm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, *, transB: int = 0, **_: Any) -> torch.Tensor:
    return F.linear(x, w if transB else w.T, b)


def _softmax(x: torch.Tensor, *, axis: int, **_: Any) -> torch.Tensor:
    return torch.softmax(x, axis)


def _transpose(x: torch.Tensor, *, perm: Sequence[int]) -> torch.Tensor:
    return x.permute(tuple(perm))


def _squeeze(x: torch.Tensor, *, axes: Sequence[int]) -> torch.Tensor:
    return x.squeeze(axes[0])


def _mean(x: torch.Tensor, *, axes: Sequence[int] = (2, 3), **_: Any) -> torch.Tensor:
    return x.mean(list(axes), keepdim=True)


def _narrow(x: torch.Tensor, lo: Sequence[int], hi: Sequence[int], axis: Sequence[int]) -> torch.Tensor:
    return x.narrow(axis[0], lo[0], hi[0] - lo[0])


_OPS: dict[str, Callable[..., Any]] = {
    "Conv": _conv,
    "Relu": torch.relu,
    "Clip": torch.clamp,
    "MaxPool": _max_pool,
    "GlobalAveragePool": _mean,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "MatMul": torch.matmul,
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": operator.truediv,
    "Erf": torch.erf,
    "Sqrt": torch.sqrt,
    "Softmax": _softmax,
    "Transpose": _transpose,
    "Reshape": torch.reshape,
    "Squeeze": _squeeze,
    "ReduceMean": _mean,
    "Slice": _narrow,
}


class Walk:
    """The network as a PyTorch function of its input; `weights` are leaf tensors by ONNX name."""

    def __init__(self, network: Network, training: bool) -> None:
        self.graph = onnx.load_model_from_string(network.model).graph
        self.output = network.logits
        self.constants = {
            n.output[0]: _constant(numpy_helper.to_array(n.attribute[0].t))
            for n in self.graph.node
            if n.op_type == "Constant"
        }
        self.weights = {k: torch.from_numpy(v.copy()).to(device()) for k, v in network.params.items()}
        for name, w in self.weights.items():
            w.requires_grad_(training and not name.endswith((".m", ".v")))
        self.lstms = {n.output[0]: self._lstm(n) for n in self.graph.node if n.op_type == "LSTM"}
        self.steps = list(self._steps())
        self.trained = [w for w in self.weights.values() if w.requires_grad]

    def _lstm(self, node: onnx.NodeProto) -> torch.nn.LSTM:
        """The module with the weights of an LSTM node, which it takes over: gates i, o, f, c become i, f, c, o."""
        w, r, b = (self.weights.pop(n).detach() for n in node.input[1:4])
        order = [t.chunk(4) for t in (w[0], r[0], *b[0].chunk(2))]
        module = torch.nn.LSTM(w.shape[2], r.shape[2], device=w.device)
        with torch.no_grad():
            for parameter, (i, o, f, c) in zip(module.parameters(), order, strict=True):
                parameter.copy_(torch.cat([i, f, c, o]))
        return module

    def _steps(self) -> Iterator[tuple[Callable[..., Any], list[str], dict[str, Any], list[str]]]:
        """Function, operands, attributes and results of each node; `torch.compile` reads no protobuf."""
        for node in self.graph.node:
            results = list(node.output)
            if node.op_type == "LSTM":
                yield _recurrent(self.lstms[results[0]]), list(node.input[:1]), {}, results
            elif node.op_type == "BatchNormalization":
                yield _batch_norm, list(node.input), {**_attributes(node), "outputs": len(results)}, results
            elif node.op_type != "Constant":
                yield _OPS[node.op_type], list(node.input), _attributes(node), results

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of one batch."""
        env = {**self.constants, **self.weights, "x": x}
        for fn, operands, attributes, names in self.steps:
            result = fn(*(env[n] for n in operands), **attributes)
            several = cast("tuple[Any, ...]", result) if isinstance(result, tuple) else (result,)
            env.update(zip(names, several, strict=False))
        return env[self.output]


def torch_inference(network: Network, compiled: bool = False) -> Callable[[], np.ndarray]:
    """Inference, eager or compiled, NumPy in and out."""
    walk = Walk(network, training=False)
    function = torch.compile(walk) if compiled else walk

    def call() -> np.ndarray:
        with torch.inference_mode():
            return function(torch.from_numpy(network.feed["x"]).to(device())).cpu().numpy()

    return call


def torch_training(
    network: Network, xs: np.ndarray, ys: np.ndarray, rule: str, compiled: bool = False
) -> Callable[[], np.ndarray]:
    """Training steps, eager or compiled (but for the update); returns the losses."""
    walk = Walk(network, training=True)
    trained = walk.trained + [p for module in walk.lstms.values() for p in module.parameters()]
    if rule == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(trained, lr=ADAM_RATE, betas=(BETA1, BETA2), eps=EPSILON)
    else:
        optimizer = torch.optim.SGD(trained, lr=RATE, momentum=MOMENTUM)
    function = torch.compile(walk) if compiled else walk

    def call() -> np.ndarray:
        x, y = torch.from_numpy(xs).to(device()), torch.from_numpy(ys).to(device()).long()
        losses: list[torch.Tensor] = []
        for i in range(len(x)):
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(function(x[i]), y[i])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).cpu().numpy()

    return call
