"""A traced program in two stages: what its weights alone decide, computed when they are loaded, and each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from .hoist import split


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


def taken(
    prepare: Callable[..., Sequence[Any]], passed: Sequence[int | None], weights: Sequence[Any]
) -> tuple[Any, ...]:
    """The arguments that take the place of the weights, by a compiled `Stages.prepare`."""
    made = iter(prepare(*weights))
    return tuple(next(made) if p is None else weights[p] for p in passed)
