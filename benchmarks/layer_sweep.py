"""Single layers drawn from a grid of shapes: ``python -m benchmarks.layer_sweep [--count N] [--seed N] [--minutes M]``.

Each is run forward beside ONNX Runtime and trained beside PyTorch. Convolutions have maps of 1 to 256, 1 to 2,048
channels, kernels of 1 to 11, strides, dilations, groups and batches of 1 to 64; pools, dense layers and softmax follow
the same ranges. Ratios above 4 are listed at the end: each wants an explanation, or a mend. The same seed draws the
same layers. Ratios are those of the least times, which other processes disturb least.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
from rich.console import Console

import popart_jax as popart

from . import layers
from .board import Calls, Row, agree
from .engines import onnxruntime_inference, session_call
from .layers import Layer
from .timing import interleave

MAPS = (1, 2, 3, 4, 7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 256)
CHANNELS = (1, 2, 3, 4, 8, 16, 32, 64, 96, 128, 256, 512, 1024, 2048)
KERNELS = (1, 1, 2, 3, 3, 3, 4, 5, 7, 11)
BATCHES = (1, 1, 2, 4, 8, 16, 64)
LEAST, MOST = 1e6, 5e8
"""Multiplications of a forward pass: below, calls themselves are measured; above, a row takes seconds."""
ELEMENTS = 4e6
"""Of data and result of a convolution."""
LARGE = 4.0
"""A ratio that is listed."""


def draw(rng: random.Random) -> tuple[str, Layer]:
    """One layer and its name, not too large."""
    while True:
        found = rng.choice((_convolution, _convolution, _convolution, _pool, _dense, _softmax))(rng)
        if found is not None:
            return found


def _convolution(rng: random.Random) -> tuple[str, Layer] | None:
    batch, size, kernel = rng.choice(BATCHES), rng.choice(MAPS), rng.choice(KERNELS)
    into, out = rng.choice(CHANNELS), rng.choice(CHANNELS)
    stride, dilation = rng.choice((1, 1, 1, 2)), rng.choice((1, 1, 1, 2))
    groups = rng.choice([1, 1, 1, *(g for g in (2, 4, 8, 32, into) if into % g == 0 and out % g == 0)])
    reach = (kernel - 1) * dilation + 1
    padding = reach // 2
    places = ((size + 2 * padding - reach) // stride + 1) ** 2
    work = batch * places * out * into // groups * kernel**2
    if places < 1 or batch * (into * size**2 + out * places) > ELEMENTS or not LEAST < work < MOST:
        return None
    data, weights = (batch, into, size, size), (out, into // groups, kernel, kernel)
    name = f"conv {batch}x{into}x{size}x{size} to {out}, {kernel}x{kernel}"
    name += (
        f" stride {stride}" * (stride > 1)
        + f" dilated {dilation}" * (dilation > 1)
        + f" groups {groups}" * (groups > 1)
    )
    return name, layers.convolution(data, weights, stride, padding, dilation, groups)


def _pool(rng: random.Random) -> tuple[str, Layer] | None:
    data = (rng.choice(BATCHES), rng.choice(CHANNELS), *[rng.choice(MAPS)] * 2)
    kernel, stride = rng.choice((2, 3, 5, 7)), rng.choice((1, 2, 3))
    if kernel > data[-1] or not LEAST / 5 < math.prod(data) < MOST / 50:
        return None
    kind = rng.choice(("max", "avg"))

    def build(builder: popart.Builder, x: str, _: list[str]) -> str:
        window, steps = [kernel] * 2, [stride] * 2
        if kind == "avg":
            return builder.aiOnnx.averagepool([x], kernel_shape=window, strides=steps)
        return builder.aiOnnx.maxpool([x], 1, kernel_shape=window, strides=steps)[0]

    options = {"kernel_size": kernel, "stride": stride}
    name = f"{kind} pool {'x'.join(map(str, data))}, {kernel}x{kernel} stride {stride}"
    return name, Layer(data, (), build, f"{kind}_pool2d", options)


def _dense(rng: random.Random) -> tuple[str, Layer] | None:
    rows, into, out = rng.choice((1, 8, 64, 512, 2048)), rng.choice(CHANNELS), rng.choice(CHANNELS)
    if not LEAST < rows * into * out < MOST:
        return None

    def build(builder: popart.Builder, x: str, w: list[str]) -> str:
        return builder.aiOnnx.gemm([x, *w], transB=1)

    return f"dense {rows}x{into} to {out}", Layer((rows, into), ((out, into), (out,)), build, "linear", {})


def _softmax(rng: random.Random) -> tuple[str, Layer] | None:
    rows, width = rng.choice((1, 8, 64, 512, 2048)), rng.choice((2, 16, 100, 1000, 4096, 50257))
    if not LEAST / 5 < rows * width < MOST / 50:
        return None

    def build(builder: popart.Builder, x: str, _: list[str]) -> str:
        return builder.aiOnnx.softmax([x], axis=1)

    return f"softmax {rows}x{width}", Layer((rows, width), (), build, "softmax", {"dim": 1})


def forward(layer: Layer) -> Calls:
    """The layer as a model, ours and ONNX Runtime's."""
    rng = np.random.default_rng(0)
    builder = popart.Builder()
    data = builder.addInputTensor(popart.TensorInfo("FLOAT", list(layer.data)), "x")
    held = [builder.addInitializedInputTensor(rng.normal(size=s).astype(np.float32)) for s in layer.weights]
    y = layer.build(builder, data, held)
    builder.addOutputTensor(y)
    model, feed = builder.getModelProto(), {"x": rng.normal(size=layer.data).astype(np.float32)}
    return {"ours": session_call(model, y, feed), "onnxruntime": onnxruntime_inference(model, feed)}


def rows(count: int, seed: int) -> Iterator[Row]:
    """Two rows a layer."""
    rng = random.Random(seed)
    for _ in range(count):
        name, layer = draw(rng)
        yield f"forward {name}", partial(forward, layer)
        yield f"train {name}", partial(layers.engines, layer)


def measure(calls: Calls, budget: float) -> tuple[dict[str, float], float]:
    """Least time of each engine [s], and the largest relative difference of their results."""
    difference = agree(calls)
    return {name: min(found.seconds) for name, found in interleave(calls, budget=budget).items()}, difference


def main(argv: list[str] | None = None) -> int:
    """Print a line a layer, and what is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10.0, help="layers for which no time is left are not run")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of timing a row")
    args = parser.parse_args(argv)
    console, large, end = Console(width=150, highlight=False), [], time.monotonic() + 60 * args.minutes
    for label, make in rows(args.count, args.seed):
        if time.monotonic() > end:
            break
        times, difference = measure(make(), args.budget)
        peer = next(name for name in times if name != "ours")
        ratio = times["ours"] / times[peer]
        line = f"{label}: {times['ours'] * 1e3:.3f} ms, {peer} {times[peer] * 1e3:.3f}, ratio {ratio:.2f}"
        console.print(f"{line}, difference {difference:.0e}", markup=False, soft_wrap=True)
        large += [line] if ratio > LARGE else []
    console.print(f"above {LARGE:.0f}: {len(large)}", *large, sep="\n", markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
