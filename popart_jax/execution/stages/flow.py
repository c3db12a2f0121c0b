"""One run of a step in stages: the order of the passes, and tensors passed between places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..batches import HYPER
from ..loss_scaling import FACTOR
from ..micro import GRADIENT
from ..program import GENERATORS, SEED
from ..step import Step
from .cut import Unit
from .device_group import Arrays
from .place import Place, each, replica_axis
from .update import Update

if TYPE_CHECKING:
    from .step import StagedExecutable


def order(levels: int, micro_batches: int, training: bool) -> Iterator[tuple[int, int, bool]]:
    """Level, micro-batch and direction (True: backward) of each pass, in the order of a pipeline.

    Examples
    --------
    >>> list(order(2, 2, False))
    [(0, 0, False), (1, 0, False), (0, 1, False), (1, 1, False)]
    """
    cycles = micro_batches + (2 * levels - 2 if training else levels - 1)
    for cycle in range(cycles + training):
        for level in reversed(range(levels)):
            if 0 <= cycle - level < micro_batches:
                yield level, cycle - level, False
        for level in range(levels):
            micro = cycle - (2 * levels - 1 - level)
            if training and 0 <= micro < micro_batches:
                yield level, micro, True


class Run:
    """One run: the state in all places, batch by batch."""

    def __init__(
        self, owner: StagedExecutable, state: Mapping[str, Any], fixed: Arrays, fed: Mapping[str, Any]
    ) -> None:
        self.owner, self.program, self.fixed = owner, owner.program, fixed
        self.state, self.fed = dict(state), fed
        self.hyper = np.asarray(fed[HYPER]) if self.program.reads_hyper else None
        self._words = {n: np.asarray(state[n]) for n in (SEED, GENERATORS) if n in state}
        self.functions, self.groups = owner.functions, owner.groups
        self._at = {group.place: i for i, group in enumerate(self.groups)}
        self._buffers = [f.empty() for f in self.functions]
        self._shown = [{a.source for a in g.anchors} for g in self.groups]
        self.first = self._at[owner.place_of(FACTOR)]  # the place that has the scalars of the step

    def batch(self, batch: int) -> None:
        """Run the micro-batches of a batch, and the update."""
        structure, training = self.program.structure, self.program.training
        count = structure.accumulation
        words = self._advance(count)
        levels = 1 + max(u.level for u in self.owner.units)
        update = None if training is None else Update(self, batch)
        flow = _Flow(self, batch, words, None if update is None else update.scaling.scale)
        waits = dict.fromkeys(range(count), len(self.owner.units))
        for level, micro, backward in order(levels, count, training is not None):
            for at, unit in enumerate(self.owner.units):
                if unit.level != level:
                    continue
                (flow.backward if backward else flow.forward)(at, micro)
                waits[micro] -= backward
            if update is not None and backward and not waits[micro]:
                update.micro_batch(micro, *flow.take(micro), words[micro + 1])
        if training is None:
            for micro in range(count):
                for i in range(len(self.groups)):
                    self.show(i, {}, self.everything(i), batch * count + micro)

    def _advance(self, count: int) -> list[Arrays]:
        """The seed and the generators' state before each micro-batch and after the last, as in `micro_batch_key`."""
        step = np.asarray([self.program.structure.replicas, 1], np.uint32)
        found = [{n: x + np.uint32(i) * step for n, x in self._words.items()} for i in range(count + 1)]
        self._words = found[-1]
        return found

    def everything(self, i: int) -> Arrays:
        """Variables of a place; in the first place also the scalars of the step."""
        group, scalars = self.groups[i], {}
        if i == self.first and self.hyper is not None:
            scalars = {name: self.hyper[place] for name, place in self.program.scalars.items()}
        mine = group.variables - self.program.copies.keys()  # copies are recorded when they change
        state = {n: x for n, x in {**self.fixed, **self.state}.items() if n in mine}
        return {**scalars, **state}

    def show(self, i: int, made: Arrays, shared: Arrays, counter: int, repeat: int = 1) -> None:
        """Record the values of the anchors of place `i`: those that each replica `made`, and `shared` ones.

        The latter, variables and scalars, are in their layout on the device, and replace values in `made` of the same
        name. `counter` is the number of the micro-batch, `repeat` the number of micro-batches that the values hold for.
        """
        shared = {n: x for n, x in shared.items() if n in self._shown[i]}
        made = {n: x for n, x in made.items() if n in self._shown[i] and n not in shared}
        if made or shared:
            self._buffers[i] = self.functions[i].record(repeat)(self._buffers[i], made, shared, counter)

    def show_at(self, place: Place, made: Arrays, shared: Arrays, counter: int) -> None:
        """As `show`, with the place itself in place of its number."""
        self.show(self._at[place], made, shared, counter)

    def of_group(self, i: int) -> Arrays:
        """The state of a place."""
        return {n: x for n, x in self.state.items() if n in self.groups[i].variables}

    def finish(self) -> tuple[Arrays, Arrays]:
        """The new state, and the anchors."""
        results: Arrays = {}
        for i, functions in enumerate(self.functions):
            results |= functions.last(self._buffers[i], self.of_group(i))
        self.state |= {n: self.owner.place_of(n).put(x, None) for n, x in self._words.items()}
        step: Step = self.owner.step
        return {n: self.state[n] for n in step.state}, {n: results[n] for n in step.results}


