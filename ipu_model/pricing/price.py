"""Every step of a program with its price: one rule call per distinct operation."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax.numpy as jnp

from ipu_model.checks import check_kind
from ipu_model.cost import ZERO, Cost, Number
from ipu_model.costs import Context, OpCost, Rule, Superstep, rules
from ipu_model.costs import default as default_rule
from ipu_model.costs.rule import superstep_cost
from ipu_model.placement import Placement
from ipu_model.pricing.fusion import IN_PLACE, fused_into, summed_halves, use_counts
from ipu_model.pricing.layouts import Layouts
from ipu_model.pricing.merging import merge_collectives
from ipu_model.pricing.placing import ipus_of, transfers
from ipu_model.walk.program import Op, Program, Step

TRANSFERS = frozenset(("host_read", "host_write", "remote_read", "remote_write"))


@dataclass(frozen=True)
class Priced:
    """A program with prices; sequences run parallel to ``program.steps``."""

    program: Program
    context: Context
    placement: Placement
    prices: tuple[OpCost, ...]
    extras: dict[int, tuple[Superstep, ...]]  # what layouts and placement add before a step
    costs: tuple[Cost, ...]  # one run of the step, extras included
    trips: tuple[float, ...]  # runs per run of the program; 0 in branches that are not the most expensive one
    ipus: tuple[int, ...]
    homes: tuple[int, ...]
    into: tuple[int, ...]  # the step into whose vertex this one is fused, or -1
    uses: tuple[int, ...]
    unpriced: Counter[str]  # primitives without a rule, and how many equations have them
    assumptions: tuple[str, ...]  # assumptions about what the program does not say, such as trip counts

    @property
    def recomputed(self) -> frozenset[str]:
        """Nodes whose results are computed again for the backward pass, as their placement asks."""
        return _recomputed(self.context, self.placement)

    @cached_property
    def makers(self) -> dict[int, int]:
        """The step that makes each value, for values that a step makes."""
        return {value: at for at, step in enumerate(self.program.steps) for value in step.outputs}

    @property
    def total(self) -> Cost:
        """All steps, all trips, one after another."""
        counted: dict[int, tuple[Cost, float]] = {}
        for cost, trips in zip(self.costs, self.trips, strict=True):
            before = counted.get(id(cost), (cost, 0.0))
            counted[id(cost)] = (cost, before[1] + trips)
        total = ZERO
        for cost, trips in counted.values():
            total = total + cost * trips
        return total


def price(
    program: Program, context: Context, placement: Placement, rule_of: Callable[[str], Rule] | None = None
) -> Priced:
    """Price all steps; `rule_of` gives the rule of a primitive, for models that bring rules of their own."""
    training = any(s.scope.phase == "backward" for s in program.steps)
    context = replace(context, training=training)
    op_prices, unpriced = _op_prices(program, context, rule_of or known_rule)
    counting = control_price(context)
    prices = [counting if is_control(s) else op_prices[id(s.op)] for s in program.steps]
    uses = use_counts(program)
    if context.options.fuse_elementwise:
        _sum_halves(program, prices, uses, context, rule_of or known_rule)
    into = fused_into(program, prices, uses) if context.options.fuse_elementwise else [-1] * len(prices)
    step_ipus, homes = ipus_of(program, placement)
    if context.options.merge_collectives:
        merge_collectives(program, prices, step_ipus, context)
    extras = _extras(program, prices, context, step_ipus, homes, placement)
    costs = _costs(program, prices, extras, into, context)
    again = _recomputed(context, placement)
    trips = _trips_taken(program, costs)
    steps = zip(trips, program.steps, strict=True)
    trips = [n * 2 if s.unit in again and s.scope.phase == "forward" else n for n, s in steps]
    said = _said(program, placement, again)
    return Priced(
        program, context, placement, tuple(prices), extras, tuple(costs), tuple(trips), tuple(step_ipus), tuple(homes),
        tuple(into), tuple(uses), unpriced, (*program.assumptions, *said),
    )  # fmt: skip


def _said(program: Program, placement: Placement, again: frozenset[str]) -> Iterator[str]:
    """What is assumed about a priced program beside what its walk assumes."""
    if placement.nodes and program.steps and placement.nodes.keys().isdisjoint(s.unit for s in program.steps):
        names = reprlib.repr(sorted(placement.nodes))
        yield f"none of the nodes of the placement is in the program: {names}; it has {program.steps[0].unit!r}"
    if again:
        yield f"{len(again)} node(s) are recomputed for the backward pass, counted twice"
    calls = [s.op for s in program.steps if s.op.primitive in ("pure_callback", "io_callback")]
    checks = [len(c.outputs) == c.output.size == 1 and c.output.dtype == "bool" for c in calls if c.outputs]
    called = len(calls) - sum(checks)
    if called:
        yield f"{called} callback(s) into Python: nothing is counted for them, nor for moving their data"


def _recomputed(context: Context, placement: Placement) -> frozenset[str]:
    if not context.training:
        return frozenset()
    return frozenset(name for name, node in placement.nodes.items() if node.recompute)


def _sum_halves(
    program: Program, prices: list[OpCost], uses: list[int], context: Context, rule_of: Callable[[str], Rule]
) -> None:
    """Price reductions as reading half data directly where their operand is only a cast of it, in place."""
    seen: dict[tuple[Any, ...], OpCost] = {}
    for cast, (at, op) in summed_halves(program, uses).items():
        key = (id(program.steps[at].op), op.inputs[0])
        if key not in seen:
            seen[key] = rule_of(op.primitive)(op, context.narrowed(op.attributes.io_tiles))
        prices[cast], prices[at] = IN_PLACE, seen[key]


def known_rule(primitive: str) -> Rule:
    """The registered rule of a primitive, or the stated default."""
    return rules().get(primitive, default_rule.price)


def is_control(step: Step) -> bool:
    """Whether a step belongs to the control program, such as a loop counter: integer scalars outside all nodes."""
    op = step.op
    if step.scope.node or not op.outputs or op.primitive in TRANSFERS:
        return False
    sources = () if op.primitive == "loop_slice" else op.inputs
    return all(t.size == 1 and not t.floating for t in (*sources, *op.outputs))


def control_price(context: Context) -> OpCost:
    """Counters are part of the control program: one supervisor instruction sequence, no vertex."""
    step = Superstep("Control", context.target.supervisor_cycles, settled=True)
    return OpCost((step,), layout="linear")


def _op_prices(
    program: Program, context: Context, rule_of: Callable[[str], Rule]
) -> tuple[dict[int, OpCost], Counter[str]]:
    found: dict[int, OpCost] = {}
    unpriced: Counter[str] = Counter()
    compute, io = context.narrowed(on_io=False), context.narrowed(on_io=True)
    for step in program.steps:
        op: Op = step.op
        known = found.get(id(op))
        if known is None:
            known = _ruled(rule_of(op.primitive), op, io if op.attributes.io_tiles else compute)
            if op.attributes.io_tiles and context.options.io_tiles:
                known = _on_io_tiles(known, op, io, context.tiles)
            found[id(op)] = known
        if not known.known:
            unpriced[op.primitive] += 1
    return found, unpriced


def _ruled(rule: Rule, op: Op, context: Context) -> OpCost:
    """What a rule says, which may be a plug-in's."""
    try:
        known: Any = rule(op, context)
    except Exception as err:
        err.add_note(f"in the cost rule of {op.primitive!r} for {', '.join(map(str, op.inputs))}: {rule}")
        raise
    check_kind(f"what the cost rule of {op.primitive!r} gives", known, OpCost, "an ipu_model.costs.OpCost")
    return known


