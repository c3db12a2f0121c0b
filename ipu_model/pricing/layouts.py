"""Layouts: which operands lie on the tiles in another order than the operation needs, and the cost of rearranging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ipu_model.costs.rule import Context, OpCost, Superstep
from ipu_model.partition import Spread
from ipu_model.walk.program import NO_VALUE, Op, Program, Step

Token = tuple[Any, ...]

SHAPE_ONLY = frozenset(("reshape", "squeeze", "expand_dims", "copy", "stop_gradient"))


class Layouts:
    """Element order of every value over the tiles, as tokens: equal tokens need no exchange."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.token: dict[int, Token] = {}
        self.stored: dict[int, int] = {}
        self.spread: dict[int, Spread] = {}
        self._stretched: dict[tuple[int, Spread], OpCost] = {}
        self.prices: dict[tuple[Any, ...], tuple[Superstep, ...]] = {}

    def of(self, value: int) -> Token:
        """The element order of a value: that of the step that made it, or the linear one."""
        found = self.token.get(value)
        return found if found is not None else ("linear", self.program.values[value].tensor.size)

    def elements(self, value: int) -> int:
        """Elements in memory behind a value (fewer than its size for a broadcast view)."""
        return self.stored.get(value, self.program.values[value].tensor.size)

    def visit(self, step: Step, price: OpCost, ctx: Context) -> tuple[Superstep, ...]:
        """Record the layouts of a step's outputs; the supersteps that bring its operands together."""
        extra = self._align(step, price, ctx) if price.elementwise else ()
        source = self._reference(step, step.op) if price.elementwise else next(iter(step.inputs), NO_VALUE)
        for k, out in enumerate(step.outputs):
            self.token[out] = self._result(step.op, price, source, k)
            if price.view and source != NO_VALUE:
                size = self.program.values[out].tensor.size
                self.stored[out] = min(size, self.elements(source))
        return extra

    def stretched(self, step: Step, price: OpCost) -> OpCost:
        """The price over the mapping that the result takes from its operand, where that is uneven.

        The work of an elementwise vertex follows the fullest tile, which after a convolution holds more than its
        share; the result lies as the operand does.
        """
        if not step.outputs:
            return price
        source = self._reference(step, step.op) if price.elementwise else next(iter(step.inputs), NO_VALUE)
        if price.layout == "new" and price.outputs:
            self.spread[step.outputs[0]] = price.outputs[0]
        here = self.spread.get(source)
        same = here is not None and here.size == step.op.output.size
        if here is None or not same or not (price.elementwise or price.view):
            return price
        self.spread[step.outputs[0]] = here
        if price.view or not price.outputs or here.most <= price.outputs[0].most:
            return price
        key = (id(price), here)
        if key not in self._stretched:
            self._stretched[key] = _stretch(price, here)
        return self._stretched[key]

    def _result(self, op: Op, price: OpCost, source: int, k: int) -> Token:
        size = op.outputs[k].size
        if price.layout == "linear" or source == NO_VALUE:
            return ("linear", size)
        if price.layout == "new":
            return ("made", id(op), k)
        before = self.of(source)
        if price.layout == "permute":
            return _permuted(before, op)
        if price.view and op.primitive not in SHAPE_ONLY and size != self.program.values[source].tensor.size:
            return ("part", before, op.primitive, size)
        return before

    def _reference(self, step: Step, op: Op) -> int:
        """The operand whose mapping the result takes: the first full one that is no broadcast."""
        full = [i for i in step.inputs if i != NO_VALUE and self.program.values[i].tensor.size == op.output.size]
        real = [i for i in full if self.elements(i) == op.output.size]
        return next(iter(real or full or [i for i in step.inputs if i != NO_VALUE]), NO_VALUE)

    def _align(self, step: Step, price: OpCost, ctx: Context) -> tuple[Superstep, ...]:
        reference = self._reference(step, step.op)
        if reference == NO_VALUE or ctx.target.tiles == 1:  # on one tile nothing has to be exchanged
            return ()
        here = self.of(reference)
        moved: list[tuple[int, int, bool]] = []
        for i in step.inputs:
            if i in (reference, NO_VALUE):
                continue
            elements = self.elements(i)
            full = elements == step.op.output.size
            if elements > 1 and (not full or self.of(i) != here):
                moved.append((elements, self.program.values[i].tensor.width, full))
        return tuple(s for m in dict.fromkeys(moved) for s in self._exchange(m, step.op, ctx) * moved.count(m))

    def _exchange(self, what: tuple[int, int, bool], op: Op, ctx: Context) -> tuple[Superstep, ...]:
        key = (what, op.output.size)
        found = self.prices.get(key)
        if found is None:
            elements, width, full = what
            spread = ctx.spread(op.output)
            received = min(elements, spread.most) * width
            found = self.prices[key] = (
                Superstep(
                    "Rearrange" if full else "Broadcast",
                    exchange=ctx.move(received),
                    received=float(received * spread.tiles),
                ),
            )
        return found


def _stretch(price: OpCost, spread: Spread) -> OpCost:
    factor = spread.most / price.outputs[0].most
    steps = tuple(
        replace(s, compute=s.overhead + (s.compute - s.overhead) * factor, tiles=spread.tiles, balance=spread.balance)
        for s in price.supersteps
    )
    return replace(price, supersteps=steps, outputs=(spread,))


def _permuted(before: Token, op: Op) -> Token:
    """Layout after a transposition; two that cancel leave the original one."""
    if op.primitive != "transpose":
        return ("permuted", before, (op.primitive,))
    perm: Sequence[int] = op.params["permutation"]
    if before[0] == "permuted" and len(before[2]) == len(perm) and op.primitive == "transpose":
        combined = tuple(before[2][p] for p in perm)
        return before[1] if combined == tuple(range(len(perm))) else ("permuted", before[1], combined)
    moving = [(p, d) for p, d in zip(perm, (op.inputs[0].shape[p] for p in perm), strict=True) if d != 1]
    if [p for p, _ in moving] == sorted(p for p, _ in moving):
        return before
    return ("permuted", before, tuple(perm))
