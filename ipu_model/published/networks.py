"""Published networks as lists of operations with shapes, priced by the planners."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ipu_model.planner.conv_grid import Options
from ipu_model.planner.conv_params import ConvParams
from ipu_model.planner.convolution import plan_convolution, plan_matmul
from ipu_model.planner.plan import Plan
from ipu_model.target import Target


@dataclass(frozen=True)
class Product:
    """`count` products ``[rows, k] x [k, n]`` per batch; `groups` of them run side by side."""

    count: float
    rows: int
    k: int
    n: int
    groups: int = 1


@dataclass(frozen=True)
class Conv:
    """`count` square convolutions of one shape; padding keeps the field."""

    count: float
    batch: int
    field: int
    kernel: int
    ins: int
    outs: int
    stride: int = 1
    groups: int = 1


@dataclass(frozen=True)
class Network:
    """One batch of a network.

    Attributes
    ----------
    kind : str
        Which fitted stretch applies (``"transformer"``, ``"cnn"``, ``"window"``, ``"table"``, ...).
    ops : tuple
        Products and convolutions of the forward pass.
    elements : float
        Elements that pass through elementwise, softmax and normalisation steps.
    items : float
        Items in the batch.
    served : str
        What a request holds (``"text"``, ``"image"``, ``"speech"``, ``"table"``, ...): how services queue requests
        differs by that, not by arithmetic.
    """

    kind: str
    ops: tuple[Product | Conv, ...]
    elements: float
    items: float
    served: str = "text"


def encoder(
    layers: int, width: int, hidden: int, tokens: int, batch: int, heads: int = 0, kind: str = "transformer"
) -> Network:
    """A stack of transformer layers over ``batch x tokens`` tokens."""
    heads = heads or max(1, width // 64)
    tokens = max(1, tokens)
    rows, size = batch * tokens, width // heads
    ops = (
        Product(layers, rows, width, 3 * width),
        Product(layers, tokens, size, tokens, batch * heads),
        Product(layers, tokens, tokens, size, batch * heads),
        Product(layers, rows, width, width),
        Product(layers, rows, width, hidden),
        Product(layers, rows, hidden, width),
    )
    elements = layers * (3.0 * batch * heads * tokens * tokens + rows * (4 * hidden + 10 * width))
    return Network(kind, ops, elements, batch)


def resnet(
    batch: int, image: int = 224, depths: tuple[int, ...] = (3, 4, 6, 3), groups: int = 1, inner: int = 1
) -> Network:
    """ResNet v1.5 with bottleneck blocks; `inner` widens their middle, `groups` splits it (ResNeXt)."""
    ops: list[Product | Conv] = [Conv(1, batch, image, 7, 4, 64, 2)]
    field, ins, elements = max(4, image // 4), 64, 3.0 * batch * 64 * (image // 2) ** 2
    for stage, (width, blocks) in enumerate(zip((64, 128, 256, 512), depths, strict=True)):
        stride = 1 if stage == 0 else 2
        small, middle = max(1, field // stride), width * inner
        ops += [
            Conv(1, batch, field, 1, ins, middle),
            Conv(1, batch, field, 3, middle, middle, stride, groups),
            Conv(1, batch, field, 1, ins, 4 * width, stride),
            Conv(blocks, batch, small, 1, middle, 4 * width),
            Conv(blocks - 1, batch, small, 1, 4 * width, middle),
            Conv(blocks - 1, batch, small, 3, middle, middle, 1, groups),
        ]
        elements += batch * blocks * small**2 * width * (2 * 2 + 4 * 3)
        field, ins = small, 4 * width
    return Network("cnn", (*ops, Product(1, batch, 2048, 1000)), elements, batch, "image")


def stages(
    batch: int, image: int, layers: Sequence[tuple[int, int, int, int]], kind: str = "cnn", classes: int = 1000
) -> Network:
    """A plain stack of square convolutions: rows ``(times, kernel, channels, stride)``, the stride on the first."""
    ops: list[Product | Conv] = []
    field, ins, elements = image, 4, 0.0
    for times, kernel, outs, stride in layers:
        kernel = min(kernel, field)
        ops.append(Conv(1, batch, field, kernel, ins, outs, stride))
        field = max(1, field // stride)
        if times > 1:
            ops.append(Conv(times - 1, batch, field, min(kernel, field), outs, outs))
        elements += batch * times * field**2 * outs * 3.0
        ins = outs
    return Network(kind, (*ops, Product(1, batch, ins, classes)), elements, batch, "image")


# Kernel, expansion, channels, layers and stride of the stages of EfficientNet-B0.
MOBILE = ((3, 1, 16, 1, 1), (3, 6, 24, 2, 2), (5, 6, 40, 2, 2), (3, 6, 80, 3, 2), (5, 6, 112, 3, 1),
          (5, 6, 192, 4, 2), (3, 6, 320, 1, 1))  # fmt: skip


def efficientnet(batch: int, image: int, wide: float, deep: float, group: int = 1) -> Network:
    """Inverted bottlenecks whose middle convolution handles `group` channels together (1: depthwise)."""

    def channels(n: int) -> int:
        return max(8, int(n * wide + 4) // 8 * 8)

    ins, field = channels(32), image // 2
    ops: list[Product | Conv] = [Conv(1, batch, image, 3, 4, ins, 2)]
    elements = 3.0 * batch * field**2 * ins
    for kernel, expansion, outs, layers, stride in MOBILE:
        outs, times = channels(outs), math.ceil(layers * deep)
        for count, step, source in ((1, stride, ins), (times - 1, 1, outs)):
            if not count:
                continue
            middle = math.ceil(source * expansion / group) * group
            small = max(1, field // step)
            ops += [
                Conv(count, batch, field, 1, source, middle),
                Conv(count, batch, field, min(kernel, field), middle, middle, step, middle // group),
                Conv(count, batch, small, 1, middle, outs),
            ]
            elements += count * batch * (4.0 * field**2 * middle + 3.0 * small**2 * outs)
            field = small
        ins = outs
    ops += [Conv(1, batch, field, 1, ins, channels(1280)), Product(1, batch, channels(1280), 1000)]
    return Network("grouped_cnn", tuple(ops), elements, batch, "image")


def recurrent(
    batch: int, frames: int, layers: int, ins: int, width: int, gates: int = 4, extra: tuple[Product, ...] = ()
) -> Network:
    """Stacked recurrent layers: one product over all steps for the inputs, one per step for the state."""
    ops: list[Product | Conv] = list(extra)
    for layer in range(layers):
        ops += [Product(1, batch * frames, ins if layer == 0 else width, gates * width)]
        ops += [Product(frames, batch, width, gates * width)]
    return Network("recurrent", tuple(ops), layers * frames * batch * width * 12.0, batch, "speech")


def decoder(layers: int, width: int, tokens: int, batch: int, vocabulary: int = 50257) -> Network:
    """A language model: a causal stack and the product with its vocabulary."""
    body = encoder(layers, width, 4 * width, tokens, batch, max(1, width // 64))
    head = Product(1, batch * tokens, width, vocabulary)
    return dataclasses.replace(body, ops=(*body.ops, head), elements=body.elements + batch * tokens * vocabulary * 3.0)


def of_parameters(parameters: float, tokens: int, batch: int, kind: str = "transformer") -> Network:
    """A stack of transformer layers with so many parameters, for networks that only their size describes.

    Twelve times the squared width in each layer, and a layer for every 64 channels of width.
    """
    width = max(64, round((parameters * 64 / 12) ** (1 / 3) / 64) * 64)
    layers = max(1, round(parameters / (12 * width**2)))
    return encoder(layers, width, 4 * width, tokens, batch, kind=kind)


def unet(batch: int, image: int) -> Network:
    """U-Net: four levels down and up again, two 3x3 convolutions each."""
    ops: list[Product | Conv] = []
    elements, ins = 0.0, 4
    for level in range(5):
        field, outs = max(1, image // 2**level), 64 * 2**level
        times = 1 if level == 4 else 2
        ops += [
            Conv(1, batch, field, min(3, field), ins, outs),
            Conv(2 * times - 1, batch, field, 3, outs, outs),
            Conv(times - 1, batch, field, 3, 2 * outs, outs),
        ]
        elements += batch * field**2 * outs * 6 * times
        ins = outs
    return Network("cnn", tuple(op for op in ops if op.count), elements, batch, "image")


def swin(batch: int, width: int, depths: tuple[int, ...], image: int = 224, window: int = 7) -> Network:
    """Swin transformer: attention in windows, width doubled from stage to stage."""
    ops: list[Product | Conv] = []
    elements, side = 0.0, max(1, image // 4)
    for stage, layers in enumerate(depths):
        wide = width * 2**stage
        windows = math.ceil(side / window) ** 2
        part = encoder(layers, wide, 4 * wide, window**2, batch * windows, max(1, wide // 32))
        ops += part.ops
        elements += part.elements
        side = max(1, side // 2)
    return Network("window", tuple(ops), elements, batch, "image")


def conformer(batch: int, frames: int, layers: int, width: int, hidden: int) -> Network:
    """Conformer encoder: two half feed-forwards, attention and a depthwise convolution of 31 taps per layer."""
    tokens = max(1, frames // 4)
    base = encoder(layers, width, hidden, tokens, batch, max(1, width // 64), "conformer")
    rows = batch * tokens
    extra = (
        Product(layers, rows, width, hidden),
        Product(layers, rows, hidden, width),
        Product(layers, rows, width, 2 * width),
        Product(layers, rows, width, width),
    )
    return Network("conformer", base.ops + extra, base.elements * 2.2, batch, "speech")


def wide_and_deep(batch: int) -> Network:
    """Look-ups and a tower of three layers; the host feeds it."""
    ops = (Product(1, batch, 416, 1024), Product(1, batch, 1024, 512), Product(1, batch, 512, 256))
    return Network("table", ops, batch * 1800.0, batch, "table")


def mlp(batch: int, sizes: tuple[int, ...], kind: str = "mlp") -> Network:
    """Dense layers with nonlinearities."""
    return Network(
        kind, tuple(Product(1, batch, a, b) for a, b in itertools.pairwise(sizes)), float(batch * sum(sizes)), batch,
        "table",
    )  # fmt: skip


def cycles(network: Network, target: Target, partials: str = "half") -> tuple[float, float]:
    """Cycles of the products and convolutions, and elements per tile of everything else."""
    total = sum(op.count * _plan(op, target, partials).cycles(target) for op in network.ops)
    return total, network.elements / target.tiles


def _plan(op: Product | Conv, target: Target, partials: str) -> Plan:
    if isinstance(op, Product):
        options = Options("fc_inference_fwd", partials)
        return plan_matmul(op.rows, op.k, op.n, target, op.groups, options=options)
    pads = ((op.kernel - 1) // 2,) * 2
    params = ConvParams(
        op.batch,
        (op.field,) * 2,
        (op.kernel,) * 2,
        op.ins // op.groups,
        op.outs // op.groups,
        op.groups,
        (op.stride,) * 2,
        pads,
        pads,
    )
    return plan_convolution(params, target, Options("inference_fwd", partials))
