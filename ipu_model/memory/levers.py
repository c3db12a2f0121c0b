"""What would make a program fit, and by how much: each lever is the same program swept or priced once more."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ipu_model.costs import rules
from ipu_model.memory.code import code_by_tile
from ipu_model.memory.liveness import Change, Liveness, sweep
from ipu_model.placement import Argument, NodePlacement, Placement
from ipu_model.pricing import Priced
from ipu_model.report.model import Lever, Report
from ipu_model.walk.program import Op

Again = Callable[..., Report]
RECOMPUTED_GROUPS = 3


def levers(report: Report, priced: Priced, inputs: Sequence[Argument], again: Again) -> tuple[Lever, ...]:
    """Every lever that frees memory on the fullest tile, those that are enough alone first."""
    tiles, has = report.memory.tiles_per_ipu, report.memory.bytes_per_tile
    fixed = sum(code_by_tile(priced, tiles)[0].values())

    def worst(live: Liveness) -> int:
        return int((live.always + live.peak + fixed).max())

    before = worst(sweep(priced, tiles))
    found = []
    for change, after in _swept(report, priced, inputs, lambda c: worst(sweep(priced, tiles, c))):
        found.append(_lever(change, before - after, report, has))
    for change, how in _again(report, priced, inputs):
        found.append(_lever(change, report.memory.max_tile - again(**how).memory.max_tile, report, has))
    useful = [lever for lever in found if lever.gain > 0]
    return tuple(sorted(useful, key=lambda lever: (not lever.enough, -lever.gain)))


def _lever(change: str, gain: int, report: Report, has: int) -> Lever:
    return Lever(change, int(gain), report.memory.max_tile - gain <= has)


def _swept(
    report: Report, priced: Priced, inputs: Sequence[Argument], worst: Callable[[Change], int]
) -> Iterator[tuple[str, int]]:
    """Levers that change only what lives when, or how large it is."""
    for label, nodes in _recomputable(report, priced):
        yield f"recomputation of {label}", worst(Change(recompute=nodes))
    at_peak = _smaller_proportion(report, priced)
    if at_peak is not None:
        label, change = at_peak
        yield label, worst(change)
    if any(v.tensor.dtype == "float32" for v in priced.program.values):
        yield "float16 instead of float32", worst(_halved(priced))
    batch = _batch(priced, inputs)
    if batch > 1:
        smaller = _smaller_batch(report, batch)
        after = worst(_scaled_batch(priced, batch, smaller))
        while after > report.memory.bytes_per_tile and smaller > 1:
            smaller //= 2
            after = worst(_scaled_batch(priced, batch, smaller))
        yield f"micro-batch {batch} -> {smaller}", after


def _recomputable(report: Report, priced: Priced) -> Iterator[tuple[str, frozenset[str]]]:
    """Scopes whose activations weigh most at the peak, and all of them together."""
    if not any(s.phase == "backward" for s in report.steps):
        return
    weight: dict[str, float] = defaultdict(float)
    nodes: dict[str, set[str]] = defaultdict(set)
    made = {o: s.scope.node for s in priced.program.steps if s.scope.phase == "forward" for o in s.outputs}
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


def _smaller_proportion(report: Report, priced: Priced) -> tuple[str, Change] | None:
    """A smaller availableMemoryProportion for the operation at the peak."""
    at = report.memory.peak_step
    op: Op = priced.program.steps[at].op
    if op.primitive not in ("dot_general", "conv_general_dilated"):
        return None
    now = op.attributes.available_memory or priced.context.options.available_memory
    less = 0.3 if now > 0.3 else now / 2
    smaller = Op(op.primitive, op.inputs, op.outputs, op.params, op.phase,
                 dataclasses.replace(op.attributes, available_memory=less))  # fmt: skip
    temporary = float(rules()[op.primitive](smaller, priced.context).temporary)

    def of(step: int) -> float:
        same = priced.program.steps[step].op is op
        return temporary if same else float(priced.prices[step].temporary)

    return f"availableMemoryProportion {now:g} -> {less:g} on {report.steps[at].node or op.primitive}", Change(
        temporary=of
    )


def _halved(priced: Priced) -> Change:
    def scale(value: int) -> float:
        return 0.5 if priced.program.values[value].tensor.dtype == "float32" else 1.0

    def temporary(step: int) -> float:
        wide = any(t.dtype == "float32" for t in priced.program.steps[step].op.inputs)
        return float(priced.prices[step].temporary) * (0.5 if wide else 1.0)

    return Change(scale=scale, temporary=temporary)


def _batch(priced: Priced, inputs: Sequence[Argument]) -> int:
    """The micro-batch: the leading size that the data have in common when they reach the tiles; 0 when unclear."""
    program, count = priced.program, Counter()
    for step in program.steps:
        if step.op.primitive == "host_read" and step.op.output.shape:
            count[step.op.output.shape[0]] += 1
    if not count:
        for i, a in zip(program.inputs[-len(program.arguments) :], program.arguments, strict=False):
            shape = program.values[i].tensor.shape
            if a.role == "input" and shape and inputs:
                count[shape[0]] += 1
    return count.most_common(1)[0][0] if count else 0


def _smaller_batch(report: Report, batch: int) -> int:
    """The largest micro-batch that a proportional shrinking of what is not always live allows."""
    m = report.memory
    worst = m.including_gaps_by_tile.index(m.max_tile)
    rest = m.not_always_by_tile[worst]
    share = 1 - (m.max_tile - m.bytes_per_tile) / rest if rest else 0.0
    return max(1, min(batch - 1, int(batch * share)))


def _scaled_batch(priced: Priced, batch: int, smaller: int) -> Change:
    """Sizes of values that hold the batch, shrunk; weights, what has a weight's shape, and temporaries stay."""
    program = priced.program
    weights = {v.tensor.shape for v in program.values if v.role in ("weight", "optimizer_state")}

    def holds(value: int) -> bool:
        v = program.values[value]
        return not v.role and v.tensor.shape not in weights and batch in v.tensor.shape

    share = smaller / batch
    return Change(scale=lambda value: share if holds(value) else 1.0)


