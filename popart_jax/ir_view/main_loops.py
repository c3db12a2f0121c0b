"""Explicit main loops: the step as a Loop over batches around a Loop over micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from . import nodes
from .facts import IrFacts

LOOP = "loop_subgraph"


def add_main_loops(graph: ir.Graph, facts: IrFacts, numbers: Iterator[int]) -> None:
    """Move ops into loop bodies: those of every micro-batch into the inner loop, everything into the outer one."""
    options = facts.options
    if not options.main_loops:
        return
    micro_batches = options.accumulation_factor if options.accumulate else 1
    if micro_batches > 1:
        _wrap(graph, [n for n in graph if n.meta.get(nodes.CONTEXT) != nodes.OUTER], micro_batches, next(numbers))
    if options.batches > 1:
        _wrap(graph, list(graph), options.batches, next(numbers))


def _wrap(graph: ir.Graph, members: Sequence[ir.Node], trips: int, number: int) -> None:
    """Replace `members` by one Loop that runs them `trips` times."""
    inside = set(members)
    captured = list(dict.fromkeys(v for n in members for v in n.inputs if v is not None and v.producer() not in inside))
    results = [o for n in members for o in n.outputs if any(r not in inside for r in o.consumers())]
    following = next((n for n in graph if n not in inside), None)
    graph.remove(members)
    iteration = nodes.tensor(f"Iterator___{number}", dtype=ir.DataType.INT32, shape=())
    condition = nodes.tensor(f"LoopCond___{number}", dtype=ir.DataType.BOOL, shape=())
    inner = [nodes.tensor(v.name or "", v) for v in captured]
    for old, new in zip(captured, inner, strict=True):
        new.meta.update(old.meta)
        for use in [u for u in old.uses() if u.node in inside]:
            use.node.replace_input_with(use.idx, new)
    outer = [nodes.tensor(o.name or "", o) for o in results]
    for old, new in zip(results, outer, strict=True):
        for use in [u for u in old.uses() if u.node not in inside]:
            use.node.replace_input_with(use.idx, new)
    body = ir.Graph([iteration, condition, *inner], [condition, *results], nodes=members, name=f"{LOOP}({number})")
    counts = [
        nodes.constant(f"ConstValue___tripCount_{number}", trips), nodes.constant(f"ConstValue___always_{number}", True)
    ]  # fmt: skip
    loop = nodes.make(
        "Loop", [*counts, *captured], outer, domain="", attributes={"body": body, "tripCountValue": trips}
    )
    if following is None:
        graph.append(loop)
    else:
        graph.insert_before(following, loop)
