"""One layer alone in training, ours beside PyTorch: where a model's time goes, and which layer limits it.

Each row trains ``layer(x * scale)`` on the sum of absolute values: gradients of data and weights are both needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import popart_jax as popart

from .board import Calls, Row
from .engines import prepared_call

RATE, FACTOR = 1e-6, 0.1
Built = Callable[[popart.Builder, str, list[str]], str]


@dataclass(frozen=True)
class Layer:
    """A layer by shapes and by name.

    Attributes
    ----------
    data, weights : tuples of int
        Shapes of the data and of each weight.
    build : callable
        The layer by the Builder: builder, data and weights to the result.
    torch : str
        The function of `torch.nn.functional`, or of `torch`.
    options : dict
        Its keywords; arrays among them become tensors.
    """

    data: tuple[int, ...]
    weights: tuple[tuple[int, ...], ...]
    build: Built
    torch: str
    options: dict[str, Any]


def convolution(
    data: tuple[int, ...],
    weights: tuple[int, ...],
    stride: int = 1,
    padding: int = 1,
    dilation: int = 1,
    groups: int = 1,
) -> Layer:
    """A convolution of one to three dimensions, alike along all of them."""
    rank = len(data) - 2

    def build(builder: popart.Builder, x: str, w: list[str]) -> str:
        pads, steps, apart = [padding] * 2 * rank, [stride] * rank, [dilation] * rank
        return builder.aiOnnx.conv([x, *w], strides=steps, pads=pads, dilations=apart, group=groups)

    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return Layer(data, (weights,), build, f"conv{rank}d", options)


def _transposed(data: tuple[int, ...], weights: tuple[int, ...], stride: int, padding: int) -> Layer:
    def build(builder: popart.Builder, x: str, w: list[str]) -> str:
        return builder.aiOnnx.convtranspose([x, *w], strides=[stride] * 2, pads=[padding] * 4)

    return Layer(data, (weights,), build, "conv_transpose2d", {"stride": stride, "padding": padding})


def _normalised(data: tuple[int, ...], groups: int) -> Layer:
    def build(builder: popart.Builder, x: str, w: list[str]) -> str:
        return builder.aiGraphcore.groupnormalization([x, *w], groups)[0]

    return Layer(data, ((data[1],),) * 2, build, "group_norm", {"num_groups": groups})


LAYERS = {
    "conv 3x3": convolution((8, 64, 56, 56), (64, 64, 3, 3)),
    "conv 1x1 stride 2": convolution((8, 128, 28, 28), (256, 128, 1, 1), stride=2, padding=0),
    "conv 7x7 stride 2": convolution((8, 3, 112, 112), (64, 3, 7, 7), stride=2, padding=3),
    "conv dilated": convolution((8, 64, 28, 28), (64, 64, 3, 3), padding=2, dilation=2),
    "conv 32 groups": convolution((8, 128, 28, 28), (128, 4, 3, 3), groups=32),
    "conv 4 groups": convolution((8, 128, 28, 28), (128, 32, 3, 3), groups=4),
    "conv depthwise": convolution((8, 96, 56, 56), (96, 1, 3, 3), groups=96),
    "conv depthwise stride 2": convolution((8, 96, 56, 56), (96, 1, 3, 3), stride=2, groups=96),
    "conv one dimension": convolution((8, 64, 512), (64, 64, 9), padding=4),
    "conv three dimensions": convolution((2, 16, 16, 16, 16), (16, 16, 3, 3, 3)),
    "conv transposed 2x2": _transposed((4, 64, 28, 28), (64, 32, 2, 2), 2, 0),
    "conv transposed 4x4": _transposed((4, 64, 28, 28), (64, 32, 4, 4), 2, 1),
    "group norm": _normalised((8, 64, 56, 56), 8),
    "layer norm": _normalised((1024, 768), 1),
}


def rows() -> Iterator[Row]:
    """One row a layer."""
    for name, layer in LAYERS.items():
        yield f"train layer {name}", partial(engines, layer)


def engines(layer: Layer) -> Calls:
    """Training of one layer, ours and PyTorch's."""
    rng = np.random.default_rng(0)
    x, *weights = (rng.normal(size=s, scale=0.1).astype(np.float32) for s in (layer.data, *layer.weights))
    return {"ours": _ours(layer, x, weights), "torch": _theirs(layer, x, weights)}


def _ours(layer: Layer, x: np.ndarray, weights: list[np.ndarray]) -> Callable[[], np.ndarray]:
    builder = popart.Builder()
    data = builder.addInputTensor(popart.TensorInfo("FLOAT", list(x.shape)), "x")
    scale = builder.addInitializedInputTensor(np.ones(1, np.float32))
    held = [builder.addInitializedInputTensor(w) for w in weights]
    y = layer.build(builder, builder.aiOnnx.mul([data, scale]), held)
    loss = builder.aiGraphcore.l1loss([y], FACTOR, reduction=popart.ReductionType.Sum)
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(RATE), device)
    return prepared_call(session, {data: x}, loss)


def _theirs(layer: Layer, x: np.ndarray, weights: list[np.ndarray]) -> Callable[[], np.ndarray]:
    import torch  # pyright: ignore[reportMissingImports]

    data, scale = torch.tensor(x), torch.ones(1, requires_grad=True)
    held = [torch.tensor(w, requires_grad=True) for w in weights]
    function = getattr(torch.nn.functional, layer.torch, None) or getattr(torch, layer.torch)
    options = {n: torch.tensor(v) if isinstance(v, np.ndarray) else v for n, v in layer.options.items()}
    groups = (options.pop("num_groups"),) if "num_groups" in options else ()
    optimizer = torch.optim.SGD([scale, *held], RATE)

    def call() -> np.ndarray:
        optimizer.zero_grad()
        loss = FACTOR * function(data * scale, *groups, *held, **options).abs().sum()
        loss.backward()
        optimizer.step()
        return loss.detach().numpy()

    return call
