"""Rows of the benchmark table: which program they run, and the figure of it that they ask for."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from ipu_model import target as targets
from ipu_model.published import layers, names, octave, pools, reductions, tables, words
from ipu_model.published.benchmark import Benchmark
from ipu_model.published.formula import Formula, known
from ipu_model.target import Machine, Target

Op = Callable[[dict[str, Any], str, Target], Benchmark]
OPS: dict[str, Op] = {
    **layers.OPS,
    **tables.OPS,
    "oct_conv": octave.octave,
    "reduction": reductions.reduction,
    "pooling": pools.pooling,
}
# The library that produced the benchmark table used 8 convolution units wherever partial results are fp32; devices have
# sixteen for fp32 operands, and later libraries use them.
TABLE_UNITS = 8
HALVES = ("fp16", "bf16", "bfloat16", "short", "unsigned short")
KEPT = r"fp16|fp32|any\b|int(32)?\b|unsigned|short"  # precisions that programs have, or that say nothing
PER_STEP = r"(per|/) ?(time ?)?step\b"
PHASES = ("single-phase", "inference-only", "tiles-per-ipu")  # parameters that are read here
BESIDE = ("op", "case", "pass", "params", "note", "caution")  # keys of a configuration that are not parameters


def figure(row: Mapping[str, Any], data: str, target: Target) -> Formula:
    """One of the three figures of a row's program, of some of its passes, a size of it, or whether it fits.

    The row has an ``op`` in its configuration; `data` ("half" or "float") is the type where the parameters name none.
    Raises ValueError where the operation is unknown, a size is missing, or the row asks for a figure or unit that it
    does not have.
    """
    what = row["what"]
    op, implied = names.program(str(row["config"]["op"]))
    if op not in OPS:
        raise ValueError(f"no benchmark program {op!r}; there are {', '.join(sorted(OPS))}")
    params = _parameters(row, op, implied)
    type_ = params.get("data-type", params.get("type"))
    if type_ is not None:
        data = (
            "half" if names.precision(str(type_)) in HALVES else "float"
        )  # four-byte integers are moved as floats are
    machine = _machine(op, params, target)
    size = words.size_asked_for(what)
    parts = _parts(op, "" if size else what, params)
    try:
        if size is not None:
            limit = words.largest_that_fits(
                size, params, lambda p: _fits(_program(op, p, parts, data, machine)[0], target)
            )
            return known(limit)
        benchmark, unread = _program(op, params, parts, data, machine)
    except KeyError as missing:
        raise ValueError(f"{op} needs {missing.args[0]!r} in its params; got {sorted(params)}") from missing
    if "outcome" in row["unit"]:
        return known(_fits(benchmark, target))
    counted = _counted(benchmark.figure(what, row["unit"], machine.tiles), op, params, data)
    found = _per_step(counted, f"{what} {row['unit']}", params)
    return dataclasses.replace(found, assumed=(*found.assumed, *_assumed(str(type_ or row["precision"]), data, unread)))


def _assumed(precision: str, data: str, unread: frozenset[str]) -> list[str]:
    """What is not as the row says: types that the programs do not have, and parameters that they do not read."""
    left = sorted(unread.difference(("pass", "phase", "data-type", "type", *PHASES)))
    kept = not precision or bool(re.match(KEPT, names.precision(precision)))
    return [
        *([] if kept else [f"{'half' if data == 'half' else 'single'} precision in place of {precision}"]),
        *([f"no effect of {', '.join(left)}"] if left else []),
    ]


def _parameters(row: Mapping[str, Any], op: str, implied: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a row's program under their own names, with what other entries of the row say of it."""
    config = row["config"]
    beside = {k: v for k, v in config.items() if k not in BESIDE}
    given = {**beside, **words.parameters(config.get("params") or {})}
    params = {**implied, **names.flags(given, op)}
    if names.has_half_partials(row["precision"]):
        params.setdefault("partials-type", "half")
    if op == "gemm" and isinstance(sizes := params.get("shape", params.get("size")), list):
        params |= zip(names.SIZES, cast("list[Any]", sizes), strict=False)
    # the pass decides what runs but is recorded beside the parameters; layers run all passes unless the figure is that
    # of one pass
    params |= {"pass": str(config.get("pass", ""))}
    if re.search(r"\btrain", row["what"].lower()):
        params.setdefault("phase", "all")
    return params


