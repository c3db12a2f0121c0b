"""Placement of steps and values on IPUs, and the copies between IPUs that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ipu_model.placement import Placement
from ipu_model.walk.program import Program


def ipus_of(program: Program, placement: Placement) -> tuple[list[int], list[int]]:
    """IPU of each step and home IPU of each value.

    Placed nodes say it themselves; an argument lives with its first placed reader; everything else (the optimizer,
    glue between nodes) follows its operands, and what has none that is placed (a moment that decays) its readers.
    """
    home = [-1] * len(program.values)
    if placement.ipus <= 1:
        return [0] * len(program.steps), [0] * len(home)
    for step in program.steps:
        if step.unit in placement.nodes:
            ipu = placement.nodes[step.unit].ipu
            for i in step.inputs:
                if i >= 0 and home[i] < 0 and program.values[i].role:
                    home[i] = ipu
            for o in step.outputs:
                home[o] = ipu
    where: list[int] = []
    for step in program.steps:
        placed = placement.nodes.get(step.unit)
        where.append(placed.ipu if placed else _home_of(step.inputs, home))
        _settle((*step.inputs, *step.outputs), where[-1], home)
    for at, step in reversed([*enumerate(program.steps)]):
        if where[at] < 0:
            where[at] = _home_of(step.outputs, home)
            _settle(step.inputs, where[at], home)
    last = placement.ipus - 1
    return [min(last, max(0, ipu)) for ipu in where], [min(last, max(0, h)) for h in home]


def _home_of(values: Iterable[int], home: Sequence[int]) -> int:
    return next((home[i] for i in values if i >= 0 and home[i] >= 0), -1)


def _settle(values: Iterable[int], ipu: int, home: list[int]) -> None:
    """Values without a home live on `ipu`, if that is one."""
    for i in values:
        if i >= 0 and home[i] < 0:
            home[i] = ipu


def transfers(program: Program, step_ipu: list[int], home: list[int]) -> dict[int, int]:
    """Bytes that must arrive from another IPU before a step, each value once per destination."""
    arrived: set[tuple[int, int]] = set()
    needed: dict[int, int] = {}
    for at, (step, ipu) in enumerate(zip(program.steps, step_ipu, strict=True)):
        for i in step.inputs:
            if i >= 0 and home[i] != ipu and (i, ipu) not in arrived and program.values[i].on_device:
                arrived.add((i, ipu))
                needed[at] = needed.get(at, 0) + program.values[i].tensor.nbytes
    return needed
