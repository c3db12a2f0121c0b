"""Measured kernels: matrix products, copies, streams, exchange schedules, host transfers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ipu_model.planner.conv_grid import Options
from ipu_model.planner.conv_params import ConvParams
from ipu_model.planner.conv_vertices import Tile, Vertex, tile_cycles
from ipu_model.planner.convolution import plan_convolution, plan_matmul
from ipu_model.published.formula import FIXED, Formula, of_plans
from ipu_model.published.stencil import BLUR_STEPS, MIDDLE_SIDE, ipus, numbers
from ipu_model.target import Target

SIGLIP_TOKENS, SIGLIP_WIDTH = 729, 1152  # the vision transformer whose layer the schedule was made for
TUTORIAL_MATRIX = (10000, 1000)


def formula(row: Mapping[str, Any], target: Target) -> Formula | None:
    """The formula of a measured kernel, None when the row is something else."""
    family, config, what = row["family"], row["config"], str(row["what"]).lower()
    if family == "gemm":
        return _gemm(config, what, str(row["unit"]), str(row["precision"]), target)
    if family == "conv":
        return _blur_convolution(config, str(row["precision"]), ipus(str(row["hardware"])), target)
    if family == "memory_bound":
        return _memory(config, what, str(row["unit"]), target)
    if family == "exchange":
        return _exchange(config, what, str(row["unit"]), target)
    if family == "max_problem_size":
        return _capacity(config, what, target)
    return None


def _capacity(config: Mapping[str, Any], what: str, target: Target) -> Formula | None:
    """Memory of a dense layer by category, the largest square product, and whether something fits (1) or not (0)."""
    if "bytes_per_tile_needed" in config:
        return Formula(({FIXED: float(config["bytes_per_tile_needed"] <= target.tile_memory)},))
    if "square matmul" in what:
        return Formula(({FIXED: math.sqrt(target.memory / target.fitted.get("memory.square_bytes", 36.0))},))
    if "d" in config and "layers" in config:
        # weights, gradients and two moments, and the activations of every layer for the backward pass
        width, layers, tokens = config["d"], config["layers"], config.get("seq", 1024) * config.get("batch", 1)
        need = 12 * layers * width**2 * 12 + layers * tokens * width * 2 * 14
        return Formula(({FIXED: float(need <= target.memory)},))
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
    if what in code:
        return Formula(({code[what]: float(target.tiles)},))
    return Formula(({FIXED: 2.0 * ins * outs, "memory.live_beside": float(target.tiles)},))


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


def _types(precision: str) -> tuple[str, str]:
    if precision.startswith("fp32"):
        return "float", "float"
    return "half", "float" if "32" in precision else "half"


def _gemm(config: Mapping[str, Any], what: str, unit: str, precision: str, target: Target) -> Formula | None:
    data, partials = _types(precision)
    if "N" in config:
        n, inner, out = config["N"], config.get("inner", 16), config.get("out", 16)
        tiles = config.get("tiles", target.tiles)
        cycles = on_tile_product(n, inner, out, data, partials, target)
        work = 2.0 * n * inner * out * tiles
        return Formula(({FIXED: cycles},), seconds=True, numerator=work, unit=1e12)
    if "density" in config:
        return _sparse(config, partials, target)
    if "m" in config or re.search(r"(best|peak|dense|square).*(matmul|product|rate)", what):
        m, k, n = (config.get(d, config.get("size", 2944)) for d in ("m", "k", "n"))
        options = Options("none_matmul", partials="float" if data == "float" else partials)
        plan = plan_matmul(m, k, n, target, data=data, options=options)
        rate = of_plans([plan])
        return Formula(rate.alternatives, rate.exchange, seconds=True, numerator=2.0 * m * k * n, unit=1e12)
    if "matrix-vector" in what:
        rows, columns = TUTORIAL_MATRIX
        return Formula(({FIXED: rows * columns / target.tiles / 2, "kernel.matvec_base": 1.0},))
    if "kernel call" in what:
        return Formula(({"kernel.call": 1.0},))
    if "column group" in what:
        kind = "kernel.group_interleaved" if "interleaved" in what else "kernel.group_standard"
        return Formula(({kind: 1.0},))
    return None


def _sparse(config: Mapping[str, Any], partials: str, target: Target) -> Formula:
    """Static block-sparse product, counted on its non-zeros: arithmetic on blocks plus bringing the dense operand."""
    m, k, n = (config.get(d, 4096) for d in ("m", "k", "n"))
    # a multiply costs less in larger blocks, about with the root of their side; two sides have constants
    side = min(16.0, max(1.0, float(config.get("block", 1))))
    single = (side**-0.5 - 0.25) / 0.75
    top, _, bottom = str(config["density"]).partition("/")
    density = float(top) / float(bottom or 1)
    macs = density * m * k * n
    quantities = {
        "kernel.sparse_block1": single * macs / target.tiles / 4,
        "kernel.sparse_block16": (1 - single) * macs / target.tiles / 4,
        "kernel.sparse_dense1": single * (k + m) * n * 2 / target.tiles,
        "kernel.sparse_dense16": (1 - single) * (k + m) * n * 2 / target.tiles,
    }
    return Formula((quantities,), seconds=True, numerator=2 * macs, unit=1e12)


def _blur_convolution(config: Mapping[str, Any], precision: str, count: int, target: Target) -> Formula | None:
    if "image" not in config:
        return None
    text = str(config["image"])
    width, height = numbers(text)[:2] if re.match(r"\d+x\d+", text) else (MIDDLE_SIDE, MIDDLE_SIDE)
    data = _types(precision)[0]
    kernel = tuple(int(n) for n in numbers(str(config.get("kernel", "3x3"))))
    pads = tuple(n // 2 for n in kernel)
    channels = int(config.get("channels", 4))
    # the image is split over the IPUs in strips; each channel is its own convolution group
    field = (math.ceil(height / count), int(width))
    params = ConvParams(1, field, kernel, 1, 1, channels, (1, 1), pads, pads, data=data, output=data)
    plan = plan_convolution(params, target, Options("inference_fwd"))
    base = of_plans([plan])
    quantities = {k: v * BLUR_STEPS for k, v in base.alternatives[0].items()}
    if count > 1:
        quantities["stencil.links"] = float(BLUR_STEPS)
    return Formula((quantities,), base.exchange, seconds=True)


def _memory(config: Mapping[str, Any], what: str, unit: str, target: Target) -> Formula | None:
    if "triad" in what:
        # 8 bytes per vector; a loop iteration loads two vectors and stores one
        implementation = str(config.get("implementation", "vertex"))
        kind = next((k for k in ("plain", "assembly", "vendor primitives") if k in implementation), "vertex")
        cycles = {f"kernel.triad_{kind.split()[0]}": 1.0}
        per_vector = 4.0 if "flop" in unit.lower() else 24.0
        scale = {"TB/s": 1e12, "GB/s": 1e9}.get(unit, 1e12)
        return Formula((cycles,), seconds=True, numerator=per_vector * target.tiles, unit=scale)
    if "read bandwidth" in what:
        per_cycle = 16.0 * target.tiles
        return Formula(({"kernel.load_pair": 1.0},), seconds=True, numerator=per_cycle, unit=1e12)
    if "copy" in what:
        quantities = {"kernel.copy_call": 1.0}
        if "bytes" in config:
            quantities[FIXED] = config["bytes"] / target.memcpy_bytes_per_cycle
        return Formula((quantities,))
    return None


def _exchange(config: Mapping[str, Any], what: str, unit: str, target: Target) -> Formula | None:
    if "exchange schedule" in what:
        words = SIGLIP_TOKENS * SIGLIP_WIDTH * 2 / target.machine.exchange_bytes
        return Formula(({"kernel.schedule": words},))
    if "per fragment" in what:
        return Formula(({FIXED: target.fragment_cycles},))
    if re.search(r"\bsync\b", what):
        return Formula(({"kernel.tutorial_syncs": target.sync_cycles},))
    if "host exchange" in what:
        rows, columns = TUTORIAL_MATRIX
        return Formula(({"kernel.host_model": rows * columns * 4.0},))
    if "transfer rate" in what:
        return Formula(({FIXED: target.host_out_bytes_per_second / 1e9},))
    if "small cnn" in what:
        quantities = {"kernel.small_cnn": 1.0}
        if "synchronous" in what.replace("asynchronous", ""):
            quantities["kernel.host_item"] = 1.0
        return Formula((quantities,), seconds=True, numerator=1.0)
    if "latency increase" in what and "chip" in what:
        return Formula(({"kernel.loaded_latency": 1.0},))
    return None
