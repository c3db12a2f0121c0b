"""Convolutions and matrix products: planned on the tiles, priced, with the memory they need."""

from __future__ import annotations

import dataclasses
import functools
import math

from ipu_model.planner import conv_search
from ipu_model.planner.conv_grid import SIZES, Options, Split
from ipu_model.planner.conv_joint import PASSES, plan_joint
from ipu_model.planner.conv_params import ConvParams, cdiv, matmul_params
from ipu_model.planner.conv_reduce import stage_count
from ipu_model.planner.plan import Plan
from ipu_model.target import Machine, Target

__all__ = ["ConvParams", "Options", "fully_connected_passes", "matmul_params", "plan_convolution", "plan_matmul"]

EXCHANGE = frozenset({"input_exchange", "weight_exchange", "partial_exchange"})
EXACT = frozenset({"scattered"})
SLIC_BUFFER = 208  # bytes that the field buffer of the 1x4 window kernel needs beside its copy of the partials


def plan_convolution(params: ConvParams, target: Target, options: Options | None = None) -> Plan:
    """Plan one convolution, memoised on its shapes; only the static half of the target decides.

    Backward passes are convolutions of their own (`ConvParams.backward`, `ConvParams.weight_update`). The plan's
    `detail` is the chosen `Split`.
    """
    options = options or Options()
    return conv_plan(params, target.machine, options)


def plan_matmul(
    m: int,
    k: int,
    n: int,
    target: Target,
    groups: int = 1,
    data: str = "half",
    output: str = "",
    options: Options | None = None,
) -> Plan:
    """Plan ``[groups, m, k] x [groups, k, n]`` as the convolution that PopLibs makes of it."""
    options = options or Options("none_matmul")
    return conv_plan(matmul_params(m, k, n, groups, data, output or data), target.machine, options)


@functools.lru_cache(maxsize=4096)
def conv_plan(params: ConvParams, machine: Machine, options: Options) -> Plan:
    return as_plan(params, conv_search.plan(params, machine, options), machine, options)


def frozen_plan(params: ConvParams, plan: Plan, machine: Machine, options: Options) -> Plan:
    """Another size of a planned convolution, split over the tiles as `plan` splits it."""
    return as_plan(params, conv_search.at_size(params, plan.detail, machine, options), machine, options)


@functools.lru_cache(maxsize=1024)
def fully_connected_passes(
    batch: int, inputs: int, outputs: int, groups: int, data: str, machine: Machine
) -> tuple[Plan, Plan, Plan]:
    """Forward, backward and weight update of a dense layer, by the cheaper of joint and separate planning."""
    shapes = ((batch, inputs, outputs), (batch, outputs, inputs), (inputs, batch, outputs))
    params = [matmul_params(*shape, groups, data, data) for shape in shapes]
    options = [Options(pass_) for pass_ in PASSES]
    splits = [conv_search.plan(p, machine, o) for p, o in zip(params, options, strict=True)]
    joint = plan_joint(*params, machine, options[0])
    together = joint is not None and sum(s.cycles for s in joint) < sum(s.cycles for s in splits)
    chosen = joint if joint is not None and together else splits
    forward, backward, update = (
        as_plan(p, s, machine, o, joint=together) for p, s, o in zip(params, chosen, options, strict=True)
    )
    scattered = scattered_cycles(chosen[0], together, machine)
    backward = dataclasses.replace(backward, quantities={**backward.quantities, "scattered": scattered})
    return forward, backward, update


def scattered_cycles(forward: Split, joint: bool, machine: Machine) -> float:
    """Tile cycles of transposing element by element the weights that form no block for the fast transpose.

    Dot products keep weights as long rows. The fast transpose takes halves in groups of 16 rows; other rows, and
    floats, take the slow one, a worker alone: 2 bundles an element (float) or 2.5 (half). A joint plan transposes where
    the weights lie, a separate one spreads them over all tiles.
    """
    if forward.vertex.method != "hmac":
        return 0.0
    p = forward.problem.params
    rows = cdiv(p.out[-1], forward.field[-1])
    loose, bundles = (1.0, 2.0) if p.data == "float" else (rows % 16 / rows, 2.5)
    here = forward.tile["inputs"] / forward.out_parallel
    elements = here if joint else p.out[-1] * p.in_channels * p.groups / machine.tiles
    return machine.workers * bundles * loose * elements


