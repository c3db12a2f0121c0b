"""Modelled and measured cost of each node of a model: its cycles on an IPU by the model, and its time here.

``python -m popart_jax profile FILE.onnx`` prints the table.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np
import onnx_ir as ir
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

import ipu_model

from ._compat.jax import Tracer, enable_x64
from .functions.inputs import as_declared
from .lowering.interpreter import Settings, evaluate
from .lowering.resolve import bodies, check_supported, containing, find, label, needs
from .model.extract import ensure_outputs
from .model.files.load import ModelLike, load
from .ops.arrays import is_text
from .ops.kernels import IPU, tracing_for


@dataclass(frozen=True)
class Row:
    """One node: cycles and time by the IPU model, and the measured time of its translation, jitted alone, here."""

    node: str
    op: str
    cycles: float
    modelled_us: float
    measured_us: float | None


def profile_model(
    model: ModelLike, inputs: Mapping[str, np.ndarray], *, target: str = "mk2", repeats: int = 5, measured: bool = True
) -> tuple[list[Row], ipu_model.Report]:
    """Price a model's forward pass on an IPU and, if `measured`, time each of its nodes here: the median of `repeats`.

    Raises popart_exception where the model has operators without a translation, or a node fails on these inputs.
    """
    loaded = load(model)
    ensure_outputs(loaded)
    graph, opsets = loaded.graph, dict(loaded.opset_imports)
    check_supported(graph, opsets)
    settings = Settings(opsets)
    weights = {k: v.const_value.numpy() for k, v in graph.initializers.items() if v.const_value is not None}
    floats = {k: jax.numpy.asarray(w) for k, w in weights.items() if w.dtype.kind == "f"}
    bound = {**floats, **_fed(graph, inputs)}
    report = _modelled(graph, bound, floats.keys(), settings, target)
    priced = _by_node(graph, report)
    per_cycle = report.schedule.seconds / report.total_cycles * 1e6 if report.total_cycles else 0.0
    timed = measure_nodes(graph, bound, settings, repeats) if measured else {}
    return [
        Row(label(node), node.op_type, priced[label(node)], priced[label(node)] * per_cycle, timed.get(label(node)))
        for node in graph
    ], report


def _modelled(
    graph: ir.Graph, bound: dict[str, Any], weights: Collection[str], settings: Settings, target: str
) -> ipu_model.Report:
    outputs = [v.name for v in graph.outputs if v.name]
    with tracing_for(IPU):
        texts = {k: x for k, x in bound.items() if not _is_device(x)}
        numbers = {k: x for k, x in bound.items() if k not in texts}
        traced = jax.make_jaxpr(_computed(graph, texts, outputs, settings))(numbers)
    roles = [ipu_model.Argument(name, "weight" if name in weights else "input") for name in sorted(numbers)]
    options = ipu_model.ModelOptions(name=graph.name or "model")
    operators = {label(n): ipu_model.NodePlacement(operator=n.op_type) for n in graph}
    placement = ipu_model.Placement(operators)
    return ipu_model.profile_jaxpr(traced, target=target, placement=placement, inputs=roles, options=options)


def _fed(graph: ir.Graph, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs as device arrays, 64-bit numbers in the 32 bits of an IPU; texts stay on the host."""
    declared = {v.name: v for v in graph.inputs}
    with enable_x64():
        fed = {k: as_declared(declared.get(k), x) for k, x in inputs.items()}
    return {k: jax.numpy.asarray(np.asarray(x)) if _is_device(x) else x for k, x in fed.items()}


def _numbers(found: Mapping[str, Any]) -> dict[str, Any]:
    """The results that a traced function can return: all but texts."""
    return {k: x for k, x in found.items() if not is_text(x)}


