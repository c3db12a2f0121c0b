"""Roofline cost model of machines other than IPUs: the one that runs JAX here, or one with published figures.

It uses the same entry point group as the IPUs (``popart_jax.targets``), the same walk and the same report, so that
modelled and measured time, or an IPU and a GPU, can be compared. A cycle of its report is a nanosecond, its one tile is
the whole memory of the device.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp

from ipu_model import target as targets
from ipu_model.checks import check_finite, check_sizes
from ipu_model.costs import Context, OpCost, Rule, Superstep, elementwise, rules
from ipu_model.costs.complex_parts import real_operations
from ipu_model.costs.layout import MARKS, VIEWS
from ipu_model.options import ModelOptions
from ipu_model.placement import Argument, Placement
from ipu_model.pricing import price
from ipu_model.report.report import Report
from ipu_model.walk import Op, walk
from ipu_model.walk.program import PRODUCTS

FREE = frozenset((*VIEWS, *MARKS))
REAL_TYPES = {"complex64": "float32", "complex128": "float64"}
SLOW = {
    "exp": 10,
    "log": 10,
    "tanh": 15,
    "logistic": 12,
    "erf": 15,
    "sin": 15,
    "cos": 15,
    "pow": 20,
    "div": 4,
    "rsqrt": 4,
}


@dataclass(frozen=True)
class Level:
    """A level of the memory hierarchy: capacity [bytes] and bandwidth [bytes/s]."""

    holds: int
    bytes_per_second: float

    def __post_init__(self) -> None:
        check_sizes("Level", holds=self.holds)
        check_finite("Level", 0, bytes_per_second=self.bytes_per_second)


@dataclass(frozen=True)
class Roofline:
    """Time of an operation: the longer of its arithmetic at peak rate and its memory traffic at full bandwidth."""

    name: str
    # peak rate of products and convolutions, measured or published: by operand type, or one for all types
    flops_per_second: float | Mapping[str, float]
    bytes_per_second: float  # bandwidth of the device's memory
    launch_seconds: float  # time of launching a program
    memory_bytes: int  # memory of the device
    vector_flops_per_second: float | None = None  # peak rate of all other arithmetic; that of products by default
    # caches, the smallest first. An operation whose operands and results fit into a level moves them at its rate,
    # weights and inputs included
    levels: tuple[Level, ...] = ()

    def __post_init__(self) -> None:
        what = f"roofline {self.name!r}"
        rates = {"bytes_per_second": self.bytes_per_second}
        if isinstance(self.flops_per_second, Mapping):
            rates |= {f"flops_per_second[{dtype!r}]": rate for dtype, rate in self.flops_per_second.items()}
        else:
            rates["flops_per_second"] = self.flops_per_second
        if self.vector_flops_per_second is not None:
            rates["vector_flops_per_second"] = self.vector_flops_per_second
        check_finite(what, 0, **rates)
        check_finite(what, launch_seconds=self.launch_seconds)
        check_sizes(what, memory_bytes=self.memory_bytes)

    def profile_jaxpr(
        self, jaxpr: Any, *, placement: Placement, options: ModelOptions, inputs: Sequence[Argument] = (),
        outputs: Sequence[Argument] = (),
    ) -> Report:  # fmt: skip
        """Price a jaxpr on this machine."""
        from ipu_model.profiling import report_of, why_too_large

        program = walk(
            jaxpr, is_leaf=rules().__contains__, placement=placement, options=options, inputs=inputs, outputs=outputs
        )
        priced = price(program, Context(self.chip(), options), placement, self.rule_of)
        return why_too_large(self._with_launch(report_of(priced)), priced, inputs)

    def _with_launch(self, report: Report) -> Report:
        """The report with the launch time added, and with the peak rate of this machine."""
        rates = self.flops_per_second
        peak = max(rates.values()) if isinstance(rates, Mapping) else rates
        before, seconds = report.schedule, report.schedule.seconds + self.launch_seconds
        schedule = dataclasses.replace(
            before, cycles=before.cycles + self.launch_seconds * 1e9, seconds=seconds,
            samples_per_second=before.samples_per_second * before.seconds / seconds if seconds else 0.0,
        )  # fmt: skip
        said = report.assumptions
        if self.launch_seconds:
            said = (
                *said,
                f"a launch of {self.launch_seconds * 1e6:,g} µs is in the time of a run, and in no operation",
            )
        return dataclasses.replace(
            report, schedule=schedule, target={**report.target, "peakFlops": peak}, assumptions=said
        )

    def chip(self) -> targets.Target:
        """The machine as a chip of one tile with a clock of 1 GHz, no sync and no exchange."""
        none = dict.fromkeys(("sync_cycles", "exchange_setup_cycles", "external_sync_cycles", "supervisor_cycles"), 0.0)
        return dataclasses.replace(
            targets.get("mk2"), name=self.name, architecture="roofline", clock_hz=1e9,
            machine=dataclasses.replace(
                targets.get("mk2").machine, tiles=1, tile_memory=self.memory_bytes, interleaved_start=0,
                usable_tile_memory=self.memory_bytes,
            ),
            host_in_bytes_per_second=self.bytes_per_second, host_out_bytes_per_second=self.bytes_per_second, **none,
        )  # fmt: skip

    def rule_of(self, primitive: str) -> Rule:
        """The cost rule of a primitive: views are free, all others follow the roofline."""
        return _free if primitive in FREE or primitive in ("transpose", "rev") else self.roofline

    def roofline(self, op: Op, ctx: Context) -> OpCost:
        """``max(flops / peak, bytes / bandwidth)``; inside a fusion only the arithmetic is left."""
        work = flops(op)
        moved = sum(t.nbytes for t in (*op.inputs, *op.outputs))
        arithmetic, traffic = work / self.peak(op) * 1e9, moved / self.bandwidth(moved) * 1e9
        step = Superstep(
            op.primitive, max(arithmetic, traffic), tiles=1, vertices=1, vertex=f"xla::{op.primitive}",
            overhead=max(arithmetic, traffic) - arithmetic, settled=True,
        )  # fmt: skip
        return OpCost((step,), flops=work, elementwise=op.primitive in elementwise.RULES, layout="keep")

    def peak(self, op: Op) -> float:
        """FLOP/s of an operation: of its operands' type for products, of the vector units for the rest.

        Raises ValueError for a product of a type that the machine has no figure for.
        """
        if op.primitive not in PRODUCTS:
            return self.vector_flops_per_second or self._products("float32")
        return self._products(op.inputs[0].dtype)

    def _products(self, dtype: str) -> float:
        if not isinstance(self.flops_per_second, Mapping):
            return self.flops_per_second
        dtype = REAL_TYPES.get(dtype, dtype)
        if dtype not in self.flops_per_second:
            raise ValueError(
                f"{self.name}: no peak rate of {dtype} products; known are {sorted(self.flops_per_second)}"
            )
        return self.flops_per_second[dtype]

    def bandwidth(self, moved: int) -> float:
        """Bytes/s of the smallest level of memory that holds so many bytes; the device's memory holds any number."""
        return next((level.bytes_per_second for level in self.levels if moved <= level.holds), self.bytes_per_second)


