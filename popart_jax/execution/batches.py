"""A session's program as a step: one replica's function over batches, micro-batches, updates and anchors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import anchors as buffers_of
from . import loss_scaling, update
from .micro import Result, in_own_order, micro_batch_key, rounding_key, run_micro_batch
from .program import GENERATORS, SEED, Program, Training, Type, Variable
from .replicas import PARTS
from .step import Fed, Step, StepFunction, Tensors
from .written_results import is_large

HYPER = "hyperparameters___fromHost"
"""Name of the input with the vector of hyperparameters."""


def step_of(program: Program, hyper_size: int = 1, *, in_place: bool = False) -> Step:
    """A program as a step.

    `hyper_size` is the length of the vector of hyperparameters; programs that read none of them do not take it as
    input. With `in_place`, large results are written into memory that is passed for them.
    """
    state = {n: v for n, v in program.variables.items() if n in program.changing}
    for name in [SEED] * program.random + [GENERATORS] * program.generators:
        state[name] = Variable(Type((2,), np.dtype(np.uint32)))
    fixed = {n: v for n, v in program.variables.items() if n not in program.changing}
    fed = {n: _fed(program, n) for n in program.streams}
    hyper = {HYPER: Fed(Type((hyper_size,), np.dtype(np.float32)))} if program.reads_hyper else {}
    slots = 1 if program.structure.replicas > 1 else None  # anchors are [slots, replicas, *shape]
    results = {a.name: slots for a in program.anchors}
    return Step(
        _function(program),
        _sorted(state),
        _sorted(fixed),
        hyper | _sorted(fed),
        _sorted(results),
        program.structure.replicas,
        parts=program.parts,
        written=_sorted(large_results(program)) if in_place else {},
    )


def large_results(program: Program) -> dict[str, Type]:
    """Anchors that are written in place, with the types of all replicas' values together."""
    replicas = (program.structure.replicas,) if program.structure.replicas > 1 else ()
    kinds = {a.name: (a.slots(program.structure), program.types[a.source]) for a in program.anchors}
    found = {n: Type((slots, *replicas, *kind.shape), kind.dtype) for n, (slots, kind) in kinds.items()}
    return {n: kind for n, kind in found.items() if is_large(kind)}


