"""Growing gradient operators from the outputs of a graph back to its inputs.

Two phases: `plan` lists the gradient operators, in reverse order of the forward nodes; `grow` makes them one by one and
adds up what several readers of a tensor contribute. How an operator is made, and where, is the caller's: see `Maker`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import onnx_ir as ir

from ..ops import Gradient
from .reads import forward_reads

NAME = "Gradient___"
"""What the name of a gradient begins with; the name of its tensor follows."""

_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16})


def is_float(value: ir.Value | None) -> bool:
    """Whether a tensor can have a gradient."""
    return value is not None and value.dtype in _FLOATS


@dataclass
class Step:
    """One gradient operator to be.

    Attributes
    ----------
    node : ir.Node
        Forward node.
    gradient : Gradient or None
        Entry of the node's row; None for a node that calls graphs.
    of : tuple of int
        Inputs of the node that get a gradient.
    reads : list of ir.Value or None
        Forward tensors that it reads.
    captured : list of ir.Value
        Tensors of the enclosing graphs that graphs called by the node read, and that get a gradient too.
    """

    node: ir.Node
    gradient: Gradient | None
    of: tuple[int, ...]
    reads: list[ir.Value | None] = field(default_factory=list[ir.Value | None])
    captured: list[ir.Value] = field(default_factory=list[ir.Value])

    @property
    def targets(self) -> list[ir.Value]:
        """The tensors that get a gradient."""
        return [*(v for i in self.of if (v := self.node.inputs[i]) is not None), *self.captured]


def steps_of(node: ir.Node, entries: Iterable[Gradient], needed: Collection[int]) -> list[Step]:
    """The gradient operators of a node that give a gradient to some of the inputs `needed`."""
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
    """List the gradient operators of a graph.

    Parameters
    ----------
    nodes : sequence of ir.Node
        Forward nodes in order.
    seeded : iterable of ir.Value
        Tensors whose gradient is given.
    steps : callable
        Gradient operators of a node for the inputs at some positions, as `steps_of`.
    required : iterable of ir.Value, optional
        Tensors whose gradient is wanted; operators that lead to none of them are left out. Default: all.
    may_have : callable
        Whether a tensor can have a gradient.

    Returns
    -------
    list of Step, set of ir.Value
        The operators, and the tensors that get a gradient.
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
    """How a front end makes gradient operators."""

    def make(self, step: Step, gradients: Gradients) -> Iterable[tuple[ir.Value, ir.Value]]:
        """Make the operator of a step; returns pairs of a tensor and (one contribution to) its gradient."""
        ...

    def total(self, value: ir.Value, parts: Sequence[ir.Value]) -> ir.Value:
        """The sum of contributions to the gradient of `value`: one or more."""
        ...


class Gradients:
    """Gradients of tensors while a graph grows: contributions, and totals as soon as somebody asks for them."""

    def __init__(self, maker: Maker, seeds: Mapping[ir.Value, ir.Value]) -> None:
        self._maker = maker
        self._parts: dict[ir.Value, list[ir.Value]] = {v: [g] for v, g in seeds.items()}
        self._totals: dict[ir.Value, ir.Value] = {}

    def of(self, value: ir.Value) -> ir.Value | None:
        """The gradient of a tensor, None where nothing contributes; asked for when all its readers were visited."""
        parts = self._parts.pop(value, None)
        if parts is not None:
            self._totals[value] = self._maker.total(value, parts)
        return self._totals.get(value)

    def add(self, value: ir.Value, part: ir.Value) -> None:
        """One more contribution to the gradient of a tensor."""
        self._parts.setdefault(value, []).append(part)

    def all(self) -> dict[ir.Value, ir.Value]:
        """Every tensor that has a gradient, with it."""
        for value in list(self._parts):
            self.of(value)
        return self._totals


def grow(steps: Iterable[Step], seeds: Mapping[ir.Value, ir.Value], maker: Maker) -> Gradients:
    """Make the gradient operators of a plan, in order."""
    gradients = Gradients(maker, seeds)
    for step in steps:
        for value, part in maker.make(step, gradients):
            gradients.add(value, part)
    return gradients