def _computed(
    graph: ir.Graph, texts: Mapping[str, Any], names: Sequence[str], settings: Settings
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function of numbers by name that computes tensors of a graph; `texts` are what else it reads."""
    return lambda numbers: _numbers(evaluate(graph, {**texts, **numbers}, names, settings))


def _by_node(graph: ir.Graph, report: ipu_model.Report) -> Counter[str]:
    """Cycles by node of the main graph; cycles in a branch or body are added to the node that contains it."""
    home = containing(graph)
    found: Counter[str] = Counter()
    for row in report.operations:
        found[home.get(row.node, row.node)] += row.cycles.total  # pyright: ignore[reportArgumentType]
    return found


def measure_nodes(graph: ir.Graph, bound: dict[str, Any], settings: Settings, repeats: int) -> dict[str, float]:
    """Median time [us] of each node alone, jitted, on its real operands; nodes that are folded are omitted.

    Nodes with the same operator, attributes, types and shapes are timed once. NonZero and similar operators are omitted
    too: their result's size is known only when they run, so they can't be compiled alone.
    """
    every = [v.name for node in graph for v in node.outputs if v.name]
    values = {**bound, **evaluate(graph, bound, every, settings)}
    times, alike = dict[str, float](), dict[Any, float]()
    for node in track(list(graph), "timing nodes", transient=True, console=Console(stderr=True)):
        known = {v.name: values[v.name] for v in needs(node) if v.name and v.name in values}
        operands = {name: x for name, x in known.items() if _is_device(x)}
        names = [v.name for v in node.outputs if v.name]
        row = find(node, settings.opsets, popart=True)  # whose Slice has a known size
        if not (row and row.takes_fill) and operands and any(_is_device(values[n]) for n in names):
            folded = {name: x for name, x in known.items() if name not in operands}
            kind = _kind(node, operands, folded)
            if kind is None or kind not in alike:
                times[label(node)] = _time(graph, operands, folded, names, settings, repeats)
            if kind is not None:
                times[label(node)] = alike.setdefault(kind, times.get(label(node), 0.0))
    return times


def _kind(node: ir.Node, operands: Mapping[str, Any], folded: Mapping[str, Any]) -> Any:
    """Key of everything that a node's time depends on; None for nodes with subgraphs, which may read any tensor."""
    if any(True for _ in bodies(node)):
        return None

    def of(value: ir.Value | None) -> Any:
        name = "" if value is None else value.name or ""
        x = operands.get(name)
        if x is not None:
            return str(x.dtype), x.shape
        if name not in folded:
            return None
        known = np.asarray(folded[name])
        return repr(known.tolist()) if known.dtype == object else (known.dtype, known.shape, known.tobytes())

    attributes = tuple(sorted((n, str(a.value)) for n, a in node.attributes.items()))
    return node.domain, node.op_type, node.version, attributes, tuple(map(of, node.inputs)), len(node.outputs)


def measure_whole(model: ModelLike, inputs: Mapping[str, np.ndarray], *, repeats: int = 5) -> float:
    """Median time [us] of the whole model as one program."""
    loaded = load(model)
    graph, settings = loaded.graph, Settings(dict(loaded.opset_imports))
    fed = _fed(graph, inputs)
    texts = {k: x for k, x in fed.items() if not _is_device(x)}
    return _time(
        graph,
        {k: x for k, x in fed.items() if k not in texts},
        texts,
        [v.name for v in graph.outputs if v.name],
        settings,
        repeats,
    )


def _is_device(x: Any) -> bool:
    return isinstance(x, jax.Array) and not isinstance(x, Tracer)


def _time(
    graph: ir.Graph,
    operands: dict[Any, Any],
    folded: dict[Any, Any],
    names: list[str],
    settings: Settings,
    repeats: int,
) -> float:
    call = cast("Callable[..., Any]", jax.jit(_computed(graph, folded, names, settings)))
    jax.block_until_ready(call(operands))
    samples: list[float] = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(call(operands))
        samples.append(time.perf_counter() - started)
    return statistics.median(samples) * 1e6


def worked(rows: Iterable[Row]) -> list[Row]:
    """Rows of nodes that compute something; other nodes are constants, are folded, or only change a view."""
    return [r for r in rows if r.cycles or r.measured_us is not None]


def show(rows: Sequence[Row], top: int, whole_us: float | None = None) -> Table:
    """Table of the nodes with most modelled cycles; `whole_us` is the measured time of the model as one program."""
    table = Table(title="modelled beside measured, each node alone")
    table.add_column("node", overflow="fold")
    table.add_column("operator")
    for heading in ("IPU cycles", "share", "IPU [us]", "here [us]"):
        table.add_column(Text(heading), justify="right")
    busy = worked(rows)
    cycles = sum(r.cycles for r in busy)
    for row in sorted(busy, key=lambda r: -r.cycles)[:top]:
        table.add_row(Text(row.node), row.op, *_figures(row.cycles, cycles, row.modelled_us, row.measured_us))
    table.add_section()
    sums = sum(r.modelled_us for r in busy), sum(r.measured_us or 0.0 for r in busy)
    table.add_row(f"all {len(busy)} nodes that compute, of {len(rows)}", "", *_figures(cycles, cycles, *sums))
    if whole_us is not None:
        table.add_row("as one program", "", "", "", "", f"{whole_us:,.1f}")
    return table


def _figures(cycles: float, of: float, modelled_us: float, measured_us: float | None) -> tuple[str, ...]:
    here = "" if measured_us is None else f"{measured_us:,.1f}"
    return f"{cycles:,.0f}", f"{100 * cycles / of:.1f} %" if of else "", f"{modelled_us:,.2f}", here
