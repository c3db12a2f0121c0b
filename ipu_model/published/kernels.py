"""Measured kernels: matrix products, copies, streams, exchange schedules, host transfers."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ipu_model.planner.conv_grid import Options
from ipu_model.planner.conv_params import ConvParams
from ipu_model.planner.conv_vertices import Tile, Vertex, tile_cycles
from ipu_model.planner.convolution import plan_convolution, plan_matmul
from ipu_model.published.formula import FIXED, Formula, known, of_plans
from ipu_model.published.hardware import system_size
from ipu_model.published.stencil import BLUR_STEPS, MIDDLE_SIDE, sent_between, sync_between
from ipu_model.published.units import size_in_bytes, size_named
from ipu_model.published.words import numbers, ratio, repeats
from ipu_model.target import Target

SIGLIP_TOKENS, SIGLIP_WIDTH = 729, 1152  # the vision transformer whose layer the schedule was made for
TUTORIAL_MATRIX = (10000, 1000)
GROUP = 16  # columns that the kernel of products works on together
LOAD_LATENCY = 6  # cycles from a load to the use of what it loads (Jia et al. 2019)
# Dynamic sparsity plans without knowing where the blocks are: buckets of the largest size, and rounds of the exchange.
DYNAMIC = 2.0
VECTOR = r"\bspmv\b|matrix[- ]vector"  # a product with one column
FP8 = ("c600",)  # chips whose convolution units take fp8
SPARSE = ("density", "sparsity", "nnz")  # entries that say how many elements are zero
# Words for bytes that leave a chip.
PATHS = r"host|gateway|pcie|\blinks?\b|ipu-?link|inter-ipu|between .*(ipus|chips)|streaming|remote|\bddr|off-chip"
# Vectors that a loop of STREAM loads and stores, and operations on each of its numbers.
STREAMS = {"copy": (2, 0), "scale": (2, 1), "mul": (2, 1), "add": (3, 1), "triad": (3, 2), "dot": (2, 2)}


def formula(row: Mapping[str, Any], target: Target) -> Formula | None:
    """The formula of a measured kernel, None when the row is something else."""
    family, config, what = row["family"], row["config"], str(row["what"]).lower()
    if family == "max_problem_size" or re.search(r"\bfits?\b", what):
        return _capacity(config, what, str(row["precision"]), target)
    if family == "gemm":
        return _gemm(config, what, str(row["precision"]), target)
    if family == "conv":
        return _blur_convolution(config, what, str(row["precision"]), system_size(str(row["hardware"])), target)
    if family == "memory_bound":
        return _memory(config, what, str(row["precision"]), target)
    if family == "exchange":
        if re.search(r"local copy|\bstream\b", what):
            return _memory(config, what, str(row["precision"]), target)
        return _exchange(config, what, target)
    return None


def _capacity(config: Mapping[str, Any], what: str, precision: str, target: Target) -> Formula | None:
    """Formulas of capacity: a dense layer's memory by category, the largest square product, or fits (1) or not (0)."""
    asked = re.search(r"tile needing ([\d,.]+ ?[kmgi]*b\w*)", what)
    need = config.get("bytes_per_tile_needed", asked and asked[1])
    if need:
        return known(size_in_bytes(need) <= target.tile_memory)
    if re.search(r"square (matmul|matrix (product|multipl))", what):
        return known(largest_square(target, precision))
    if "d" in config and "layers" in config:
        # weights, gradients and two moments, and the activations of every layer for the backward pass
        width, layers, tokens = config["d"], config["layers"], config.get("seq", 1024) * config.get("batch", 1)
        return known(12 * layers * width**2 * 12 + layers * tokens * width * 2 * 14 <= target.memory)
    layer = re.match(r"dense (\d+)\s*->\s*(\d+)", str(config.get("layer", "")).lower())
    if layer is None:
        return None
    ins, outs = int(layer.group(1)), int(layer.group(2))
    code = {
        "vertexcode": "memory.vertex_code",
        "internalexchangecode": "memory.exchange_code",
        "vertexinstancestate": "memory.vertex_state",
        "controlcode": "memory.control_code",
    }
    name = what.replace(" ", "")
    if name in code:
        return Formula(({code[name]: float(target.tiles)},), gives="bytes")
    if not re.search(r"memory|live|total|bytes", what):
        raise ValueError(f"{what!r} of a layer is not known; known are its memory, {', '.join(code)}")
    return Formula(({FIXED: 2.0 * ins * outs, "memory.live_beside": float(target.tiles)},), gives="bytes")


