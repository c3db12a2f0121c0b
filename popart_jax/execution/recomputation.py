"""The forward pass in segments, each computed again in the backward pass but for the tensors that are kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import jax
import onnx_ir as ir

from .._compat.jax import Tracer
from ..lowering import op_trace
from ..lowering.interpreter import Settings, evaluate
from ..lowering.resolve import find, has_effect, needs
from ..model.checks.structure import every_node
from ..ops.kernels import IPU, platform
from .program import Program

PRINT = "PrintTensor"


def forward_values(
    program: Program, bound: Mapping[str, Any], want: Sequence[str], settings: Settings
) -> dict[str, Any]:
    """What `evaluate` finds, where the backward pass keeps the program's saved tensors alone if it has a list of them.

    The backward pass computes one segment after the other again, so that the results of one at a time are in memory.
    An operator whose gradient needs its own result, kept or not, runs again too (a property of `jax.checkpoint`).

    Not on the CPU: XLA:CPU drops the barriers and merges both computations. 16 products with tanh and a checkpoint at
    every fourth took 177 MB in place of 143. Nor where a step that runs prints: `jax.checkpoint` takes no such calls.
    """
    saved = None if program.training is None else program.training.saved
    if saved is None or platform() == "cpu" or (platform() != IPU and _prints(program.graph)):
        return evaluate(program.graph, bound, want, settings)
    known = dict(bound)
    printed = [o.name for node in program.graph if node.op_type == PRINT for o in node.outputs if o.name]
    want = list(dict.fromkeys([*want, *printed]))  # what is known does not print again
    for results in _segments(program, frozenset(saved), want, known):
        known |= _segment(program, known, results, settings, saved)
    return evaluate(program.graph, known, want, settings)


def _prints(graph: ir.Graph) -> bool:
    return op_trace.asked_for() or any(node.op_type == PRINT for node in every_node(graph))


def _segment(
    program: Program, known: Mapping[str, Any], results: Sequence[str], settings: Settings, saved: Sequence[str]
) -> dict[str, Any]:
    """Some tensors, given others; what is known while tracing stays so."""
    fixed: dict[str, Any] = {}
    marking = replace(settings, saved=frozenset(saved))

    def traced() -> dict[str, Any]:
        found = evaluate(program.graph, known, results, marking)
        moves = {n: x for n, x in found.items() if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(x))}
        fixed.update((n, x) for n, x in found.items() if n not in moves)
        return moves

    policy = jax.checkpoint_policies.save_only_these_names(*saved)
    return cast("dict[str, Any]", jax.checkpoint(traced, policy=policy)()) | fixed


def _segments(
    program: Program, saved: Collection[str], want: Sequence[str], bound: Collection[str]
) -> list[tuple[str, ...]]:
    """Results of each segment that are wanted or read later. One ends where all that is read later is kept."""
    order = [n for n in program.graph if not all(o.name in bound for o in n.outputs)]
    rows = (find(node, program.opsets, popart=True) for node in order)
    writes = any(has_effect(n) and n.op_type != PRINT for n in order)
    if writes or any(row is not None and row.takes_fill for row in rows):
        return [tuple(want)]  # storages, and results whose size depends on data, do not pass from one to another
    last = {value: place for place, node in enumerate(order) for value in needs(node)}
    found: list[tuple[str, ...]] = []
    alive: set[ir.Value] = set()
    inside: list[str] = []
    for place, node in enumerate(order):
        alive = {v for v in (*alive, *node.outputs) if last.get(v, -1) > place}
        inside += [o.name for o in node.outputs if o.name and o.name in want]
        starts = place + 1 < len(order) and any(o.name not in saved for o in order[place + 1].outputs)
        if starts and all(v.name in saved for v in alive):
            found.append(tuple(dict.fromkeys((*inside, *(v.name or "" for v in alive)))))
            inside = []
    return [*found, tuple(inside)]