def _on_io_tiles(price_: OpCost, op: Op, io: Context, first: int) -> OpCost:
    """Results on the IO tiles, which come after those for compute."""
    spreads = price_.outputs or tuple(io.spread(t) for t in op.outputs)
    return replace(price_, outputs=tuple(replace(s, first=first) for s in spreads))


def _extras(
    program: Program, prices: list[OpCost], ctx: Context, step_ipus: list[int], homes: list[int], placement: Placement
) -> dict[int, tuple[Superstep, ...]]:
    """Supersteps that layouts and placement add; prices are stretched in place where the mapping is uneven."""
    layouts = Layouts(program)
    extras: dict[int, tuple[Superstep, ...]] = {}
    arriving = transfers(program, step_ipus, homes) if placement.ipus > 1 else {}
    rate = ctx.target.link_rate / ctx.target.clock_hz
    for at, step in enumerate(program.steps):
        prices[at] = layouts.stretched(step, prices[at])
        extra = layouts.visit(step, prices[at], ctx)
        if at in arriving:
            extra = (Superstep("GlobalExchange", inter_ipu=arriving[at] / rate, received=float(arriving[at])), *extra)
        if extra:
            extras[at] = extra
    return extras


def _costs(
    program: Program, prices: list[OpCost], extras: dict[int, tuple[Superstep, ...]], into: list[int], ctx: Context
) -> list[Cost]:
    """Cost of one run of each step; equal steps share one object."""
    memo: dict[tuple[Any, ...], Cost] = {}
    costs: list[Cost] = []
    for at, price_ in enumerate(prices):
        key = (id(price_), into[at] >= 0, extras.get(at, ()))
        cost = memo.get(key) if _hashable(key) else None
        if cost is None:
            cost = _fused_cost(price_) if into[at] >= 0 else ctx.cost(price_)
            for s in extras.get(at, ()):
                cost = cost + superstep_cost(s, ctx.target)
            if _hashable(key):
                memo[key] = cost
        costs.append(cost)
    return costs


def _hashable(key: tuple[Any, ...]) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _fused_cost(price_: OpCost) -> Cost:
    """A step inside another's vertex: its loop, without launch and sync."""
    return Cost(compute=sum(s.compute - s.overhead for s in price_.supersteps), flops=price_.flops)


def _trips_taken(program: Program, costs: list[Cost]) -> list[float]:
    """Trips of each step with only the most expensive branch of each conditional counted."""
    factor: list[Number] = [1.0] * len(program.frames)
    for group in program.branches:
        for f, chosen in zip(group, _largest([_frame_cycles(program, costs, f) for f in group]), strict=True):
            factor[f] = chosen
    for at, frame in enumerate(program.frames):
        if frame.parent >= 0:
            factor[at] *= factor[frame.parent]
    return [program.frames[s.frame].total * factor[s.frame] for s in program.steps]


def _largest(prices: list[Number]) -> list[Number]:
    """A one-hot list of the first largest price; prices may be traced."""
    if all(isinstance(p, (int, float)) for p in prices):
        best = prices.index(max(prices))
        return [float(k == best) for k in range(len(prices))]
    best = jnp.argmax(jnp.stack([jnp.asarray(p, float) for p in prices]))
    return [jnp.where(best == k, 1.0, 0.0) for k in range(len(prices))]


def _frame_cycles(program: Program, costs: list[Cost], frame: int) -> Number:
    f = program.frames[frame]
    return sum(costs[at].total * program.frames[program.steps[at].frame].total for at in range(f.begin, f.end))