def from_figures(data: Mapping[str, Any]) -> Roofline:
    """A machine from a table of published figures, each with its unit and source; see `ipu_model/targets/a100.json`."""
    fields = {f.name: f.default is dataclasses.MISSING for f in dataclasses.fields(Roofline) if f.name != "name"}
    needed = {name for name, is_needed in fields.items() if is_needed}
    figures = targets.values_of(f"roofline {data['name']!r}", data["constants"], needed, fields.keys() - needed)
    levels = tuple(Level(int(holds), float(rate)) for holds, rate in figures.pop("levels", ()))
    return Roofline(data["name"], levels=levels, **figures)


def flops(op: Op) -> float:
    """Floating point operations of an equation on real numbers; transcendental functions count as several."""
    out = sum(t.size for t in op.outputs)
    pairs = math.prod(t.parts for t in op.inputs[:2])  # of the parts of two factors
    if op.primitive == "dot_general":
        contracted: tuple[int, ...] = op.params["dimension_numbers"][0][0]
        return 2.0 * out * pairs * math.prod(op.inputs[0].shape[d] for d in contracted)
    if op.primitive == "conv_general_dilated":
        spec: tuple[int, ...] = op.params["dimension_numbers"].rhs_spec
        return 2.0 * out * pairs * math.prod(op.inputs[1].shape[d] for d in spec[1:])
    if op.primitive in elementwise.RULES:
        if all(t.parts == 1 for t in op.inputs):
            return float(out * SLOW.get(op.primitive, 1))
        names, _ = real_operations(op.primitive, max(op.inputs, key=lambda t: t.parts))
        return float(out * sum(SLOW.get(name, 1) for name in names))
    return float(sum(t.size * t.parts for t in op.inputs))


def _free(op: Op, ctx: Context) -> OpCost:
    return OpCost(view=bool(op.inputs), layout="keep")


def _squared(a: jax.Array) -> jax.Array:
    return a @ a


def _one_more(a: jax.Array) -> jax.Array:
    return a + 1.0


@functools.cache
def this_machine() -> Roofline:
    """The machine that JAX runs on, measured once per process (less than a second)."""
    device = cast("list[Any]", jax.devices())[0]
    matrix = jnp.ones((1024, 1024), jnp.float32)
    vector = jnp.ones((16 * 1024 * 1024,), jnp.float32)
    product = _seconds(jax.jit(_squared), matrix)
    copy = _seconds(jax.jit(_one_more), vector)
    launch = _seconds(jax.jit(_one_more), jnp.ones(()))
    return Roofline(
        f"roofline_{device.platform}", 2 * 1024**3 / product, 2 * vector.nbytes / copy, launch, _memory(device)
    )


def _seconds(fn: Callable[[Any], Any], argument: Any, repeats: int = 7) -> float:
    """Shortest of a few calls, the first one left out."""
    jax.block_until_ready(fn(argument))
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(fn(argument))
        best = min(best, time.perf_counter() - start)
    return best


def _memory(device: Any) -> int:
    stats = device.memory_stats() if hasattr(device, "memory_stats") else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