def _machine(op: str, params: Mapping[str, Any], target: Target) -> Machine:
    """The chip as the library of the table used it, with the tiles that the parameters allow."""
    machine = target.machine
    # products of triangular solves agree with the plans of the chip's own units
    if op != "matrix_solver" or tables.flag(params, "cholesky", False):
        machine = dataclasses.replace(machine, units_float=TABLE_UNITS)
    if params.get("tiles-per-ipu"):
        machine = dataclasses.replace(machine, tiles=int(params["tiles-per-ipu"]))
    return machine


def _parts(op: str, what: str, params: Mapping[str, Any]) -> tuple[int, ...]:
    """Which passes a figure is of: those of its words or of flags, else those that ran; empty where none is named."""
    patterns = tables.PART_WORDS.get(op, words.PASS_WORDS)
    texts = (f"{what} {_phase(params)}", str(params["pass"]))
    return next(filter(None, (words.named(text, patterns) for text in texts)), ())


def _phase(params: Mapping[str, Any]) -> str:
    """The only pass that flags of the program let run; empty where they let all."""
    if tables.flag(params, "inference-only", False):
        return "forward"
    return str(params.get("single-phase", params.get("phase", "")))


def _counted(formula: Formula, op: str, params: Mapping[str, Any], data: str) -> Formula:
    """The figure, with what a rate counts: look-ups of a table, else items of the batch, its steps, bytes reduced."""
    if formula.gives != "cycles":
        return formula
    items = float(params["num-indices"] if op == "embedding" else params.get("batch-size", 1))
    steps = items * params.get("sequence-size", 1)
    read = {"byte": float(math.prod(params["shape"]) * tables.SIZES[data])} if op == "reduction" else {}
    return dataclasses.replace(formula, work={"item": items, "token": steps, **read, **formula.work})


def _per_step(formula: Formula, asked: str, params: Mapping[str, Any]) -> Formula:
    """The figure, or that of one step of the sequence where the words ask for it."""
    if not re.search(PER_STEP, asked.lower()) or formula.gives != "cycles":
        return formula
    return formula.shared(params.get("sequence-size", 1))


def _fits(benchmark: Benchmark, target: Target) -> bool:
    """Whether the fullest tile holds its share."""
    if benchmark.max_tile is None:
        raise ValueError("whether a part of a program fits alone is not known")
    return float(benchmark.max_tile(target)) <= target.machine.tile_memory


def _program(
    op: str, params: Mapping[str, Any], parts: tuple[int, ...], data: str, machine: Machine
) -> tuple[Benchmark, frozenset[str]]:
    """The program of a row, and names of parameters that it does not read; rows that ask for other figures share it."""
    return _planned(op, json.dumps(params, sort_keys=True), parts, data, machine)


class _Read(dict[str, Any]):
    """Parameters that remember which of them were read."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__(params)
        self.unread = set(params)

    def __getitem__(self, name: str) -> Any:
        self.unread.discard(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.unread.discard(name)
        return super().get(name, default)


@functools.lru_cache(maxsize=4096)
def _planned(
    op: str, params: str, parts: tuple[int, ...], data: str, machine: Machine
) -> tuple[Benchmark, frozenset[str]]:
    # quantities of a plan depend on the machine alone; its prices come when a formula is evaluated
    chip = targets.get("mk2").replace(machine=machine)
    read = _Read(json.loads(params) | ({"parts": parts} if parts else {}))
    made = OPS[op](read, data, chip)
    return made.on_tiles(machine.tiles), frozenset(read.unread - {"parts"})
