"""Number of passes of a Loop whose condition follows from constants, although its data are known only at run time.

Exported recurrent networks loop ``while time < steps``: the counter and the bound are constants of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from .interpreter import Body, Walk, run
from .resolve import needs
from .static import from_constants, is_static


def passes(node: ir.Node, body: Body, start: Sequence[Any], most: int) -> int | None:
    """Passes of a Loop until its condition turns false, at most `most`; None if that needs run-time values.

    The body's inputs are iteration, condition and carried values, its outputs condition, carried values and scan
    outputs; `start` are the carried values before the first pass.
    """
    carried = _deciding_values(body.graph, len(start))
    if carried is None:
        return None
    values = [_constant(body.walk, node.inputs[2 + j], start[j]) for j in carried]
    outer = {v: _constant(body.walk, v, None) for v in _captured(body.graph, carried)}
    if any(v is None for v in (*values, *outer.values())):
        return None
    inputs, wanted = body.graph.inputs, tuple(body.graph.outputs[j] for j in (0, *(1 + j for j in carried)))
    settings = replace(body.walk.settings, probes={})
    for i in range(most):
        env = {**outer, inputs[0]: np.asarray(i, np.int64), inputs[1]: np.asarray(True)}
        env.update((inputs[2 + j], value) for j, value in zip(carried, values, strict=True))
        walk = Walk(settings, env, body.walk, plans=body.walk.plans)
        run(walk.plans.of(body.graph, wanted, settings.opsets, popart=settings.popart), walk)
        going, *values = (walk.read(v) for v in wanted)
        if not all(is_static(v) for v in (going, *values)):
            return None
        if not np.asarray(going).reshape(()):
            return i + 1
    return most


def _deciding_values(graph: ir.Graph, n_carried: int) -> list[int] | None:
    """Carried values on which the condition of some pass depends; None if the graph lacks a Loop body's inputs."""
    if len(graph.inputs) != n_carried + 2:
        return None
    found: list[int] = []
    reached = ancestors({graph.outputs[0]})
    while True:
        fresh = [j for j in range(n_carried) if j not in found and graph.inputs[2 + j] in reached]
        if not fresh:
            return sorted(found)
        found += fresh
        reached = ancestors({graph.outputs[0], *(graph.outputs[1 + j] for j in found)})


def ancestors(values: set[ir.Value]) -> set[ir.Value]:
    """The values and everything that they are computed from; values of enclosing graphs are included, not followed."""
    graphs = {v.graph for v in values if v.graph is not None}
    seen, pending = set(values), list(values)
    while pending:
        producer = pending.pop().producer()
        if producer is None or producer.graph not in graphs:
            continue
        fresh = [v for v in needs(producer) if v not in seen]
        seen.update(fresh)
        pending += fresh
    return seen


def _captured(graph: ir.Graph, carried: Sequence[int]) -> list[ir.Value]:
    """Values of enclosing graphs that the condition reads."""
    own = {*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)}
    reached = ancestors({graph.outputs[0], *(graph.outputs[1 + j] for j in carried)})
    return [v for v in reached if v not in own]


def _constant(walk: Walk, value: ir.Value | None, held: Any) -> Any:
    """A value as NumPy: itself, or, if it has become a device array, recomputed from the constants behind it."""
    if value is None:
        return held if is_static(held) else None
    held = walk.read(value)
    return held if is_static(held) else from_constants(walk, value)