def largest_square(target: Target, precision: str) -> float:
    """Side of the largest square product that fits; the constant is bytes per element of a product of floats."""
    size = 1.0 if precision.startswith("fp32") or not precision else 0.5
    return math.sqrt(target.memory / (size * target.fitted.get("memory.square_bytes", 36.0)))


def on_tile_product(rows: int, inner: int, out: int, data: str, partials: str, target: Target) -> float:
    """Tile cycles of ``[rows, inner] x [inner, out]`` in the pointwise convolution kernel."""
    machine = target.machine
    units = machine.units(data, partials)
    weights = machine.weights_per_unit_half if data == "half" else machine.weights_per_unit_float
    vertex = Vertex("amp", 1, weights, max(units, out), units, data, partials, units * 4)
    one = np.ones(1, dtype=np.int64)
    groups = one * math.ceil(inner / weights)
    tile = Tile(one, groups, one, one, (one, one * rows), (one, one))
    params = ConvParams(1, (1, rows), (1, 1), inner, out, data=data, output=data)
    return float(tile_cycles(vertex, params, tile, machine)[0])


def types_of(precision: str) -> tuple[str, str]:
    """Types of the data and of the partial results of a precision (``"fp16.32"``)."""
    if precision.startswith("fp32"):
        return "float", "float"
    return "half", "float" if "32" in precision else "half"


def _holds_fp8(precision: str, target: Target) -> bool:
    return "fp8" in precision and target.name in FP8


def peak_of(precision: str, target: Target) -> float:
    """Operations per second of a chip at its peak, in the types of a precision."""
    return target.peak_flops(*types_of(precision)) * (2 if _holds_fp8(precision, target) else 1)


def _gemm(config: Mapping[str, Any], what: str, precision: str, target: Target) -> Formula | None:
    data, partials = types_of(precision)
    peak = peak_of(precision, target)
    packed = 2 if _holds_fp8(precision, target) else 1  # two numbers take the place, and the cycles, of a half
    if "N" in config:
        n, inner, out = config["N"], config.get("inner", 16), config.get("out", 16)
        cycles = on_tile_product(n, math.ceil(inner / packed), out, data, partials, target)
        return Formula(({FIXED: cycles},), work=_flop(2.0 * n * inner * out * config.get("tiles", target.tiles), peak))
    if any(name in config for name in SPARSE):
        sparse = _sparse(config, what, data, target)
        if not re.search(r"speed-?up|over (the )?dense", what):
            return dataclasses.replace(sparse, work=_flop(sparse.work["flop"], peak))
        dense = {name: value for name, value in config.items() if name not in SPARSE}
        whole = _gemm({"m": 4096, "k": 4096, "n": 4096, **dense}, "dense matmul", precision, target)
        return None if whole is None else known(whole(target) / sparse(target))
    if re.search(r"(?<!non-)\bsparse\b|\bspm[vm]\b", what):
        raise ValueError(f"{what!r}: how many zeros there are is not said; it is one of {', '.join(SPARSE)}")
    sizes = [int(n) for n in numbers(config.get("shape", config.get("size", "")))]
    bound = "peak" in what and not re.search(r"best|measured|achieved|reached", what)  # of the chip, not of a product
    if "m" in config or sizes or (not bound and re.search(r"(best|peak|dense|square).*(matmul|product|rate)", what)):
        m, k, n = (int(config.get(d, (sizes or [2944])[min(i, len(sizes or [1]) - 1)])) for i, d in enumerate("mkn"))
        groups = int(config.get("groups", config.get("batch", 1)))
        options = Options("none_matmul", partials="float" if data == "float" else partials)
        plan = plan_matmul(m, math.ceil(k / packed), n, target, groups, data=data, options=options)
        given = float(config.get("peak_tflops", peak / 1e12)) * 1e12
        return dataclasses.replace(of_plans([plan]), work=_flop(2.0 * groups * m * k * n, given))
    if "matrix-vector" in what:
        rows, columns = config.get("rows", TUTORIAL_MATRIX[0]), config.get("columns", TUTORIAL_MATRIX[1])
        return Formula(({FIXED: rows * columns / target.tiles / 2, "kernel.matvec_base": 1.0},))
    if "kernel call" in what or "launch" in what:
        return Formula(({"kernel.call": 1.0},))
    columns = re.search(r"(\d+)[- ]columns?( group)?", what)
    if columns and "kernel" in what:
        kind = "kernel.group_interleaved" if "interleaved" in what else "kernel.group_standard"
        groups = math.ceil(int(columns[1]) / GROUP)
        return Formula(({kind: groups} if columns[2] else {kind: groups, "kernel.call": 1.0},))
    return None


