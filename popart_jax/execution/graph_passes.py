"""The place between patterns and lowering: layout and kernel passes on a program's own copy of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..lowering.passes import channels_last, compiler_options, untranspose_weights
from .micro import GRADIENT
from .program import Program


@dataclass(frozen=True)
class LaidOut:
    """A program ready for XLA, and the compiler options for its graph."""

    program: Program
    options: Mapping[str, str]


def lay_out(program: Program, platform: str, *, hoist: bool) -> LaidOut:
    """Choose layouts for a platform; the given program and its graph stay as they are.

    With `hoist`, weights are fixed and what follows from them alone costs nothing at run time.
    """
    graph = program.graph.clone(allow_outer_scope_values=True)
    channels_last(graph, _protected(program))
    if hoist:
        untranspose_weights(graph)
    options = compiler_options(program.graph, training=program.training is not None, platform=platform)
    return LaidOut(replace(program, graph=graph), options)


def _protected(program: Program) -> frozenset[str]:
    shown = {a.source for a in program.anchors}
    keep = shown | {s.removeprefix(GRADIENT) for s in shown} | set(program.copies.values())
    if program.training is not None:
        keep.add(program.training.loss)
        if program.training.scaling is not None:
            keep |= set(program.training.scaling.tracked)
    return frozenset(keep)
