"""Published networks as lists of operations with shapes, priced by the planners."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
    """

    kind: str
    ops: tuple[Product | Conv, ...]
    elements: float
    items: float


def encoder(
    layers: int, width: int, hidden: int, tokens: int, batch: int, heads: int = 0, kind: str = "transformer"
) -> Network:
    """A stack of transformer layers over ``batch x tokens`` tokens."""
    heads = heads or width // 64
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


def resnet50(batch: int, image: int = 224, groups: int = 1) -> Network:
    """ResNet-50 v1.5."""
    ops: list[Product | Conv] = [Conv(1, batch, image, 7, 4, 64, 2)]
    field, ins, elements = image // 4, 64, 3.0 * batch * 64 * (image // 2) ** 2
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        stride = 1 if stage == 0 else 2
        small = field // stride
        ops += [
            Conv(1, batch, field, 1, ins, width),
            Conv(1, batch, field, 3, width, width, stride, groups),
            Conv(1, batch, field, 1, ins, 4 * width, stride),
            Conv(blocks, batch, small, 1, width, 4 * width),
            Conv(blocks - 1, batch, small, 1, 4 * width, width),
            Conv(blocks - 1, batch, small, 3, width, width, 1, groups),
        ]
        elements += batch * blocks * small**2 * width * (2 * 2 + 4 * 3)
        field, ins = small, 4 * width
    return Network("cnn", (*ops, Product(1, batch, 2048, 1000)), elements, batch)


def unet(batch: int, image: int) -> Network:
    """U-Net: four levels down and up again, two 3x3 convolutions each."""
    ops: list[Product | Conv] = []
    elements, ins = 0.0, 4
    for level in range(5):
        field, outs = image // 2**level, 64 * 2**level
        times = 1 if level == 4 else 2
        ops += [
            Conv(1, batch, field, 3, ins, outs),
            Conv(2 * times - 1, batch, field, 3, outs, outs),
            Conv(times - 1, batch, field, 3, 2 * outs, outs),
        ]
        elements += batch * field**2 * outs * 6 * times
        ins = outs
    return Network("cnn", tuple(op for op in ops if op.count), elements, batch)


def swin(batch: int, width: int, depths: tuple[int, ...], image: int = 224, window: int = 7) -> Network:
    """Swin transformer: attention in windows, width doubled from stage to stage."""
    ops: list[Product | Conv] = []
    elements, side = 0.0, image // 4
    for stage, layers in enumerate(depths):
        wide = width * 2**stage
        windows = math.ceil(side / window) ** 2
        part = encoder(layers, wide, 4 * wide, window**2, batch * windows, wide // 32)
        ops += part.ops
        elements += part.elements
        side //= 2
    return Network("window", tuple(ops), elements, batch)


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
    return Network("conformer", base.ops + extra, base.elements * 2.2, batch)


def wide_and_deep(batch: int) -> Network:
    """Look-ups and a tower of three layers; the host feeds it."""
    ops = (Product(1, batch, 416, 1024), Product(1, batch, 1024, 512), Product(1, batch, 512, 256))
    return Network("table", ops, batch * 1800.0, batch)


def mlp(batch: int, sizes: tuple[int, ...], kind: str = "mlp") -> Network:
    """Dense layers with nonlinearities."""
    return Network(
        kind, tuple(Product(1, batch, a, b) for a, b in itertools.pairwise(sizes)), float(batch * sum(sizes)), batch
    )


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


AVERAGE_TOKENS = 256  # of sequences up to 384 long, where a server packs them together
BERT = {"base": (12, 768, 3072), "large": (24, 1024, 4096)}


def _bert(size: str, tokens: int) -> Callable[[int, Mapping[str, Any]], Network]:
    def build(batch: int, config: Mapping[str, Any]) -> Network:
        return encoder(*BERT[size], int(config.get("seq", tokens)), batch)

    return build


def _vit(layers: int, width: int, patch: int = 16) -> Callable[[int, Mapping[str, Any]], Network]:
    def build(batch: int, config: Mapping[str, Any]) -> Network:
        image = int(config.get("image", 224))
        return encoder(layers, width, 4 * width, (image // patch) ** 2 + 1, batch)

    return build


def _frames(config: Mapping[str, Any], default: int) -> int:
    text = str(config.get("input", ""))
    return int(text.split("x")[-1]) if "x" in text else default


# What a row calls its model, as a pattern, with the network of one batch. The first that matches counts.
NETWORKS: tuple[tuple[str, Callable[[int, Mapping[str, Any]], Network]], ...] = (
    (r"bert-large|bert large", _bert("large", 384)),
    (r"roformerv2", lambda b, c: encoder(12, 384, 1536, int(c.get("seq", 64)), b)),
    (r"bert|roformer|deberta", _bert("base", AVERAGE_TOKENS)),
    (r"resnet", lambda b, c: resnet50(b, int(c.get("image", 224)))),
    (r"resnext", lambda b, c: resnet50(b, int(c.get("image", 224)), 32)),
    (r"swin-large|swin-l", lambda b, c: swin(b, 192, (2, 2, 18, 2), int(c.get("image", 384)), 12)),
    (r"swin", lambda b, c: swin(b, 96, (2, 2, 6, 2), int(c.get("image", 224)))),
    (r"clip|\bvit|videobert|unified", _vit(12, 768)),
    (r"conformer encoder", lambda b, c: conformer(b, _frames(c, 512), 12, 256, 2048)),
    (r"conformer-large", lambda b, c: conformer(b, 1200, 17, 512, 2048)),
    (r"conformer", lambda b, c: conformer(b, _frames(c, 600), 16, 256, 1024)),
    (r"wide|dlrm|deep and wide", lambda b, c: wide_and_deep(b)),
    (r"nerf", lambda b, c: mlp(b * 64, (63, 256, 256, 256, 256, 256, 256, 256, 256, 4), "rays")),
    (r"mnist", lambda b, c: mlp(b, (784, 10), "mlp")),
    (r"efficientnet", lambda b, c: dataclasses.replace(resnet50(b, 380, 16), kind="grouped_cnn")),
    (r"dall-?e", lambda b, c: encoder(6, 1024, 4096, 1280, b)),
    (
        r"nanogpt",
        lambda b, c: encoder(
            int(c.get("layers", 12)),
            int(c.get("d", 768)),
            4 * int(c.get("d", 768)),
            int(c.get("seq", 1024)),
            b,
            kind="single_ipu_lm",
        ),
    ),
    (r"gpt-?2[- ]?l|gpt-?2 large", lambda b, c: encoder(36, 1280, 5120, int(c.get("seq", 1024)), b)),
    (r"gpt-?2[- ]?m|gpt-?2 medium", lambda b, c: encoder(24, 1024, 4096, int(c.get("seq", 1024)), b)),
    (r"gpt", lambda b, c: encoder(12, 768, 3072, int(c.get("seq", 1024)), b)),
    (r"wav2vec|hubert", lambda b, c: encoder(12, 768, 3072, int(c.get("seq", 500)), b)),
    (r"unet|u-net", lambda b, c: unet(b, int(c.get("image", 572)))),
    (r"gps", lambda b, c: encoder(16, 256, 1024, 32, b, 32, "graph")),
    (r"cnn", lambda b, c: Network("cnn", (Conv(1, b, 28, 3, 4, 32), Product(1, b, 6272, 128)), b * 60000.0, b)),
)
