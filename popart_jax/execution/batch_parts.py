"""Batch serialisation as it runs: operators that treat the elements of a batch independently compute part after part.

So results between them exist for one part at a time. What is the same for all of the batch (a loss, say) comes between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
from jax import lax

from ..lowering.arrival import after
from ..lowering.interpreter import Settings, evaluate
from ..lowering.resolve import find, has_effect, needs


@dataclass(frozen=True)
class BatchParts:
    """How the batch is cut."""

    factor: int  # number of parts
    # the dimension to cut of each tensor that exists in parts: streams, and results of operators that take parts
    axes: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]  # the shapes of these tensors as wholes
    # a part starts when the one before has ended. Otherwise each operator computes all parts before the next one.
    in_turn: bool

    @cached_property
    def cut(self) -> frozenset[str]:
        """Names of the tensors that exist in parts."""
        return frozenset(self.axes)


def values_in_parts(
    parts: BatchParts | None, graph: ir.Graph, bound: Mapping[str, Any], want: Sequence[str], settings: Settings
) -> dict[str, Any]:
    """What `evaluate` finds, computed in parts where the operators allow it."""
    if parts is None or any(_acts(node, settings) for node in graph):
        return evaluate(graph, bound, want, settings)
    phases = _phases(parts, graph, bound, want)
    known = dict(bound)
    small = _of_one_part(parts, graph)
    for number, phase in enumerate(phases):
        later = {v for other in phases[number + 1 :] for node in other for v in needs(node)}
        made = [v for node in phase for v in node.outputs if v.name]
        results = [v.name or "" for v in made if v in later or v.name in want]
        if phase and all(o.name in parts.cut for o in phase[0].outputs):
            known |= _part_by_part(parts, small, phase, known, results, settings)
        else:
            known |= evaluate(graph, known, results, settings)
    return evaluate(graph, known, want, settings)


def _acts(node: ir.Node, settings: Settings) -> bool:
    """Whether parts would do more than the whole: effects, and results whose size depends on data."""
    row = find(node, settings.opsets, popart=True)
    return has_effect(node) or (row is not None and row.takes_fill)


def _phases(parts: BatchParts, graph: ir.Graph, bound: Mapping[str, Any], want: Sequence[str]) -> list[list[ir.Node]]:
    """The nodes that are needed: by turns some that compute the whole, and some that compute parts."""
    needed = set(want)
    order: list[ir.Node] = []
    for node in reversed(graph):
        if any(o.name in needed and o.name not in bound for o in node.outputs):
            needed.update(v.name or "" for v in needs(node))
            order.append(node)
    found: dict[ir.Node, int] = {}
    for node in reversed(order):
        in_parts = all(o.name in parts.cut for o in node.outputs)
        sources = (v.producer() for v in needs(node) if v.name not in bound)
        first = max((found[n] for n in sources if n is not None and n in found), default=0)
        found[node] = first if first % 2 == in_parts else first + 1
    last = max(found.values(), default=-1)
    return [[node for node, phase in found.items() if phase == number] for number in range(last + 1)]


def _part_by_part(
    parts: BatchParts,
    graph: ir.Graph,
    phase: Sequence[ir.Node],
    known: Mapping[str, Any],
    results: Sequence[str],
    settings: Settings,
) -> dict[str, Any]:
    read = {v.name or "" for node in phase for v in needs(node)} & known.keys()
    cut = sorted(read & parts.cut)
    inputs = {n: known[n] for n in read - parts.cut}
    of_parts = [
        replace(
            settings,
            key=_folded(settings.key, part),
            rounding=_folded(settings.rounding, part),
            probes={n: _part_of(parts, n, x, part) for n, x in settings.probes.items() if n in parts.cut},
        )
        for part in range(parts.factor)
    ]
    found = [{n: _part_of(parts, n, known[n], part) for n in cut} for part in range(parts.factor)]
    if parts.in_turn:
        last: list[Any] = []
        for own, given in zip(of_parts, found, strict=True):
            values = after(list(given.values()), last) if last else given.values()
            given |= evaluate(graph, {**inputs, **dict(zip(given, values, strict=True))}, results, own)
            last = [given[n] for n in results]
    else:
        for node in phase:
            made = [o.name for o in node.outputs if o.name]
            for own, given in zip(of_parts, found, strict=True):
                given |= evaluate(graph, {**inputs, **given}, made, own)
    return {n: jnp.concatenate([one[n] for one in found], parts.axes[n]) for n in results}


def _folded(key: Any, part: int) -> Any:
    return None if key is None else jax.random.fold_in(key, part)


def _part_of(parts: BatchParts, name: str, whole: Any, part: int) -> Any:
    axis = parts.axes[name]
    size = jnp.shape(whole)[axis] // parts.factor
    return lax.slice_in_dim(jnp.asarray(whole), part * size, (part + 1) * size, axis=axis)


def _of_one_part(parts: BatchParts, graph: ir.Graph) -> ir.Graph:
    """The graph for one part: shapes that are written in it are those of a part."""
    small = graph.clone(allow_outer_scope_values=True)
    for node in [n for n in small if n.op_type == "Reshape" and n.outputs[0].name in parts.cut]:
        name = node.outputs[0].name or ""
        shape = [d // (parts.factor if i == parts.axes[name] else 1) for i, d in enumerate(parts.shapes[name])]
        if "shape" in node.attributes:
            node.attributes["shape"] = ir.AttrInt64s("shape", shape)
        else:
            value = ir.Value(name=f"{name}__partShape", const_value=ir.tensor(np.asarray(shape, np.int64)))
            small.register_initializer(value)
            node.replace_input_with(1, value)
    return small
