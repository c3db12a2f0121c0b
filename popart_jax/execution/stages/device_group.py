"""The variables and anchors of one place of a step in stages, and the functions that run there between the passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from .. import anchors as buffers_of
from .. import update
from ..batches import at_the_end
from ..loss_scaling import FACTOR, Scaling
from ..micro import in_own_order, rounding_key
from ..program import Anchor, Program, Training
from .place import Axes, Place, always, each, replica_axes

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """The part of a program in one place: variables, the update rules of its weights, anchors."""

    place: Place
    variables: frozenset[str]
    training: Training | None
    anchors: tuple[Anchor, ...]


class Functions:
    """Compiled functions of one place for updates and anchors.

    Arguments and results are one replica's. `follows` has the batch's scalars that the update rules depend on: the
    `factor` of automatic loss scaling, the `ratio` of a changed loss scale. `words` are seed and generators' state.
    """

    def __init__(self, program: Program, group: Group) -> None:
        self.program, self.group = program, group
        one, buffers = each(program), None if each(program) is None else 1

        def state(carried: Arrays, *_: Any) -> dict[str, int | None]:
            return replica_axes(program, carried)

        def second(_: Any, carried: Arrays, *__: Any) -> dict[str, int | None]:
            return state(carried)

        def lone(carried: Arrays) -> Axes:
            return (state(carried),)

        def given(carried: Arrays, *_: Any) -> Axes:
            return (state(carried), one, one, None, None, None)

        def elsewhere_and_given(_: Any, carried: Arrays, *__: Any) -> Axes:
            return (one, *given(carried))

        def applied(_: Any, carried: Arrays, *__: Any) -> Axes:
            return (state(carried), one)

        def counts_and_state(_: Any, carried: Arrays) -> Axes:
            return (one, state(carried))

        def held_and_state(_: Any, carried: Arrays) -> Axes:
            return (buffers, state(carried))

        def compiled(function: Callable[..., Any], takes: Any, gives: Any) -> Callable[..., Any]:
            return group.place.compiled(program, function, takes, gives)

        self.start = compiled(self._start, lone, always(one))
        self.accumulate = compiled(self._accumulate, always((one, one, None, None, None, None)), always((one, one)))
        self.squares = compiled(self._squares, given, always(one))
        self.apply = compiled(self._apply, elsewhere_and_given, applied)
        self.count = compiled(self._count, always((one, one)), always((one, one)))
        self.decide = compiled(self._decide, counts_and_state, second)
        self.last = compiled(self._last, held_and_state, always(buffers))
        self.empty = jax.jit(self._empty, out_shardings=group.place.sharding(buffers))

        @cache
        def record(repeat: int) -> Callable[..., Any]:
            def function(held: Arrays, made: Arrays, shared: Arrays, counter: Any) -> Arrays:
                plain = in_own_order(program, {**made, **shared})
                return buffers_of.record(held, group.anchors, plain, counter, repeat)

            def takes(_: Any, __: Any, shared: Arrays, ___: Any) -> Axes:
                return (buffers, one, state(shared), None)

            return compiled(function, takes, always(buffers))

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
