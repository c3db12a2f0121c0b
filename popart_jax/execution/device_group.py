"""What of a step in stages lives on one device, and the functions that run there between the passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from . import anchors as buffers_of
from . import update
from .batches import at_the_end
from .micro import in_own_order, rounding_key
from .program import Anchor, Program, Training

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """What lives on one device: variables, the rules of its weights, anchors."""

    device: Any
    variables: frozenset[str]
    training: Training | None
    anchors: tuple[Anchor, ...]


class Functions:
    """Updates and records on one device, compiled."""

    def __init__(self, program: Program, group: Group) -> None:
        self.program, self.group = program, group
        self.accumulate = jax.jit(self._accumulate)
        self.apply = jax.jit(self._apply)
        self.start = jax.jit(lambda carried: update.start(program, self._training, carried))
        self.record = jax.jit(self._record, static_argnames="repeat")
        self.empty = jax.jit(
            lambda: buffers_of.empty(group.anchors, program.types, program.structure),
            out_shardings=jax.sharding.SingleDeviceSharding(group.device),
        )
        self.last = jax.jit(lambda changing: at_the_end(program, in_own_order(program, changing)))

    @property
    def _training(self) -> Training:
        assert self.group.training is not None
        return self.group.training

    def _scalars(self, hyper: Any) -> dict[str, Any]:
        return {w: update.hyper_of(self._training, w, hyper) for w in self._training.rules}

    def _accumulate(self, working: Any, gradients: Arrays, hyper: Any, index: Any, seed: Any) -> tuple[Any, Arrays]:
        rounding = rounding_key(self.program, seed)
        working = update.accumulate(self._training, working, gradients, self._scalars(hyper), index, rounding)
        return working, in_own_order(self.program, update.accumulators(self._training, working, index))

    def _apply(self, carried: Arrays, working: Any, gradients: Arrays, hyper: Any, seed: Any) -> tuple[Arrays, Arrays]:
        found = update.apply(
            self.program, self._training, carried, working, gradients, self._scalars(hyper),
            rounding_key(self.program, seed),
        )  # fmt: skip
        return found[0], in_own_order(self.program, found[1])

    def _record(self, buffers: Arrays, values: Arrays, counter: Any, repeat: int = 1) -> Arrays:
        plain = in_own_order(self.program, values)
        return buffers_of.record(buffers, self.group.anchors, plain, counter, repeat)
