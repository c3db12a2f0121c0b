"""The variables and anchors of one place of a step in stages, and the functions that run there between the passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import jax
import jax.numpy as jnp

from .. import anchors as buffers_of
from .. import update
from ..batches import at_the_end
from ..loss_scaling import FACTOR, Scaling
from ..micro import in_own_order, rounding_key
from ..program import Anchor, Program, Training
from .place import Axes, Place, each, replica_axes

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """The part of a program in one place: variables, the update rules of its weights, anchors."""

    place: Place
    variables: frozenset[str]
    training: Training | None
    anchors: tuple[Anchor, ...]


@dataclass(frozen=True)
class _Variables:
    """Stands for the replica dimensions of the variables by name in argument `argument`."""

    argument: int


def _axes(program: Program, axes: Axes) -> Callable[..., Axes]:
    """A function from arguments to replica dimensions, for `Place.compiled`."""

    def given(*arguments: Any) -> Axes:
        def known(axis: Any) -> Axes:
            if isinstance(axis, tuple):
                return tuple(map(known, cast("tuple[Any, ...]", axis)))
            return replica_axes(program, arguments[axis.argument]) if isinstance(axis, _Variables) else axis

        return known(axes)

    return given


class Functions:
    """Compiled functions of one place for updates and anchors.

    Arguments and results are one replica's. `follows` has the batch's scalars that the update rules depend on: the
    `factor` of automatic loss scaling, the `ratio` of a changed loss scale. `words` are seed and generators' state.
    """

    def __init__(self, program: Program, group: Group) -> None:
        self.program, self.group = program, group
        one, buffers = each(program), None if each(program) is None else 1
        given = (_Variables(0), one, one, None, None, None)

        def compiled(function: Callable[..., Any], takes: tuple[Axes, ...], gives: Axes) -> Callable[..., Any]:
            return group.place.compiled(program, function, _axes(program, takes), _axes(program, gives))

        self.start = compiled(self._start, (_Variables(0),), one)
        self.accumulate = compiled(self._accumulate, (one, one, None, None, None, None), (one, one))
        self.squares = compiled(self._squares, given, one)
        self.apply = compiled(self._apply, (one, _Variables(1), *given[1:]), (_Variables(1), one))
        self.count = compiled(self._count, (one, one), (one, one))
        self.decide = compiled(self._decide, (one, _Variables(1)), _Variables(1))
        self.last = compiled(self._last, (buffers, _Variables(1)), buffers)
        self.empty = jax.jit(self._empty, out_shardings=group.place.sharding(buffers))

        @cache
        def record(repeat: int) -> Callable[..., Any]:
            def function(held: Arrays, made: Arrays, shared: Arrays, counter: Any) -> Arrays:
                plain = in_own_order(program, {**made, **shared})
                return buffers_of.record(held, group.anchors, plain, counter, repeat)

            return compiled(function, (buffers, one, _Variables(2), None), buffers)

        self.record = record

    @property
    def _training(self) -> Training:
        assert self.group.training is not None
        return self.group.training

    def _start(self, carried: Arrays) -> Any:
        return update.start(self.program, self._training, carried)

    def _accumulate(
        self, working: Any, gradients: Arrays, hyper: Any, follows: Arrays, index: Any, words: Arrays
    ) -> tuple[Any, Arrays]:
        rounding = rounding_key(self.program, words)
        scalars = update.scalars_of(self._training, hyper, **follows)
        working = update.accumulate(self._training, working, gradients, scalars, index, rounding)
        return working, in_own_order(self.program, update.accumulators(self._training, working, index))

    def _given(
        self, carried: Arrays, working: Any, gradients: Arrays, hyper: Any, follows: Arrays, words: Arrays
    ) -> update.UpdateInputs:
        scalars, rounding = update.scalars_of(self._training, hyper, **follows), rounding_key(self.program, words)
        return update.UpdateInputs(self.program, self._training, carried, working, gradients, scalars, rounding)

    def _squares(self, *given: Any) -> list[Any]:
        """Sum of squares per clip group, over its members in this place; arguments are those of `_given`."""
        return update.squares(self._training, update.prepare(self._given(*given)))

    def _apply(self, elsewhere: list[Any], *given: Any) -> tuple[Arrays, Arrays]:
        found = update.apply(self._given(*given), elsewhere)
        return found[0], in_own_order(self.program, found[1])

    def _count(self, counts: Any, gradients: Arrays) -> tuple[Any, Arrays]:
        """Counts of large and small elements of a micro-batch's tracked gradients, added to `counts`."""
        counts, shown = Scaling(self._training, None, None, {}).count(counts, gradients)
        return counts, dict(shown)

    def _decide(self, counts: Any, carried: Arrays) -> Arrays:
        """Variables of automatic loss scaling after a batch."""
        return Scaling(self._training, None, carried[FACTOR], {}).finish(counts, carried, self.program)

    def _last(self, held: Arrays, carried: Arrays) -> Arrays:
        """The buffers, with the values of anchors of kind Final."""
        last = at_the_end(self.program, in_own_order(self.program, carried))
        finals = [a for a in self.group.anchors if a.final and a.source in last]
        return buffers_of.record(held, finals, last, 0)

    def _empty(self) -> Arrays:
        structure = self.program.structure
        found = buffers_of.empty(self.group.anchors, self.program.types, structure)
        if structure.replicas == 1:
            return found
        return {n: jnp.repeat(x[:, None], structure.replicas, axis=1) for n, x in found.items()}