def _flop(flop: float, peak: float) -> dict[str, float]:
    """Work of a product, and the seconds that it takes at `peak` operations per second."""
    return {"flop": flop, "share": flop / peak}


def _sparse(config: Mapping[str, Any], what: str, data: str, target: Target) -> Formula:
    """Block-sparse product, counted on its non-zeros: arithmetic on blocks plus bringing the dense operand."""
    m = config.get("m", config.get("rows", config.get("size", 4096)))
    k = config.get("k", config.get("columns", config.get("size", m)))
    n = config.get("n", 1 if re.search(VECTOR, what) else config.get("size", 4096))
    # the cost of a multiply falls about with the root of the block's side; two sides have fitted constants
    side = min(16.0, max(1.0, (numbers(config.get("block", 1)) or [1.0])[0]))
    single = (side**-0.5 - 0.25) / 0.75
    density = _density(config, m * k)
    macs = density * m * k * n
    times, assumed = (
        (DYNAMIC, (f"dynamic sparsity takes {DYNAMIC:g} times as long",)) if "dynamic" in what else (1.0, ())
    )
    size = 4 if data == "float" else 2
    arithmetic, operands = times * macs / target.tiles * size / 8, times * (k + m) * n * size / target.tiles
    quantities = {
        "kernel.sparse_block1": single * arithmetic,
        "kernel.sparse_block16": (1 - single) * arithmetic,
        "kernel.sparse_dense1": single * operands,
        "kernel.sparse_dense16": (1 - single) * operands,
    }
    return Formula((quantities,), work={"flop": 2 * macs}, assumed=assumed)


def _density(config: Mapping[str, Any], elements: float) -> float:
    """Share of a matrix that is not zero."""
    if "nnz" in config:
        return float(config["nnz"]) / elements
    return ratio(config["density"]) if "density" in config else 1 - ratio(config["sparsity"])