def as_plan(params: ConvParams, split: Split, machine: Machine, options: Options, joint: bool = False) -> Plan:
    """The plan of a chosen split, with its priced quantities; the passes of a `joint` plan share the weights' order."""
    tile, psz, size = split.tile, SIZES[split.vertex.partials], SIZES[params.data]
    return Plan(
        "conv",
        _quantities(params, split, machine, options, joint),
        EXCHANGE,
        exact=EXACT,
        method=split.vertex.method,
        tiles=split.tiles,
        temporary_bytes=split.temp,
        interleaved_bytes=interleaved_bytes(split),
        tile_bytes={
            "inputs": tile["inputs"] * size,
            "weights": tile["weights"] * size,
            "partials": tile["partials"] * psz,
            "moved": tile["moved_operands"] + tile["moved_output"],
        },
        detail=split,
    )


def _quantities(params: ConvParams, split: Split, machine: Machine, options: Options, joint: bool) -> dict[str, float]:
    """The priced quantities of a split.

    The planner charges an exchange of partial results even where nothing is added up; the program has none there. The
    weight update also pays for bringing the activations into the order that it reads them in.
    """
    terms, depth, tile = split.terms, split.depth, split.tile
    psz = SIZES[split.vertex.partials]
    partial = tile["partials"] * psz / 4 * (depth - 1) / depth + tile["later_partials"] * psz / 4 if depth > 1 else 0.0
    activations = 0.0
    if options.pass_ in ("training_wu", "fc_training_wu"):
        elements = math.prod(params.field) * params.batch * params.in_channels * params.groups
        activations = elements * SIZES[params.data] / machine.tiles
    operands = tile["moved_operands"] - (activations if options.pass_ == "training_wu" else 0.0)
    return {
        "compute": terms["compute"],
        "reduce": terms["reduce"],
        "cast": terms["cast"],
        "input_exchange": terms["input_exchange"],
        "weight_exchange": terms["weight_exchange"],
        "partial_exchange": partial,
        "moved_operands": max(0.0, operands),
        "moved_outputs": tile["moved_output"],
        "regrouped": tile["moved_regrouped_output"],
        "activations": activations,
        "tile_padding": terms["tile_transform"],
        "serial": terms["serial"],
        # an outer product of vectors needs no rearrangement
        "passes": float(split.vertex.method != "outer"),
        "grouped": float(options.matmul and params.groups > 1),
        "reduce_stages": float(stage_count(depth)),
        "weight_transposes": float(options.pass_.endswith("_bwd") and not joint),
        "scattered": 0.0,
        "paddings": float(_padded(split)),
    }


def interleaved_bytes(split: Split) -> float:
    """Bytes of partials that the vertex needs in interleaved memory; the window kernel adds a copy and a buffer."""
    partials = split.tile["partials"] * SIZES[split.vertex.partials]
    return {"amp": partials, "slic": 2 * partials + SLIC_BUFFER}.get(split.vertex.method, 0.0)


def received_bytes(plan: Plan) -> float:
    """Temporary bytes of the fullest tile less the operands' shares that already lie there."""
    split, held = plan.detail, plan.tile_bytes
    here = held["weights"] / (math.prod(split.field) * split.batch) + held["inputs"] / split.out_parallel
    return max(0.0, plan.temporary_bytes - here)


def _padded(split: Split) -> bool:
    """Whether half channels are padded to whole groups: zeros and parts of words are then copied in between."""
    p, v = split.problem.params, split.vertex
    return v.data == "half" and (p.in_channels % v.ipg != 0 or p.out_channels % v.opg != 0)


def scaled_add(elements: int, machine: Machine, data: str = "half") -> Plan:
    """``a*X + b*Y`` written over X, spread evenly: a weight update, or the beta term of a gemm."""
    vector = machine.vector_bytes // SIZES[data]
    share = cdiv(cdiv(cdiv(elements, machine.tiles), vector), machine.workers)
    return Plan("conv", {"scaled_add": 46.0 + 6 * (23 + 3 * share)}, method="scaled_add", tiles=machine.tiles)
