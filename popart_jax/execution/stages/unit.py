"""Forward and backward pass of one unit of a cut program (`cut.py`), for one micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from ...lowering.interpreter import Settings, evaluate
from ..micro import in_own_order, micro_batch_key, shown_gradients, wanted_tensors, wide_loss, with_probes
from ..program import GENERATORS, SEED, Program
from .cut import Unit
from .place import Axes, Place, always, each, replica_axes

Arrays = dict[str, Any]


class Passes:
    """The two passes of a unit, as functions compiled for the unit's place.

    The backward pass recomputes the forward pass from the unit's inputs, so that no activations have to be kept.
    `known` are tensors whose values follow from shapes; units add to it as they are traced.
    """

    def __init__(self, program: Program, unit: Unit, place: Place, known: dict[str, np.ndarray]) -> None:
        self._program, self._known = program, known
        training = program.training
        self._wide = training if training is not None and training.wide_loss and training.loss in unit.inside else None
        values, gradients = wanted_tensors(program)
        self._shown = sorted(values & unit.inside)
        here = unit.inside | unit.bound.keys()
        self._probed = sorted(t for t in gradients if t in here)
        self._copied = {target: source for target, source in program.copies.items() if source in unit.inside}
        self._makes = list(unit.makes)
        self.trained = [n for n in unit.bound if program.training is not None and n in program.training.rules]
        one, copied = each(program), replica_axes(program, self._copied)

        def forward_axes(bound: Arrays, *_: Any) -> Axes:
            return (replica_axes(program, bound), one, None)

        def backward_axes(bound: Arrays, *_: Any) -> Axes:
            return (*forward_axes(bound), one)

        self.forward = place.compiled(
            program,
            self._forward,
            forward_axes,
            always((one, copied, one)),
        )
        self.backward = place.compiled(
            program,
            self._backward,
            backward_axes,
            always((one, one, one)),
        )

    def _forward(self, bound: Arrays, entering: Arrays, words: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        """Tensors for other units, new values of copied variables, and anchored tensors."""
        found = self._evaluate(bound, entering, words, {})
        static = {n: found[n] for n in self._makes if isinstance(found[n], np.ndarray)}
        self._known.update(static)
        made = {n: jnp.asarray(found[n]) for n in self._makes if n not in static}
        copied = {target: jnp.asarray(found[source]) for target, source in self._copied.items()}
        return made, copied, {n: jnp.asarray(found[n]) for n in self._shown}

    def _backward(
        self, bound: Arrays, entering: Arrays, words: Arrays, leaving: Arrays
    ) -> tuple[Arrays, Arrays, Arrays]:
        """Gradients of weights, unit inputs and anchored tensors, given those of the unit's outputs (`leaving`)."""
        program = self._program
        weights = {n: bound[n] for n in self.trained}
        others = {n: x for n, x in bound.items() if n not in weights}
        floats = {n: x for n, x in entering.items() if jnp.issubdtype(x.dtype, jnp.floating)}
        fixed = {n: x for n, x in entering.items() if n not in floats}
        kinds = {t: program.types[t] for t in self._probed if t not in weights}
        probes = {t: jnp.zeros(kind.shape, kind.dtype) for t, kind in kinds.items()}

        def run(weights: Arrays, floats: Arrays, probes: Arrays) -> Arrays:
            found = self._evaluate({**others, **weights}, {**fixed, **floats}, words, probes, backward=True)
            return {n: jnp.asarray(found[n]) for n in leaving}

        made, pull = cast("tuple[Arrays, Callable[[Arrays], tuple[Arrays, Arrays, Arrays]]]",
                          jax.vjp(run, weights, floats, probes))  # fmt: skip
        with jax.named_scope("backward"):
            slopes = {
                n: jnp.broadcast_to(jnp.asarray(x).astype(made[n].dtype), made[n].shape) for n, x in leaving.items()
            }
            of_weights, of_entering, of_probes = pull(slopes)
        every = {**of_weights, **of_probes}
        shown = shown_gradients(program, {t: every[t] for t in self._probed})
        return of_weights, of_entering, shown

    def _evaluate(
        self, bound: Arrays, entering: Arrays, words: Arrays, probes: Arrays, *, backward: bool = False
    ) -> Mapping[str, Any]:
        program = self._program
        values = {**in_own_order(program, bound), **entering}
        values |= {n: x for n, x in self._known.items() if n not in values}
        key, rounding = (micro_batch_key(program, words.get(name))[1] for name in (SEED, GENERATORS))
        settings = Settings(
            program.opsets, program.training_mode, key, popart=True, options=program.options, rounding=rounding
        )
        values, settings = with_probes(values, probes, settings)
        want = sorted({*self._makes, *self._shown, *self._copied.values()})
        if self._wide is None:
            return evaluate(program.graph, values, want, settings)
        loss, found = wide_loss(program, self._wide, values, want, settings)
        return {**found, self._wide.loss: loss} if backward else found
