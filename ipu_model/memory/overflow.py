"""Explains a program that does not fit, and computes what each lever would free by pricing the program again."""

from __future__ import annotations

import dataclasses
from typing import Any

from ipu_model.report.model import Lever, Overflow, Report

ALWAYS = ("weights", "optimizer state", "inputs", "constants", "code, vertices and stack")


def explain(report: Report, jaxpr, target, placement, options, inputs, outputs, levers: bool = True) -> Report:
    """The report with its `overflow` filled in."""
    m = report.memory
    parts = dict(m.peak_parts)
    always = {k: parts.pop(k) for k in ALWAYS if k in parts}
    worst = m.including_gaps_by_tile.index(m.max_tile)
    step = report.steps[m.peak_step] if report.steps else None
    found = _levers(report, jaxpr, target, placement, options, inputs, outputs) if levers else ()
    overflow = Overflow(
        tile=worst % m.tiles_per_ipu,
        ipu=worst // m.tiles_per_ipu,
        needs=m.max_tile,
        has=m.bytes_per_tile,
        at=(step.node or step.name) if step else "the start",
        phase=step.phase if step else "forward",
        always=always,
        not_always=parts,
        levers=found,
    )
    return dataclasses.replace(report, overflow=overflow)


def _levers(report: Report, jaxpr, target, placement, options, inputs, outputs) -> tuple[Lever, ...]:
    """Each lever priced: the program with that one change."""
    from ipu_model.profile import profile_jaxpr

    def worst(**changes: Any) -> int:
        how = {"placement": placement, "options": options, "inputs": inputs, "outputs": outputs, **changes}
        return profile_jaxpr(jaxpr, target=target, levers=False, **how).memory.max_tile

    found = []
    for change, how in _changes(options, inputs):
        after = worst(**how)
        gain = report.memory.max_tile - after
        if gain > 0:
            found.append(Lever(change, gain, after <= report.memory.bytes_per_tile))
    return tuple(sorted(found, key=lambda lever: (not lever.enough, -lever.gain)))


def _changes(options, inputs):
    replace = dataclasses.replace
    if options.available_memory > 0.3:
        yield (
            f"availableMemoryProportion {options.available_memory:g} -> 0.3",
            {"options": replace(options, available_memory=0.3)},
        )
    if not options.half_arithmetic:
        yield "float16 instead of float32", {"options": replace(options, half_arithmetic=True)}
    if not options.outlining:
        yield "outlining on", {"options": replace(options, outlining=True)}
    states = [a for a in inputs if a.role == "optimizer_state" and a.location.on_chip]
    if states:
        moved = [_off_chip(a) if a.role == "optimizer_state" else a for a in inputs]
        yield "optimizer state in streaming memory", {"inputs": moved}
    weights = [a for a in inputs if a.role == "weight" and a.location.on_chip]
    if weights:
        moved = [_off_chip(a) if a.role in ("weight", "optimizer_state") else a for a in inputs]
        yield "weights and optimizer state in streaming memory", {"inputs": moved}


def _off_chip(argument):
    return dataclasses.replace(argument, location=dataclasses.replace(argument.location, on_chip=False))
