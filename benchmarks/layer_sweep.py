"""Single layers drawn from a grid of shapes: ``python -m benchmarks.layer_sweep [--count N] [--seed N] [--only TEXT]``.

Each is run forward beside ONNX Runtime and trained beside PyTorch. Convolutions have maps of 1 to 256, 1 to 2,048
channels, kernels of 1 to 11, strides, dilations, groups, one to three dimensions and batches of 1 to 64; pools, dense
layers, batched products, reductions, gathers (scatters in training), norms, nearest resizes and softmax follow the same
ranges. Ratios above 4 are listed at the end: each wants an explanation, or a mend. The same seed draws the
same layers. Ratios are those of the least times, which other processes disturb least.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from rich.console import Console

import popart_jax as popart

from . import layers
from .board import Calls, Row, add_timing, agree, quiet
from .engines import onnxruntime_inference, session_call
from .layers import Layer
from .networks.network import with_constant_weights
from .timing import interleave

MAPS = (1, 2, 3, 4, 7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 256)
CHANNELS = (1, 2, 3, 4, 8, 16, 32, 64, 96, 128, 256, 512, 1024, 2048)
KERNELS = (1, 1, 2, 3, 3, 3, 4, 5, 7, 11)
BATCHES = (1, 1, 2, 4, 8, 16, 64)
LEAST, MOST = 1e6, 5e8
"""Multiplications of a forward pass: below, calls themselves are measured; above, a row takes seconds."""
ELEMENTS = 4e6
"""The most elements of the data and of the result of a convolution."""
LARGE = 4.0
"""Ratios above this are listed."""


def draw(rng: random.Random) -> tuple[str, Layer]:
    """One layer and its name, not too large."""
    while True:
        found = rng.choice(_KINDS)(rng)
        if found is not None:
            return found


def _convolution(rng: random.Random) -> tuple[str, Layer] | None:
    batch, size, kernel = rng.choice(BATCHES), rng.choice(MAPS), rng.choice(KERNELS)
    into, out = rng.choice(CHANNELS), rng.choice(CHANNELS)
    stride, dilation = rng.choice((1, 1, 1, 2)), rng.choice((1, 1, 1, 2))
    rank = rng.choice((1, 2, 2, 2, 2, 3))
    groups = rng.choice([1, 1, 1, *(g for g in (2, 4, 8, 32, into) if into % g == 0 and out % g == 0)])
    reach = (kernel - 1) * dilation + 1
    padding = reach // 2
    places = ((size + 2 * padding - reach) // stride + 1) ** rank
    work = batch * places * out * into // groups * kernel**rank
    if places < 1 or batch * (into * size**rank + out * places) > ELEMENTS or not LEAST < work < MOST:
        return None
    data, weights = (batch, into, *(size,) * rank), (out, into // groups, *(kernel,) * rank)
    name = f"conv {_by(data)} to {out}, {_by(weights[2:])}"
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
    name = f"{kind} pool {_by(data)}, {kernel}x{kernel} stride {stride}"
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


def _product(rng: random.Random) -> tuple[str, Layer] | None:
    count, rows, into, out = rng.choice(BATCHES), *(rng.choice((1, 2, *CHANNELS)) for _ in range(3))
    if not LEAST < count * rows * into * out < MOST or count * (rows * into + into * out + rows * out) > ELEMENTS:
        return None
    data, weights = (count, rows, into), (count, into, out)

    def build(builder: popart.Builder, x: str, w: list[str]) -> str:
        return builder.aiOnnx.matmul([x, *w])

    return f"product {_by(data)} and {_by(weights)}", Layer(data, (weights,), build, "matmul", {})


def _reduction(rng: random.Random) -> tuple[str, Layer] | None:
    data = tuple(rng.choice((1, 3, 8, 16, 100, 128, 1000, 1024)) for _ in range(rng.choice((2, 3, 4))))
    axis, kind = rng.randrange(len(data)), rng.choice(("sum", "mean", "max"))
    if not LEAST / 5 < math.prod(data) < ELEMENTS or data[axis] == 1:
        return None

    def build(builder: popart.Builder, x: str, _: list[str]) -> str:
        return getattr(builder.aiOnnx, f"reduce{kind}")([x], axes=[axis], keepdims=0)

    function = "amax" if kind == "max" else kind
    return f"{kind} of {_by(data)} over {axis}", Layer(data, (), build, function, {"dim": axis})


def _gather(rng: random.Random) -> tuple[str, Layer] | None:
    rows, width, count = (rng.choice(v) for v in ((100, 5000, 50000), (1, 16, 128, 1000), (64, 2048, 50000)))
    axis = rng.choice((0, 1))
    if not LEAST / 20 < max(count, rows) * width < ELEMENTS:
        return None
    index = np.random.default_rng(rows + count).integers(0, rows, count)
    data = (rows, width) if axis == 0 else (width, rows)

    def build(builder: popart.Builder, x: str, _: list[str]) -> str:
        return builder.aiOnnx.gather([x, builder.aiOnnx.constant(index.astype(np.int32))], axis=axis)

    options = {"dim": axis, "index": index}
    return f"gather {count} of {_by(data)} along {axis}", Layer(data, (), build, "index_select", options)


def _norm(rng: random.Random) -> tuple[str, Layer] | None:
    data = (rng.choice(BATCHES), rng.choice(CHANNELS), *[rng.choice(MAPS)] * 2)
    if not LEAST / 5 < math.prod(data) < ELEMENTS or data[-1] == 1:
        return None

    def build(builder: popart.Builder, x: str, w: list[str]) -> str:
        return builder.aiOnnx.instancenormalization([x, *w])

    return f"norm {_by(data)}", Layer(data, ((data[1],),) * 2, build, "group_norm", {"num_groups": data[1]})


def _resize(rng: random.Random) -> tuple[str, Layer] | None:
    data, factor = (rng.choice(BATCHES), rng.choice(CHANNELS), *[rng.choice(MAPS)] * 2), rng.choice((2, 2, 3, 4))
    if not LEAST / 5 < math.prod(data) * factor**2 < ELEMENTS:
        return None

    def build(builder: popart.Builder, x: str, _: list[str]) -> str:
        return builder.aiOnnx.resize([x, builder.aiOnnx.constant(np.array([1, 1, factor, factor], np.float32))])

    return f"resize {_by(data)} by {factor}", Layer(data, (), build, "interpolate", {"scale_factor": factor})


def _by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


_OTHERS = (_pool, _dense, _softmax, _product, _reduction, _gather, _norm, _resize)
_KINDS = (*(_convolution,) * len(_OTHERS), *_OTHERS)
"""Every second layer is a convolution."""


def forward(layer: Layer) -> Calls:
    """The layer as a model, ours and ONNX Runtime's."""
    rng = np.random.default_rng(0)
    builder = popart.Builder()
    data = builder.addInputTensor(popart.TensorInfo("FLOAT", list(layer.data)), "x")
    held = [builder.addInitializedInputTensor(rng.normal(size=s).astype(np.float32)) for s in layer.weights]
    y = layer.build(builder, data, held)
    builder.addOutputTensor(y)
    model, feed = with_constant_weights(builder.getModelProto()), {"x": rng.normal(size=layer.data).astype(np.float32)}
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
    add_timing(parser, 1.0)
    parser.add_argument("--only", default="", help="rows whose label holds this text")
    args = parser.parse_args(argv)
    console, end = Console(width=150, highlight=False), time.monotonic() + 60 * args.minutes
    large: list[str] = []
    for label, make in rows(args.count, args.seed):
        if time.monotonic() > end:
            break
        if args.only not in label:
            continue
        calls = make()
        with quiet(args.priority):
            times, difference = measure(calls, args.budget)
        peer = next(name for name in times if name != "ours")
        ratio = times["ours"] / times[peer]
        line = f"{label}: {times['ours'] * 1e3:.3f} ms, {peer} {times[peer] * 1e3:.3f}, ratio {ratio:.2f}"
        console.print(f"{line}, difference {difference:.0e}", markup=False, soft_wrap=True)
        large += [line] if ratio > LARGE else []
    console.print(f"above {LARGE:.0f}: {len(large)}", *large, sep="\n", markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