def _again(report: Report, priced: Priced, inputs: Sequence[Argument]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Levers that change the program or where it runs."""
    options, placement = priced.context.options, priced.placement
    if not options.outlining:
        yield "outlining", {"options": dataclasses.replace(options, outlining=True)}
    for roles, text in (
        (("optimizer_state",), "optimizer state"),
        (("weight", "optimizer_state"), "weights and optimizer state"),
    ):
        here = [a for a in inputs if a.role == roles[0] and a.location.on_chip]
        if here:
            yield f"{text} in streaming memory", {"inputs": [_off_chip(a) if a.role in roles else a for a in inputs]}
    if options.replicas > 1 and any(a.role == "optimizer_state" and not a.location.sharded for a in inputs):
        yield "optimizer state sharded over the replicas", {"inputs": [_sharded(a) for a in inputs]}
    wider = _more_ipus(priced, 2 * max(1, placement.ipus))
    if wider is not None:
        yield f"{wider.ipus} IPUs instead of {max(1, placement.ipus)}", {"placement": wider}


def _off_chip(a: Argument) -> Argument:
    return dataclasses.replace(a, location=dataclasses.replace(a.location, on_chip=False))


def _sharded(a: Argument) -> Argument:
    return dataclasses.replace(a, location=dataclasses.replace(a.location, sharded=a.role == "optimizer_state"))


def _more_ipus(priced: Priced, ipus: int) -> Placement | None:
    """The forward nodes in order, cut into parts of equal memory."""
    bytes_of: dict[str, float] = {}
    for step in priced.program.steps:
        node = step.scope.node
        if node and step.scope.phase == "forward":
            held = [priced.program.values[i] for i in step.inputs if i >= 0]
            data = sum(v.tensor.nbytes for v in held if v.role == "weight") + sum(t.nbytes for t in step.op.outputs)
            bytes_of[node] = bytes_of.get(node, 0.0) + data
    if len(bytes_of) < ipus:
        return None
    total, so_far, nodes = sum(bytes_of.values()), 0.0, {}
    for node, n in bytes_of.items():
        known = priced.placement.nodes.get(node, NodePlacement())
        nodes[node] = dataclasses.replace(known, ipu=min(ipus - 1, int(so_far / total * ipus)), stage=None)
        so_far += n
    return Placement(nodes, ipus, priced.placement.pipelined)
