"""Chains of elementwise operations of one node that become one vertex."""

from __future__ import annotations

from ipu_model.costs.rule import OpCost
from ipu_model.walk.program import Program


def use_counts(program: Program) -> list[int]:
    """How often each value is read, outputs and loop carries included."""
    uses = [0] * len(program.values)
    for step in program.steps:
        for i in step.inputs:
            if i >= 0:
                uses[i] += 1
    for i in program.outputs:
        if i >= 0:
            uses[i] += 1
    for c in program.carries:
        uses[c.new] += 1
    return uses


def fused_into(program: Program, prices: list[OpCost], uses: list[int]) -> list[int]:
    """For each step the step whose vertex does its work too, or -1.

    A step joins its consumer when both are elementwise, of one scope, phase and loop, equal in size, and nobody else
    reads the value between them.
    """
    maker: dict[int, int] = {}
    into = [-1] * len(program.steps)
    for at, step in enumerate(program.steps):
        if not prices[at].elementwise or not step.outputs:
            continue
        for i in step.inputs:
            source = maker.get(i, -1)
            if source < 0 or uses[i] != 1:
                continue
            other = program.steps[source]
            same_place = other.frame == step.frame and other.scope is step.scope
            if same_place and other.op.output.size == step.op.output.size:
                into[source] = at
        maker[step.outputs[0]] = at
    return into
