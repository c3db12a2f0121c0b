"""Chains of elementwise operations of one node that become one vertex."""

from __future__ import annotations

from dataclasses import replace

from ipu_model.costs.reduction import REDUCTIONS
from ipu_model.costs.rule import OpCost
from ipu_model.walk.program import Op, Program

IN_PLACE = OpCost(view=True, layout="keep")


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


def summed_halves(program: Program, uses: list[int]) -> dict[int, tuple[int, Op]]:
    """Casts of half data that only a reduction reads: by step, the reduction's step and its operation on the half data.

    The library accumulates halves in fp32 inside its reduction; in the jaxpr the cast is a separate equation before it.
    """
    made: dict[int, int] = {}
    found: dict[int, tuple[int, Op]] = {}
    for at, step in enumerate(program.steps):
        op = step.op
        if op.primitive == "convert_element_type" and op.inputs[0].half and op.output.dtype == "float32":
            made[step.outputs[0]] = at
        source = made.get(step.inputs[0], -1) if op.primitive in REDUCTIONS else -1
        if source >= 0 and uses[step.inputs[0]] == 1 and program.steps[source].frame == step.frame:
            halves = program.steps[source].op.inputs[0]
            found[source] = (at, replace(op, inputs=(halves, *op.inputs[1:])))
    return found


def fused_into(program: Program, prices: list[OpCost], uses: list[int]) -> list[int]:
    """For each step the step that it is fused into, or -1.

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
