"""``profile``: what the IPU model says of each node, beside the time XLA takes for it here."""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir
from rich.console import Console
from rich.progress import track
from rich.table import Table

from . import feeds

_ROUNDS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    feeds.add_arguments(parser)
    parser.add_argument("--target", default="mk2", help="mk1, mk2, bow or a registered target (default mk2)")
    parser.add_argument("--top", type=int, default=20, help="how many nodes to show (default 20)")


def run(options: argparse.Namespace) -> int:
    """Show modelled IPU cycles and measured time of the most expensive nodes."""
    import jax

    import ipu_model

    from ..lowering import Settings, evaluate
    from ..lowering.resolve import check_supported, label
    from ..model.load import load

    model = load(options.model)
    graph, settings = model.graph, Settings(dict(model.opset_imports))
    check_supported(graph, model.opset_imports)
    given = feeds.feeds(graph, options)
    outputs = [v.name or "" for v in graph.outputs]
    report = ipu_model.profile(lambda inputs: evaluate(graph, inputs, outputs, settings), given, target=options.target)
    modelled: dict[str, float] = defaultdict(float)
    for row in report.operations:
        modelled[_node_name(row.node)] += row.cycles.total
    produced = [v.name for node in graph for v in node.outputs if v.name]
    values = {**given, **evaluate(graph, given, produced, settings)}
    measured = {}
    for node in track(list(graph), "timing nodes", console=Console(stderr=True)):
        names = [v.name for v in node.outputs if v.name]
        operands = {v.name: values[v.name] for v in node.inputs if v is not None and v.name in values}
        call = jax.jit(lambda x, want=names: evaluate(graph, x, want, settings))
        measured[label(node)] = _seconds(call, operands)
    _show(report, graph, modelled, measured, options.top, label)
    return 0


def _node_name(node: str) -> str:
    return node.removeprefix("onnx[").removesuffix("]")


def _seconds(call: Callable[..., Any], operands: Mapping[str, Any]) -> float:
    import jax

    jax.block_until_ready(call(operands))
    times = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        jax.block_until_ready(call(operands))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _show(
    report: Any, graph: ir.Graph, modelled: Mapping[str, float], measured: Mapping[str, float], top: int, label: Any
) -> None:
    console = Console()
    table = Table("node", "operator", "IPU cycles", "share", "XLA here [us]")
    total = sum(modelled.values()) or 1.0
    nodes = sorted(graph, key=lambda n: -modelled.get(label(n), 0.0))
    for node in nodes[:top]:
        name = label(node)
        cycles = modelled.get(name, 0.0)
        table.add_row(name, node.op_type, f"{cycles:,.0f}", f"{cycles / total:.1%}", f"{measured[name] * 1e6:,.1f}")
    console.print(table)
    console.print(
        f"{len(nodes)} nodes; modelled: {report.schedule.cycles:,.0f} cycles, {report.schedule.seconds * 1e6:,.1f} us on the IPU; "
        f"each node on its own takes {sum(measured.values()) * 1e6:,.1f} us here in all"
    )