def _sorted(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Sort by name, so that the order of arguments does not depend on how the program was built."""
    return dict(sorted(entries.items()))


def _fed(program: Program, name: str) -> Fed:
    """A stream: [batches, micro-batches, replicas, *shape] without the leading dimensions that are 1."""
    kind, structure = program.streams[name], program.structure
    loops = tuple(n for n in (structure.batches, structure.accumulation) if n > 1)
    axis = None if name in program.broadcast or structure.replicas == 1 else len(loops)
    split = (*(None for _ in loops), PARTS) if name in program.spread else ()
    return Fed(Type((*loops, *kind.shape), kind.dtype), axis, split)


def _function(program: Program) -> StepFunction:
    """The function ``(state, fixed, fed) -> (state, anchors)`` that one replica runs per step.

    The random seed and the generators' state are part of the state. Streams are [batches, accumulation, *shape]
    without the dimensions that are 1, anchors are [slots, *shape].
    """

    def step(changing: Tensors, fixed: Tensors, fed: Tensors) -> tuple[Tensors, Tensors]:
        structure, hyper = program.structure, fed.get(HYPER)
        streams = {n: fed[n] for n in program.streams}
        run = _Batch(program, fixed, hyper)
        buffers = buffers_of.empty(program.anchors, program.types, structure)

        def body(carry: tuple[Tensors, Tensors], x: tuple[Any, Tensors]) -> tuple[tuple[Tensors, Tensors], None]:
            return run.batch(*carry, *x), None

        changing, buffers = loop(body, (dict(changing), buffers), streams, structure.batches)
        last = at_the_end(program, in_own_order(program, changing))
        finals = [a for a in program.anchors if a.final and a.source in last]
        return changing, buffers_of.record(buffers, finals, last, 0)

    return step


def loop(body: Callable[..., Any], carry: Any, streams: Tensors, length: int) -> Any:
    """Run `body(carry, (index, slice))` over the leading dimension of the streams; a single pass needs no loop."""
    if length == 1:
        return body(carry, (0, streams))[0]
    with jax.named_scope("counter"):
        counts = jnp.arange(length)
    return lax.scan(body, carry, (counts, streams))[0]


@jax.named_scope("counter")
def _micro_batch(counter: Any, a: Any) -> Any:
    """The number in the run of micro-batch `a` of a batch."""
    return counter + a


@dataclass(frozen=True)
class _Opened:
    """What a batch of a training program knows before its first micro-batch."""

    scaling: loss_scaling.Scaling  # automatic loss scaling's factor, scale and statistics
    scalars: dict[str, dict[str, Any]]  # hyperparameters of each weight's rule
    working: update.Working  # state of each weight's rule
    shown: Tensors  # tensors that stay as they are for the whole batch, for anchors


class _Batch:
    """One batch: its micro-batches and, in training, the update."""

    def __init__(self, program: Program, fixed: Tensors, hyper: Any) -> None:
        self.program, self.fixed, self.hyper = program, fixed, hyper
        with jax.named_scope("hyperparameters"):
            self.scalars_shown = {name: hyper[place] for name, place in program.scalars.items()}

    def batch(self, carried: Tensors, buffers: Tensors, index: Any, streams: Tensors) -> tuple[Tensors, Tensors]:
        with jax.named_scope("counter"):
            counter = index * self.program.structure.accumulation
        training = self.program.training
        if training is None:
            return self._forward_only(carried, buffers, counter, streams)
        opened = self._opened(training, carried)
        run = self._accumulated if self.program.structure.accumulates else self._single
        return run(training, opened, carried, buffers, counter, streams)

    def _opened(self, training: Training, carried: Tensors) -> _Opened:
        """Begin a batch; what the change of the loss scale sets goes into `carried`."""
        scaling = loss_scaling.begin(training, carried, self.hyper)
        moved = loss_scaling.scale_change(training, carried, self.hyper)
        carried.update(moved.state)
        scalars = update.scalars_of(training, self.hyper, scaling.factor, moved.ratio)
        shown = {**scaling.shown, **moved.shown, **self.scalars_shown}
        return _Opened(scaling, scalars, update.start(self.program, training, carried), shown)

    def _single(
        self, training: Training, opened: _Opened, carried: Tensors, buffers: Tensors, counter: Any, streams: Tensors
    ) -> tuple[Tensors, Tensors]:
        """A batch of one micro-batch, whose gradients are the update's."""
        carried, result = self._micro(carried, streams, opened.scaling.scale)
        counts, counted = opened.scaling.count(opened.scaling.start(), result.values)
        carried, shown = self._updated(training, opened, carried, opened.working, counts, result.gradients)
        seen = {**result.values, **opened.shown, **counted, **self._plain({**shown, **self.fixed, **carried})}
        return carried, buffers_of.record(buffers, self.program.anchors, seen, counter)

    def _accumulated(
        self, training: Training, opened: _Opened, carried: Tensors, buffers: Tensors, counter: Any, streams: Tensors
    ) -> tuple[Tensors, Tensors]:
        """A batch of several micro-batches, whose gradients are accumulated for the update."""
        program, scaling = self.program, opened.scaling

        def body(carry: Any, x: Any) -> tuple[Any, None]:
            carried, working, counts, buffers = carry
            a, streams = x
            carried, result = self._micro(carried, streams, scaling.scale)
            counts, counted = scaling.count(counts, result.values)
            rounding = rounding_key(program, carried)
            working = update.accumulate(training, working, result.gradients, opened.scalars, a, rounding)
            state = {**self.fixed, **carried, **update.accumulators(training, working, a)}
            seen = {**result.values, **opened.shown, **counted, **self._plain(state)}
            buffers = buffers_of.record(buffers, program.anchors, seen, _micro_batch(counter, a))
            return (carried, working, counts, buffers), None

        start = (carried, opened.working, scaling.start(), buffers)
        carried, working, counts, buffers = loop(body, start, streams, program.structure.accumulation)
        carried, shown = self._updated(training, opened, carried, working, counts, {})
        repeat = program.structure.accumulation
        return carried, buffers_of.record(buffers, program.anchors, self._plain(shown), counter, repeat)

    def _updated(
        self, training: Training, opened: _Opened, carried: Tensors, working: update.Working, counts: Any,
        gradients: Mapping[str, Any],
    ) -> tuple[Tensors, Tensors]:  # fmt: skip
        """The variables after the update, and the update's own tensors for anchors."""
        rounding = rounding_key(self.program, carried)
        given = update.UpdateInputs(self.program, training, carried, working, gradients, opened.scalars, rounding)
        carried, shown = update.apply(given)
        carried = opened.scaling.finish(counts, carried, self.program)
        return carried, {**shown, **_updated_factor(training, carried)}

    def _forward_only(
        self, carried: Tensors, buffers: Tensors, counter: Any, streams: Tensors
    ) -> tuple[Tensors, Tensors]:
        program = self.program

        def body(carry: tuple[Tensors, Tensors], x: tuple[Any, Tensors]) -> tuple[tuple[Tensors, Tensors], None]:
            (carried, buffers), (a, streams) = carry, x
            carried, result = self._micro(carried, streams, None)
            seen = {**result.values, **self._plain({**self.fixed, **carried})}
            return (carried, buffers_of.record(buffers, program.anchors, seen, _micro_batch(counter, a))), None

        return loop(body, (carried, buffers), streams, program.structure.accumulation)

    def _plain(self, state: Tensors) -> Tensors:
        """Variables, and update tensors of their shape, in the graph's layout."""
        return in_own_order(self.program, state)

    def _micro(self, carried: Tensors, streams: Tensors, scale: Any) -> tuple[Tensors, Result]:
        program = self.program
        seed, key = micro_batch_key(program, carried.get(SEED))
        words, rounding = micro_batch_key(program, carried.get(GENERATORS))
        bindings = {n: x for n, x in {**self.fixed, **carried, **streams}.items() if n in program.bound}
        result = run_micro_batch(program, bindings, scale, key, rounding)
        carried = dict(carried)
        for target, value in result.copied.items():  # the copied variables may have another layout on the device
            carried[target] = jnp.asarray(value).astype(carried[target].dtype).reshape(carried[target].shape)
        carried |= {n: x for n, x in ((SEED, seed), (GENERATORS, words)) if x is not None}
        return carried, result


def _updated_factor(training: Training, carried: Tensors) -> Tensors:
    name = loss_scaling.FACTOR
    return {} if training.scaling is None else {f"UpdatedVar___{name}": carried[name]}


def at_the_end(program: Program, changing: Mapping[str, Any]) -> Tensors:
    """Final values, for anchors of kind Final, of tensors that live longer than a micro-batch."""
    last = dict(changing)
    if program.training is not None and program.structure.accumulates:
        reset = ("Accum___", "Counter___")
        kinds = {a.source: program.types[a.source] for a in program.anchors if a.source.startswith(reset)}
        last |= {name: _zero(kind) for name, kind in kinds.items()}
    return last


def _zero(kind: Type) -> jax.Array:
    return jnp.zeros(kind.shape, kind.dtype)
