"""The weight update of a step in stages: gradient accumulation, loss scaling, and update rules in every place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ..loss_scaling import FACTOR, GRADIENT, begin, scale_change
from .device_group import Arrays
from .place import each

if TYPE_CHECKING:
    from .flow import Run


class Update:
    """The accumulated gradients of a batch, and its update."""

    def __init__(self, run: Run, batch: int) -> None:
        program, state = run.program, run.state
        assert program.training is not None
        self._run, self._training, self._structure = run, program.training, program.structure
        self._before = batch * program.structure.accumulation
        self._working = [f.start(run.of_group(i)) for i, f in enumerate(run.functions)]
        self.scaling, change = begin(self._training, state, run.hyper), scale_change(self._training, state, run.hyper)
        state.update({n: run.owner.place_of(n).put(np.float32(x), None) for n, x in change.state.items()})
        follows = {"factor": self.scaling.factor, "ratio": change.ratio}
        self._follows: Arrays = {n: x for n, x in follows.items() if x is not None}
        self._always = {**self.scaling.shown, **change.shown}
        self._counts = None if self._training.scaling is None else self.scaling.start()
        if self._counts is not None and each(program) is not None:
            self._counts = jnp.tile(self._counts, (program.structure.replicas, 1))

    def micro_batch(self, micro: int, gradients: Arrays, shown: Arrays, words: Arrays) -> None:
        """Accumulate the gradients of a micro-batch, and update the weights after the last one.

        `shown` are gradients to record or count; `words` are the seed and the generators' state after the micro-batch.
        """
        run, structure = self._run, self._structure
        counter, counted = self._before + micro, self._count(shown)
        for name, gradient in shown.items():
            run.show_at(run.owner.place_showing(name), {name: gradient}, {}, counter)
        if structure.accumulates:
            self._add(micro, gradients, counted, words)
        if micro == structure.accumulation - 1:
            self._finish({} if structure.accumulates else gradients, counted, words)

    def _add(self, micro: int, gradients: Arrays, counted: Arrays, words: Arrays) -> None:
        run = self._run
        for i, functions in enumerate(run.functions):
            mine = self._of_group(i, gradients)
            self._working[i], shown = functions.accumulate(
                self._working[i], mine, run.hyper, self._followed(i), micro, words
            )
            resting = {n: x for n, x in run.everything(i).items() if n not in shown}
            first = counted if i == run.first else {}
            run.show(i, {**first, **shown}, {**resting, **self._scalars(i)}, self._before + micro)

    def _finish(self, gradients: Arrays, counted: Arrays, words: Arrays) -> None:
        """Update the weights; `gradients` are empty where they were accumulated."""
        run, structure = self._run, self._structure
        asked: list[tuple[Any, ...]] = []
        for i in range(len(run.functions)):
            mine = self._of_group(i, gradients)
            asked.append((run.of_group(i), self._working[i], mine, run.hyper, self._followed(i), words))
        elsewhere = self._squares_elsewhere(asked)
        for i, functions in enumerate(run.functions):
            changed, shown = functions.apply(elsewhere[i], *asked[i])
            factor = {}
            if self._counts is not None and i == run.first:
                changed = functions.decide(self._counts, changed)
                factor = {f"UpdatedVar___{FACTOR}": changed[FACTOR]}
            run.state.update(changed)
            if structure.accumulates:
                run.show(i, shown, factor, self._before, structure.accumulation)
            else:
                first = counted if i == run.first else {}
                run.show(i, {**first, **shown}, {**run.everything(i), **self._scalars(i), **factor}, self._before)

    def _squares_elsewhere(self, asked: list[Any]) -> list[list[Any]]:
        """For each place, the sums of squares of each clip group's members in the other places."""
        run = self._run
        if not self._training.clips or len(asked) == 1:
            return [[] for _ in asked]
        found = [functions.squares(*given) for functions, given in zip(run.functions, asked, strict=True)]
        sums: list[list[Any]] = []
        for i, group in enumerate(run.groups):
            others = [[group.place.put(x, each(run.program)) for x in f] for j, f in enumerate(found) if j != i]
            sums.append([sum(clip[1:], start=clip[0]) for clip in zip(*others, strict=True)])
        return sums

    def _of_group(self, i: int, gradients: Arrays) -> Arrays:
        rules = self._run.groups[i].training.rules  # type: ignore[union-attr]
        return {w: gradients[w] for w in rules if w in gradients}

    def _followed(self, i: int) -> Arrays:
        return {n: self._run.groups[i].place.put(x, None) for n, x in self._follows.items()}

    def _scalars(self, i: int) -> Arrays:
        """The scalars of the batch, which are recorded in the first place; empty for others."""
        return self._always if i == self._run.first else {}

    def _count(self, gradients: Arrays) -> Arrays:
        if self._counts is None:
            return {}
        home, names = self._run.owner.place_of(FACTOR), [GRADIENT + t for t in self._training.scaling.tracked]
        tracked = {n: home.put(gradients[n], each(self._run.program)) for n in names}
        self._counts, counted = self._run.functions[self._run.first].count(self._counts, tracked)
        return counted
