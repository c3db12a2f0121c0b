"""A traced program in two stages: what its weights alone decide, computed when they are loaded, and each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .._compat.jax import compile_with
from .hoist import split
from .host_program import HostProgram
from .weight_views import Origin, inverse_views, seen_as

_RUNS_ONCE = {"xla_backend_optimization_level": "0"}
"""ResNet-50's weights: 0.45 s of compiling instead of 0.85, for 0.11 s of running instead of 0.08."""


@dataclass(frozen=True, slots=True)
class Stages:
    """A program as two traced ones: what weights alone decide, and the rest of it.

    Attributes
    ----------
    prepare : jax.stages.Traced
        From the weights to what is computed of them.
    step : jax.stages.Traced
        The program, with what it reads of the weights in the place of the weights.
    passed : tuple of int or None
        For each argument that takes this place: which weight it is, None for the next result of `prepare`.
    """

    prepare: Any
    step: Any
    passed: tuple[int | None, ...]


def in_stages(closed: Any, avals: Sequence[Any], weights: range, donated: tuple[int, ...] = ()) -> Stages | None:
    """Split a program by its weights; None if nothing can be computed from them alone.

    Parameters
    ----------
    closed : jax.extend.core.ClosedJaxpr
        The program.
    avals : sequence of jax.ShapeDtypeStruct
        Its arguments.
    weights : range
        Which of them are weights.
    donated : tuple of int
        Arguments before the weights whose memory the program may take over.
    """
    begin, end = weights.start, weights.stop
    halves = split(closed, [i in weights for i in range(len(avals))])
    if halves is None:
        return None

    def early(*values: Any) -> tuple[Any, ...]:
        return tuple(x for x, p in zip(halves.early(*values), halves.passed, strict=True) if p is None)

    prepare = jax.jit(early).trace(*avals[begin:end])
    made = iter(jax.tree.leaves(prepare.out_info))
    read = [next(made) if p is None else avals[begin + p] for p in halves.passed]
    inner = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in read]

    def step(*args: Any) -> tuple[Any, ...]:
        before, made, behind = args[:begin], args[begin : begin + len(inner)], args[begin + len(inner) :]
        return tuple(halves.late(*made, *before, *behind))

    return Stages(
        prepare, jax.jit(step, donate_argnums=donated).trace(*avals[:begin], *inner, *avals[end:]), halves.passed
    )


@dataclass(frozen=True, slots=True)
class Preparation:
    """The first stage, ready to run.

    Attributes
    ----------
    call : jax.stages.Compiled or HostProgram
        From the weights to what is computed of them.
    passed : tuple of int or None
        As in `Stages`.
    back : mapping of int to Origin
        The weights that a result of `call` holds in another order.
    """

    call: Any
    passed: tuple[int | None, ...]
    back: Mapping[int, Origin]

    @classmethod
    def of(cls, stages: Stages) -> Preparation:
        """By NumPy where the device's memory is the host's and NumPy can, else compiled."""
        on_cpu = jax.default_backend() == "cpu"
        call = HostProgram.of(stages.prepare.jaxpr) if on_cpu else None
        if call is None:
            call = compile_with(stages.prepare.lower(), _RUNS_ONCE if on_cpu else {})
        return cls(call, stages.passed, inverse_views(stages.prepare.jaxpr))

    @classmethod
    def noted(cls, call: Any, note: Mapping[str, Any]) -> Preparation:
        """Of a compiled program, None without one, and its `note`, from a file."""
        back = {weight: (result, tuple((k, tuple(v)) for k, v in moves)) for weight, result, moves in note["back"]}
        return cls(HostProgram.noted(note["host"]) if call is None else call, tuple(note["passed"]), back)

    @property
    def code(self) -> Any:
        """The compiled program; None where NumPy does the work."""
        return None if isinstance(self.call, HostProgram) else self.call

    @property
    def note(self) -> dict[str, Any]:
        """What there is to know beside `code`, for JSON."""
        host = self.call.note if isinstance(self.call, HostProgram) else None
        back = [(w, result, moves) for w, (result, moves) in self.back.items()]
        return {"passed": self.passed, "back": back, "host": host}

    def take(self, weights: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments that take the place of the weights."""
        made = iter(self.call(*weights))
        return tuple(next(made) if p is None else weights[p] for p in self.passed)

    def views(self, arguments: Sequence[Any]) -> dict[int, np.ndarray]:
        """The weights that these arguments hold in another order, as views of their memory."""
        made = [np.asarray(x) for x, p in zip(arguments, self.passed, strict=True) if p is None]
        found = {weight: (made[result], seen_as(made[result], views)) for weight, (result, views) in self.back.items()}
        return {weight: view for weight, (array, view) in found.items() if np.may_share_memory(array, view)}
