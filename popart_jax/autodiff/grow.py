"""Adds gradient operators to a graph, from its outputs back to its inputs (reverse-mode differentiation).

There are two phases: `plan` lists the gradient operators, in reverse order of the forward nodes; `grow` creates them
one by one and sums the contributions of all readers of a tensor. The caller creates the operators: see `Maker`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import onnx_ir as ir

from ..ops import Gradient
from .reads import forward_reads

NAME = "Gradient___"
"""Prefix of the name of a gradient; the name of its tensor follows."""

_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16})


def is_float(value: ir.Value | None) -> bool:
    """Whether a tensor can have a gradient."""
    return value is not None and value.dtype in _FLOATS


@dataclass
class Step:
    """One planned gradient operator."""

    node: ir.Node  # the forward node
    gradient: Gradient | None  # the gradient's entry in the operator table; None for a node that calls graphs
    of: tuple[int, ...]  # indices of the node's inputs that get a gradient
    # forward tensors that the gradient operator reads
    reads: list[ir.Value | None] = field(default_factory=list[ir.Value | None])
    # tensors of enclosing graphs that graphs called by the node read, and that get a gradient too
    captured: list[ir.Value] = field(default_factory=list[ir.Value])

    @property
    def targets(self) -> list[ir.Value]:
        """The tensors that get a gradient."""
        return [*(v for i in self.of if (v := self.node.inputs[i]) is not None), *self.captured]


def steps_of(node: ir.Node, entries: Iterable[Gradient], needed: Collection[int]) -> list[Step]:
    """The gradient operators of a node that compute the gradient of any of the inputs `needed`."""
    found: list[Step] = []
    for entry in entries:
        groups = [(i,) for i in needed] if entry.of is None else [tuple(i for i in entry.of if i in needed)]
        found += [Step(node, entry, of, forward_reads(node, entry, of[0])) for of in groups if of]
    return found


def plan(
    nodes: Sequence[ir.Node],
    seeded: Iterable[ir.Value],
    steps: Callable[[ir.Node, list[int]], list[Step]],
    required: Iterable[ir.Value] | None = None,
    may_have: Callable[[ir.Value | None], bool] = is_float,
) -> tuple[list[Step], set[ir.Value]]:
    """List the gradient operators of a graph, whose nodes are in order; and the tensors that get a gradient.

    `seeded` are the tensors whose gradient is given; operators that lead to none of the `required` ones (default: all)
    are omitted. ``steps`` returns the gradient operators of a node for the inputs at some positions, as `steps_of`
    does; ``may_have`` says whether a tensor can have a gradient.
    """
    leads = None if required is None else _influenced(nodes, required)
    reached, found = set(seeded), list[Step]()
    for node in reversed(nodes):
        if reached.isdisjoint(node.outputs):
            continue
        needed = [i for i, v in enumerate(node.inputs) if may_have(v) and (leads is None or v in leads)]
        for step in steps(node, needed):
            found.append(step)
            reached.update(step.targets)
    return found, reached


def _influenced(nodes: Iterable[ir.Node], sources: Iterable[ir.Value]) -> set[ir.Value]:
    """The sources, and every tensor that depends on one."""
    found = set(sources)
    for node in nodes:
        if any(v in found for v in node.inputs):
            found.update(node.outputs)
    return found


class Maker(Protocol):
    """Creates gradient operators for a front end."""

    def make(self, step: Step, gradients: Gradients) -> Iterable[tuple[ir.Value, ir.Value]]:
        """Create the operator of a step; returns pairs of a tensor and a contribution to its gradient."""
        ...

    def total(self, value: ir.Value, parts: Sequence[ir.Value]) -> ir.Value:
        """The sum of one or more contributions to the gradient of `value`."""
        ...


class Gradients:
    """Gradients of tensors while operators are added: contributions, and their sums as soon as they are read."""

    def __init__(self, maker: Maker, seeds: Iterable[tuple[ir.Value, ir.Value]]) -> None:
        self._maker = maker
        self._parts: dict[ir.Value, list[ir.Value]] = {}
        self._totals: dict[ir.Value, ir.Value] = {}
        for value, given in seeds:
            self.add(value, given)

    def of(self, value: ir.Value) -> ir.Value | None:
        """The gradient of a tensor, None if nothing contributes to it; call it only after all readers were visited."""
        parts = self._parts.pop(value, None)
        if parts is not None:
            self._totals[value] = self._maker.total(value, parts)
        return self._totals.get(value)

    def known(self, value: ir.Value) -> ir.Value | None:
        """The gradient of a tensor, if it was read already."""
        return self._totals.get(value)

    def add(self, value: ir.Value, part: ir.Value) -> None:
        """Add a contribution to the gradient of a tensor."""
        self._parts.setdefault(value, []).append(part)

    def all(self) -> dict[ir.Value, ir.Value]:
        """All gradients, by tensor."""
        for value in list(self._parts):
            self.of(value)
        return self._totals


def grow(steps: Iterable[Step], seeds: Iterable[tuple[ir.Value, ir.Value]], maker: Maker) -> Gradients:
    """Create the gradient operators of a plan, in order, from pairs of a tensor and a gradient that is given for it."""
    gradients = Gradients(maker, seeds)
    for step in steps:
        for value, part in maker.make(step, gradients):
            gradients.add(value, part)
    return gradients
