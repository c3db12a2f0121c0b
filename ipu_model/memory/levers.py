"""Levers that would make a program fit: for each, the memory of the changed program is computed and compared."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ipu_model.memory.batch import STATE, Smaller, micro_batch, with_roles
from ipu_model.memory.liveness import Change
from ipu_model.memory.replan import Fullest
from ipu_model.memory.together import Again, Part, Resized, together
from ipu_model.placement import Argument, NodePlacement, Placement
from ipu_model.pricing import Priced
from ipu_model.report.model import Document, Lever
from ipu_model.walk.program import PRODUCTS, Op, Tensor, tensor

RECOMPUTED_GROUPS = 3
MOST_IPUS = 16


def levers(
    report: Document, priced: Priced, inputs: Sequence[Argument], again: Again
) -> tuple[tuple[Lever, ...], Lever | None]:
    """Every lever that frees memory on the fullest tile, those that are enough alone first, and several together.

    The latter are for a program that only more IPUs, or no lever at all, make fit.
    """
    fullest, before, has = Fullest(priced), report.memory.max_tile, report.memory.bytes_per_tile
    found = list(_swept_levers(report, priced, fullest))
    found += _repriced_levers(priced, with_roles(priced.program, inputs), again)
    found += _more_ipus(report, priced, again)
    useful = [Lever(p.change, before - p.after, p.after <= has) for p in found if p.after < before]
    several, here = None, [p for p in found if p.kind != "placement"]
    if not any(p.after <= has for p in here):
        several = together(here, priced, again, before, has)
    if not several and not any(lever.enough for lever in useful):
        several = together(found, priced, again, before, has)
    return tuple(sorted(useful, key=lambda lever: (not lever.enough, -lever.gain))), several


def _swept_levers(report: Document, priced: Priced, fullest: Fullest) -> Iterator[Part]:
    """Levers that change only liveness, sizes or the plans of single operations: the liveness sweep is repeated."""
    for label, nodes in _recomputable(report, priced):
        after = fullest(Change(recompute=nodes))
        yield Part(f"recomputation of {label}", after, "recomputation", recompute=nodes)
    yield from _smaller_proportion(report, priced, fullest)
    if any(v.tensor.dtype == "float32" for v in priced.program.values):
        after = fullest.replanned(*_halved(priced))
        yield Part("float16 instead of float32", after, "type", resized=_halved)
    batch = micro_batch(priced)
    if batch > 1:
        yield _smaller_batch(report, priced, batch, fullest)


def _recomputable(report: Document, priced: Priced) -> Iterator[tuple[str, frozenset[str]]]:
    """Scopes whose activations weigh most at the peak, and all of them together."""
    if not any(s.phase == "backward" for s in report.steps):
        return
    weight: dict[str, float] = defaultdict(float)
    nodes: dict[str, set[str]] = defaultdict(set)
    made = {o: s.unit for s in priced.program.steps if s.scope.phase == "forward" for o in s.outputs}
    peak, values = report.memory.peak_step, priced.program.values
    last: dict[int, int] = {}
    for at, s in enumerate(priced.program.steps):
        for i in s.inputs:
            last[i] = at
    for value, node in made.items():
        if node and last.get(value, -1) >= peak:
            group = _group(node)
            weight[group] += values[value].tensor.nbytes
            nodes[group].add(node)
    for group in sorted(weight, key=lambda g: -weight[g])[:RECOMPUTED_GROUPS]:
        yield group, frozenset(nodes[group])
    if len(weight) > 1:
        yield "every node", frozenset(n for members in nodes.values() for n in members)


def _group(node: str) -> str:
    head, _, rest = node.rpartition("/")
    return head if head.strip("/") and rest else node


def _smaller_proportion(report: Document, priced: Priced, fullest: Fullest) -> Iterator[Part]:
    """A smaller availableMemoryProportion for the node at the peak."""
    at = report.memory.peak_step
    step = priced.program.steps[at]
    op, node = step.op, step.unit
    if op.primitive not in PRODUCTS or not node:
        return
    now = op.attributes.available_memory or priced.context.options.available_memory
    less = 0.3 if now > 0.3 else now / 2

    def changed(other: Op) -> Op:
        return dataclasses.replace(other, attributes=dataclasses.replace(other.attributes, available_memory=less))

    yield Part(f"availableMemoryProportion {now:g} -> {less:g} on {node}", fullest.replanned(changed, node=node))


def _in_half(op: Op) -> Op:
    def half(t: Tensor) -> Tensor:
        return tensor(t.shape, "float16") if t.dtype == "float32" else t

    return dataclasses.replace(op, inputs=tuple(map(half, op.inputs)), outputs=tuple(map(half, op.outputs)))


def _halved(priced: Priced) -> Resized:
    values = priced.program.values
    return _in_half, lambda value: 0.5 if values[value].tensor.dtype == "float32" else 1.0


def _with_batch(batch: int, smaller: int, priced: Priced) -> Resized:
    shrunk = Smaller(priced, batch, smaller)
    return shrunk.op, shrunk.scale


def _smaller_batch(report: Document, priced: Priced, batch: int, fullest: Fullest) -> Part:
    """A divisor of the micro-batch that fits, from what a proportional shrinking of what is not always live allows."""
    m = report.memory
    rest = m.not_always_by_tile[m.fullest]
    share = 1 - (m.max_tile - m.bytes_per_tile) / rest if rest else 0.0
    smaller = max(1, min(batch - 1, int(batch * share)))
    while True:
        smaller = next(n for n in range(smaller, 0, -1) if batch % n == 0)
        resized = partial(_with_batch, batch, smaller)
        after = fullest.replanned(*resized(priced))
        if after <= m.bytes_per_tile or smaller == 1:
            return Part(f"micro-batch {batch} -> {smaller}", after, "batch", resized=resized)
        smaller //= 2


def _repriced_levers(priced: Priced, inputs: Sequence[Argument], again: Again) -> Iterator[Part]:
    """Levers that change the program or the location of its variables: the program is priced again."""
    for change, how in _changes(priced, inputs):
        yield Part(change, Fullest(again(**how))(), next(iter(how)), how)


def _changes(priced: Priced, inputs: Sequence[Argument]) -> Iterator[tuple[str, dict[str, Any]]]:
    options = priced.context.options
    if not options.outlining:
        yield "outlining", {"options": dataclasses.replace(options, outlining=True)}
    resting = {a.role for a in inputs if a.location.on_chip}
    everything = "weights and optimizer state" if STATE[1] in resting else "weights"
    for roles, text in ((STATE[1:], "optimizer state"), (STATE, everything)):
        if roles[0] in resting:
            yield f"{text} in streaming memory", {"inputs": [_off_chip(a) if a.role in roles else a for a in inputs]}
    if options.replicas > 1 and any(a.role == "optimizer_state" and not a.location.sharded for a in inputs):
        yield "optimizer state sharded over the replicas", {"inputs": [_sharded(a) for a in inputs]}


def _off_chip(a: Argument) -> Argument:
    return dataclasses.replace(a, location=dataclasses.replace(a.location, on_chip=False))


def _sharded(a: Argument) -> Argument:
    return dataclasses.replace(a, location=dataclasses.replace(a.location, sharded=a.role == "optimizer_state"))


def _more_ipus(report: Document, priced: Priced, again: Again) -> Iterator[Part]:
    """Twice the IPUs, and twice again while that helps and is not enough."""
    now, best = max(1, priced.placement.ipus), report.memory.max_tile
    ipus = 2 * now
    while ipus <= MOST_IPUS:
        wider = _spread_over(priced, ipus)
        if wider is None:
            return
        after = Fullest(again(placement=wider))()
        yield Part(f"{ipus} IPUs instead of {now}", after, "placement", {"placement": wider})
        if after <= report.memory.bytes_per_tile or after >= best:
            return
        best, ipus = after, 2 * ipus


def _spread_over(priced: Priced, ipus: int) -> Placement | None:
    """The forward nodes in order, cut into parts of equal memory."""
    bytes_of: dict[str, float] = {}
    for step in priced.program.steps:
        node = step.scope.unit  # a line of code may make all layers
        if node and step.scope.phase == "forward":
            held = [priced.program.values[i] for i in step.inputs if i >= 0]
            data = sum(v.tensor.nbytes for v in held if v.role == "weight") + sum(t.nbytes for t in step.op.outputs)
            bytes_of[node] = bytes_of.get(node, 0.0) + data
    if len(bytes_of) < ipus:
        return None
    total, so_far = sum(bytes_of.values()), 0.0
    nodes: dict[str, NodePlacement] = {}
    for node, n in bytes_of.items():
        known = priced.placement.nodes.get(node, NodePlacement())
        nodes[node] = dataclasses.replace(known, ipu=min(ipus - 1, int(so_far / total * ipus)), stage=None)
        so_far += n
    return Placement(nodes, ipus, priced.placement.pipelined)
