"""Modelled beside measured: what each node of a model costs on an IPU by the model, and takes here by the clock.

``python -m popart_jax profile FILE.onnx`` prints the table.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import onnx_ir as ir
from rich.progress import track
from rich.table import Column, Table

import ipu_model

from ._compat.jax import Tracer
from .lowering.interpreter import Settings, evaluate
from .lowering.resolve import check_supported, label
from .model.extract import ensure_outputs
from .model.load import ModelLike, load
from .ops.kernels import plain_operators


@dataclass(frozen=True)
class Row:
    """One node: cycles and time by the IPU model, time of its jitted translation alone on this machine."""

    node: str
    op: str
    cycles: float
    modelled_us: float
    measured_us: float | None


def profile_model(
    model: ModelLike, inputs: Mapping[str, np.ndarray], *, target: str = "mk2", repeats: int = 5
) -> tuple[list[Row], ipu_model.Report]:
    """Price a model's forward pass on an IPU and time each of its nodes here.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or onnx_ir.Model
    inputs : mapping of str to ndarray
        Values of its inputs.
    target : str
        Name of the IPU.
    repeats : int
        Timings of each node; the median counts.

    Raises
    ------
    popart_exception
        Operators without a translation, or a node that fails on these inputs.
    """
    loaded = load(model)
    ensure_outputs(loaded)
    graph, opsets = loaded.graph, dict(loaded.opset_imports)
    check_supported(graph, opsets)
    settings = Settings(opsets)
    weights = {k: v.const_value.numpy() for k, v in graph.initializers.items() if v.const_value is not None}
    floats = {k: jax.numpy.asarray(w) for k, w in weights.items() if w.dtype.kind == "f"}
    fed = {k: jax.numpy.asarray(x) for k, x in inputs.items()}
    outputs = [v.name for v in graph.outputs if v.name]
    with plain_operators():
        traced = jax.make_jaxpr(lambda bound: evaluate(graph, bound, outputs, settings))({**floats, **fed})
    report = ipu_model.profile_jaxpr(traced, target=target)
    priced: dict[str, float] = {}
    for row in report.operations:
        priced[row.node] = priced.get(row.node, 0.0) + row.cycles.total
    chip = ipu_model.get_target(target)
    timed = measure_nodes(graph, {**floats, **fed}, settings, repeats)
    rows = []
    for node in graph:
        cycles = priced.get(label(node), 0.0)
        rows.append(Row(label(node), node.op_type, cycles, chip.seconds(cycles) * 1e6, timed.get(label(node))))
    return rows, report


def measure_nodes(graph: ir.Graph, bound: dict[str, Any], settings: Settings, repeats: int) -> dict[str, float]:
    """Median time [us] of each node alone, jitted, on its real operands; nodes that fold away are left out."""
    every = [v.name for node in graph for v in node.outputs if v.name]
    values = {**bound, **evaluate(graph, bound, every, settings)}
    times = {}
    for node in track(list(graph), "timing nodes", transient=True):
        read = [v.name for v in node.inputs if v is not None and v.name]
        operands = {name: values[name] for name in read if _is_device(values.get(name))}
        names = [v.name for v in node.outputs if v.name]
        if operands and names and all(_is_device(values[n]) for n in names):
            times[label(node)] = _time(graph, operands, names, settings, repeats)
    return times


def _is_device(x: Any) -> bool:
    return isinstance(x, jax.Array) and not isinstance(x, Tracer)


def _time(graph: ir.Graph, operands: dict[Any, Any], names: list[str], settings: Settings, repeats: int) -> float:
    call = jax.jit(lambda bound: evaluate(graph, bound, names, settings))
    jax.block_until_ready(call(operands))
    samples = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(call(operands))
        samples.append(time.perf_counter() - started)
    return statistics.median(samples) * 1e6


def show(rows: Sequence[Row], top: int) -> Table:
    """The costliest nodes by modelled cycles."""
    table = Table(
        Column("node", overflow="fold"),
        "operator",
        "IPU cycles",
        "IPU (us)",
        "here (us)",
        title="modelled beside measured",
    )
    for row in sorted(rows, key=lambda r: -r.cycles)[:top]:
        measured = "" if row.measured_us is None else f"{row.measured_us:.1f}"
        table.add_row(row.node, row.op, f"{row.cycles:,.0f}", f"{row.modelled_us:.2f}", measured)
    total, here = sum(r.modelled_us for r in rows), sum(r.measured_us or 0 for r in rows)
    table.add_row(f"all {len(rows)} nodes", "", f"{sum(r.cycles for r in rows):,.0f}", f"{total:.2f}", f"{here:.1f}")
    return table
