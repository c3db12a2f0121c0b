"""Explains why a program does not fit: the terms of its memory demand, and what each lever would free."""

from __future__ import annotations

from collections.abc import Sequence

from ipu_model.memory.levers import levers
from ipu_model.memory.together import Again
from ipu_model.placement import Argument
from ipu_model.pricing import Priced
from ipu_model.report.model import Document, Overflow

ALWAYS = ("weights", "optimizer state", "inputs", "constants", "code, vertices and stack")


def explain(report: Document, priced: Priced, inputs: Sequence[Argument], again: Again | None) -> Overflow:
    """The overflow of a report; `again` prices the program with changes, None leaves the levers out."""
    m = report.memory
    parts = dict(m.peak_parts)
    always = {k: parts.pop(k) for k in ALWAYS if k in parts}
    step = report.steps[m.peak_step] if report.steps else None
    alone, several = levers(report, priced, inputs, again) if again else (None, None)
    return Overflow(
        tile=m.fullest % m.tiles_per_ipu,
        ipu=m.fullest // m.tiles_per_ipu,
        needs=m.max_tile,
        has=m.bytes_per_tile,
        at=step.label if step else "the start",
        phase=step.phase if step else "forward",
        always=always,
        not_always=parts,
        levers=alone,
        together=several,
    )
