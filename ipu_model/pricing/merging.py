"""Merging of collectives of one kind: the gradients of an IPU share one collective and pay its latency once."""

from __future__ import annotations

from dataclasses import replace

from ipu_model.costs import Context, OpCost
from ipu_model.costs.collectives import MERGED, latency
from ipu_model.walk import Program


def merge_collectives(program: Program, prices: list[OpCost], ipus: list[int], context: Context) -> None:
    """Remove the latency of all but the first collective of each merged kind, phase and IPU, in place."""
    merged = {primitive for kind in context.options.merge_collectives for primitive in MERGED[kind]}
    seen: set[tuple[str, str, int]] = set()
    behind: dict[int, OpCost] = {}
    for at, step in enumerate(program.steps):
        kind = step.op.primitive
        if kind not in merged or not prices[at].supersteps:
            continue
        key = (kind, step.scope.phase, ipus[at])
        if key in seen:
            prices[at] = behind.setdefault(id(step.op), _behind(prices[at], latency(step.op, context)))
        seen.add(key)


def _behind(price: OpCost, way: float) -> OpCost:
    first, *rest = price.supersteps
    return replace(price, supersteps=(replace(first, inter_ipu=first.inter_ipu - way), *rest))