def _blur_convolution(
    config: Mapping[str, Any], what: str, precision: str, count: int, target: Target
) -> Formula | None:
    if "image" not in config:
        return None
    if "blur" not in what:
        raise ValueError(f"{what!r}: how many channels go in and out is not said (input-channels, output-channels)")
    sides = numbers(config["image"])
    width, height = sides if len(sides) == 2 else (MIDDLE_SIDE, MIDDLE_SIDE)
    data = types_of(precision)[0]
    kernel = tuple(int(n) for n in numbers(config.get("kernel", "3x3")))
    pads = tuple(n // 2 for n in kernel)
    channels = int(config.get("channels", 4))
    # the image is split over the IPUs in strips; each channel is its own convolution group
    field = (math.ceil(height / count), int(width))
    params = ConvParams(1, field, kernel, 1, 1, channels, (1, 1), pads, pads, data=data, output=data)
    plan = plan_convolution(params, target, Options("inference_fwd"))
    base = of_plans([plan])
    times = repeats(what, BLUR_STEPS)
    quantities = {k: v * times for k, v in base.alternatives[0].items()}
    if count > 1:
        size = 2.0 if data == "half" else 4.0
        between = sent_between(width * channels * size, target)
        between[FIXED] += sync_between(count, target)
        for name, value in between.items():
            quantities[name] = quantities.get(name, 0.0) + times * value
    return Formula((quantities,), base.exchange, work={"step": times, "cell": times * width * height})


def _memory(config: Mapping[str, Any], what: str, precision: str, target: Target) -> Formula | None:
    if re.search(PATHS, what):
        return None
    if re.search(rf"{VECTOR}|\bspmm\b", what):
        return _gemm(config, what, precision, target)
    if re.search(r"latency", what) and re.search(r"\b(memory|load|sram)\b", what):
        return Formula(({FIXED: LOAD_LATENCY},))
    stream = re.search(r"\b(triad|copy|scale|mul|add|dot)\b", f"{what} {config.get('kernel', '')}")
    if stream and re.search(r"stream\b|triad", what):
        # 8 bytes per vector; a loop iteration loads up to two vectors and stores one, whatever it computes
        implementation = str(config.get("implementation", "vertex"))
        kind = next((k for k in ("plain", "assembly", "vendor primitives") if k in implementation), "vertex")
        vectors, operations = STREAMS[stream[1]]
        moved, numbers_ = 8.0 * vectors * target.tiles, (2.0 if precision.startswith("fp32") else 4.0) * target.tiles
        work = {"byte": moved, "flop": operations * numbers_, "share": 1 / target.clock_hz}
        return Formula(({f"kernel.triad_{kind.split()[0]}": 1.0},), work=work)
    if "read bandwidth" in what:
        return Formula(({"kernel.load_pair": 1.0},), work={"byte": 16.0 * target.tiles, "share": 1 / target.clock_hz})
    if "copy" in what or "bytes" in config:
        moved = size_named(config, what)  # on one tile; rates by tile are those of all, shared out
        tiles = target.tiles if re.search(r"per tile|aggregate|all tiles", what) else 1
        took = {"kernel.copy_call": 1.0, FIXED: moved / target.memcpy_bytes_per_cycle}
        return Formula((took,), work={"byte": moved * tiles})
    return None


def _exchange(config: Mapping[str, Any], what: str, target: Target) -> Formula | None:
    if "exchange schedule" in what:
        words = SIGLIP_TOKENS * SIGLIP_WIDTH * 2 / target.machine.exchange_bytes
        return Formula(({"kernel.schedule": words},))
    if "per fragment" in what:
        return Formula(({FIXED: target.fragment_cycles},))
    if "example" in what and re.search(r"\bsync\b", what):
        return Formula(({"kernel.tutorial_syncs": target.sync_cycles},))
    if "host exchange" in what:
        rows, columns = TUTORIAL_MATRIX
        return Formula(({"kernel.host_model": rows * columns * 4.0},))
    if "transfer rate" in what:
        return known(target.host_out_bytes_per_second, "byte/s")
    if "small cnn" in what:
        quantities = {"kernel.small_cnn": 1.0}
        if "synchronous" in what.replace("asynchronous", ""):
            quantities["kernel.host_item"] = 1.0
        return Formula((quantities,), work={"item": 1.0})
    if "latency increase" in what and "chip" in what:
        return Formula(({"kernel.loaded_latency": 1.0},), gives="number")
    return None