class _Flow:
    """The tensors of micro-batches that are passed between the units of a batch."""

    def __init__(self, run: Run, batch: int, words: Sequence[Arrays], scale: Any) -> None:
        self._run, self._batch, self._words, self._scale = run, batch, words, scale
        self._owner, self._program = run.owner, run.program
        self._each = each(run.program)
        scaling = None if run.program.training is None else run.program.training.scaling
        self._counted = frozenset[str]() if scaling is None else {GRADIENT + t for t in scaling.tracked}
        self._made: dict[int, Arrays] = {}  # by micro-batch
        self._entered: dict[tuple[int, int], tuple[Arrays, Arrays]] = {}  # by unit and micro-batch
        self._slopes: dict[int, Arrays] = {}
        self._of_weights: dict[int, Arrays] = {}
        self._shown: dict[int, Arrays] = {}  # gradients that are summed over several units, or counted

    def forward(self, at: int, micro: int) -> None:
        """Forward pass of a unit."""
        owner, unit = self._owner, self._owner.units[at]
        place, made = owner.places[at], self._made.setdefault(micro, {})
        bound = {n: self._bound(n, micro, place) for n in unit.bound}
        entering = {n: place.put(made[n], self._each) for n in unit.reads if n in made}
        out, copied, shown = owner.passes[at].forward(bound, entering, self._words[micro])
        made.update(out)
        if self._program.training is not None:
            self._entered[at, micro] = bound, entering
        for target, value in copied.items():
            old, home = self._run.state[target], owner.place_of(target)
            new = home.put(value.astype(old.dtype).reshape(old.shape), replica_axis(self._program, target))
            self._run.state[target] = new
            self._run.show_at(home, {}, {target: new}, self._counter(micro))
        self._run.show_at(place, shown, {}, self._counter(micro))

    def backward(self, at: int, micro: int) -> None:
        """Backward pass of a unit, after that of all units that read from it."""
        owner, unit, training = self._owner, self._owner.units[at], self._program.training
        assert training is not None
        place, slopes = owner.places[at], self._slopes.setdefault(micro, {})
        bound, entering = self._entered.pop((at, micro))
        made = self._made[micro]
        leaving: Arrays = {}
        for name in unit.makes:
            if name not in made or not jnp.issubdtype(made[name].dtype, jnp.floating):
                continue
            slope = place.put(slopes.pop(name, np.zeros(made[name].shape, made[name].dtype)), self._each)
            leaving[name] = slope + place.put(self._scale, None) if name == training.loss else slope
        of_weights, of_entering, shown = owner.passes[at].backward(bound, entering, self._words[micro], leaving)
        for name, slope in of_entering.items():
            slopes[name] = slope if name not in slopes else slope + place.put(slopes[name], self._each)
        sums = self._of_weights.setdefault(micro, {})
        for name, slope in of_weights.items():
            here = owner.place_of(name).put(slope, self._each)
            sums[name] = here if name not in sums else sums[name] + here
        loss = {GRADIENT + training.loss: leaving[training.loss]} if training.loss in leaving else {}
        self._show({**shown, **loss}, unit, place, micro)

    def _show(self, gradients: Arrays, unit: Unit, place: Place, micro: int) -> None:
        """Record a unit's gradients; those to be counted, or of tensors that several units read, are summed first."""
        later = {n for n in gradients if n.removeprefix(GRADIENT) in unit.bound or n in self._counted}
        whole = {n: x for n, x in gradients.items() if n not in later}
        self._run.show_at(place, whole, {}, self._counter(micro))
        held = self._shown.setdefault(micro, {})
        for name in later:
            here = self._owner.place_showing(name).put(gradients[name], self._each)
            held[name] = here if name not in held else held[name] + here

    def take(self, micro: int) -> tuple[Arrays, Arrays]:
        """Gradients of a finished micro-batch: those of the weights, and those still to be recorded or counted."""
        for held in (self._made, self._slopes):
            held.pop(micro, None)
        found = self._of_weights.pop(micro)
        rules = self._program.training.rules  # type: ignore[union-attr]
        unread = {w: self._no_gradient(w) for w in rules if w not in found}
        return {**found, **unread}, self._shown.pop(micro)

    def _no_gradient(self, weight: str) -> jax.Array:
        value, replicas = self._run.state[weight], self._program.structure.replicas
        shape = (
            value.shape if self._each is None or replica_axis(self._program, weight) == 0 else (replicas, *value.shape)
        )
        return self._owner.place_of(weight).put(np.zeros(shape, value.dtype), self._each)

    def _counter(self, micro: int) -> int:
        return self._batch * self._program.structure.accumulation + micro

    def _bound(self, name: str, micro: int, place: Place) -> Any:
        program, run = self._program, self._run
        axis = replica_axis(program, name)
        if name not in program.streams:
            return place.put(run.state[name] if name in run.state else run.fixed[name], axis)
        array, structure = run.fed[name], program.structure
        if structure.batches > 1:
            array = array[self._batch]
        array = array[micro] if structure.accumulation > 1 else array
        return place.put(np.asarray(array), axis)
