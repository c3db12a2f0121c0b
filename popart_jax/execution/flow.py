"""One run of a step in stages: the order of the passes, and the tensors on their way between devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from . import anchors as buffers_of
from .batches import HYPER
from .device_group import Arrays
from .micro import GRADIENT
from .program import SEED
from .step import Step

if TYPE_CHECKING:
    from .staged import StagedExecutable


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
    """One run: the state on all devices while batches pass."""

    def __init__(
        self, owner: StagedExecutable, state: Mapping[str, Any], fixed: Arrays, fed: Mapping[str, Any]
    ) -> None:
        self._owner, self._program, self._fixed = owner, owner.program, fixed
        self._state, self._fed = dict(state), fed
        self._hyper = np.asarray(fed[HYPER]) if self._program.reads_hyper else None
        self._seed = np.asarray(state[SEED]) if SEED in state else None
        self._functions, self._groups = owner.functions, owner.groups
        self._at = {group.device: i for i, group in enumerate(self._groups)}
        self._buffers = [f.empty() for f in self._functions]
        self._shown = [{a.source for a in g.anchors} for g in self._groups]

    def batch(self, batch: int) -> None:
        """The micro-batches of a batch, and the update."""
        structure, training = self._program.structure, self._program.training
        count = structure.accumulation
        seeds = self._seeds(count)
        flow = _Flow(self, batch, seeds)
        levels = 1 + max(u.level for u in self._owner.units)
        working: list[Any] = []
        if training is not None:
            working = [f.start(self._of_group(i)) for i, f in enumerate(self._functions)]
        waits = dict.fromkeys(range(count), len(self._owner.units))
        for level, micro, backward in order(levels, count, training is not None):
            for at, unit in enumerate(self._owner.units):
                if unit.level != level:
                    continue
                (flow.backward if backward else flow.forward)(at, micro)
                waits[micro] -= backward
            if backward and not waits[micro]:
                self._gradients(working, flow.take(micro), batch * count + micro, micro, seeds[micro])
        if training is None:
            for micro in range(count):
                self._show_state(batch * count + micro)

    def _seeds(self, count: int) -> list[Any]:
        """The seed before each micro-batch; it is advanced as `micro_batch_key` does."""
        found = []
        for _ in range(count):
            found.append(self._seed)
            if self._seed is not None:
                self._seed = self._seed + np.asarray([self._program.structure.replicas, 1], np.uint32)
        return found

    def _gradients(self, working: list[Any], gradients: Arrays, counter: int, micro: int, seed: Any) -> None:
        """Add the gradients of a micro-batch up, and update behind the last one."""
        structure = self._program.structure
        after = None if seed is None else seed + np.asarray([structure.replicas, 1], np.uint32)
        last = micro == structure.accumulation - 1
        for i, functions in enumerate(self._functions):
            mine = {w: gradients[w] for w in self._groups[i].training.rules}  # type: ignore[union-attr]
            if structure.accumulates:
                working[i], shown = functions.accumulate(working[i], mine, self._hyper, micro, after)
                self.show(i, {**self._everything(i), **shown}, counter)
            if last:
                before = {} if structure.accumulates else mine
                changed, shown = functions.apply(self._of_group(i), working[i], before, self._hyper, after)
                self._state.update(changed)
                if structure.accumulates:
                    self.show(i, shown, counter - micro, structure.accumulation)
                else:
                    self.show(i, {**shown, **self._everything(i)}, counter)

    def _show_state(self, counter: int) -> None:
        for i in range(len(self._groups)):
            self.show(i, self._everything(i), counter)

    def _everything(self, i: int) -> Arrays:
        """Variables of a device, and scalars of the step on the first one."""
        group, scalars = self._groups[i], {}
        if i == 0 and self._hyper is not None:
            scalars = {name: self._hyper[place] for name, place in self._program.scalars.items()}
        mine = group.variables - self._program.copies.keys()  # these are shown when they change
        state = {n: x for n, x in {**self._fixed, **self._state}.items() if n in mine}
        return {**scalars, **state}

    def show(self, i: int, values: Arrays, counter: int, repeat: int = 1) -> None:
        """Record what anchors of a device ask for."""
        asked = {n: x for n, x in values.items() if n in self._shown[i]}
        if asked:
            self._buffers[i] = self._functions[i].record(self._buffers[i], asked, counter, repeat=repeat)

    def show_on(self, device: Any, values: Arrays, counter: int) -> None:
        """The same by device."""
        self.show(self._at[device], values, counter)

    def _of_group(self, i: int) -> Arrays:
        return {n: x for n, x in self._state.items() if n in self._groups[i].variables}

    def finish(self) -> tuple[Arrays, Arrays]:
        """The new state, and the anchors."""
        results: Arrays = {}
        for i, functions in enumerate(self._functions):
            last = functions.last(self._of_group(i))
            finals = [a for a in self._groups[i].anchors if a.final and a.source in last]
            results |= buffers_of.record(self._buffers[i], finals, last, 0)
        if self._seed is not None:
            self._state[SEED] = jax.device_put(self._seed, self._owner.device_of(SEED))
        step: Step = self._owner.step
        return {n: self._state[n] for n in step.state}, {n: results[n] for n in step.results}


class _Flow:
    """Tensors of micro-batches on their way through the units of a batch."""

    def __init__(self, run: Run, batch: int, seeds: Sequence[Any]) -> None:
        self._run, self._batch, self._seeds = run, batch, seeds
        self._owner = run._owner
        self._made: dict[int, Arrays] = {}  # by micro-batch
        self._entered: dict[tuple[int, int], tuple[Arrays, Arrays]] = {}  # by unit and micro-batch
        self._slopes: dict[int, Arrays] = {}
        self._of_weights: dict[int, Arrays] = {}

    def forward(self, at: int, micro: int) -> None:
        """Forward pass of a unit."""
        owner, unit = self._owner, self._owner.units[at]
        device, made = owner.devices[at], self._made.setdefault(micro, {})
        bound = {n: self._bound(n, micro, device) for n in unit.bound}
        entering = {n: jax.device_put(made[n], device) for n in unit.reads if n in made}
        out, copied, shown = owner.passes[at].forward(bound, entering, self._seeds[micro])
        made.update(out)
        if owner.program.training is not None:
            self._entered[at, micro] = bound, entering
        for target, value in copied.items():
            old = self._run._state[target]
            new = jax.device_put(value.astype(old.dtype).reshape(old.shape), _device(old))
            self._run._state[target] = new
            self._run.show_on(_device(old), {target: new}, self._counter(micro))
        self._run.show_on(device, shown, self._counter(micro))

    def backward(self, at: int, micro: int) -> None:
        """Backward pass of a unit, which every unit that reads from it has been through."""
        owner, unit, training = self._owner, self._owner.units[at], self._owner.program.training
        assert training is not None
        device, slopes = owner.devices[at], self._slopes.setdefault(micro, {})
        bound, entering = self._entered.pop((at, micro))
        made = self._made[micro]
        leaving: Arrays = {}
        for name in unit.makes:
            if name not in made or not jnp.issubdtype(made[name].dtype, jnp.floating):
                continue
            slope = slopes.pop(name, None)
            if name == training.loss:
                scale = self._run._hyper[training.loss_scale]  # type: ignore[index]
                slope = scale if slope is None else jax.device_put(slope, device) + scale
            leaving[name] = jnp.zeros_like(made[name]) if slope is None else jax.device_put(slope, device)
        of_weights, of_entering, shown = owner.passes[at].backward(bound, entering, self._seeds[micro], leaving)
        for name, slope in of_entering.items():
            slopes[name] = slope if name not in slopes else slope + jax.device_put(slopes[name], device)
        sums = self._of_weights.setdefault(micro, {})
        for name, slope in of_weights.items():
            here = jax.device_put(slope, owner.device_of(name))
            sums[name] = here if name not in sums else sums[name] + here
        loss = {GRADIENT + training.loss: leaving[training.loss]} if training.loss in leaving else {}
        self._run.show_on(device, {**shown, **loss}, self._counter(micro))

    def take(self, micro: int) -> Arrays:
        """Gradients of the weights of a micro-batch that is through."""
        for held in (self._made, self._slopes):
            held.pop(micro, None)
        found = self._of_weights.pop(micro)
        rules = self._owner.program.training.rules  # type: ignore[union-attr]
        unread = {w: jnp.zeros_like(self._run._state[w]) for w in rules if w not in found}
        return {**found, **unread}

    def _counter(self, micro: int) -> int:
        return self._batch * self._owner.program.structure.accumulation + micro

    def _bound(self, name: str, micro: int, device: Any) -> Any:
        program, run = self._owner.program, self._run
        if name not in program.streams:
            return jax.device_put(run._state[name] if name in run._state else run._fixed[name], device)
        array, structure = run._fed[name], program.structure
        if structure.batches > 1:
            array = array[self._batch]
        array = array[micro] if structure.accumulation > 1 else array
        return jax.device_put(np.asarray(array), device)


def _device(array: jax.Array) -> Any:
    (found,) = array.devices()
    return found
