"""A traced program in two stages: one computed from the weights when they are loaded, one for each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from ..._compat.jax import compile_with
from ...preparation import Preparation
from .hoist import split
from .host_reader import host_program
from .weight_views import inverse_views

_RUNS_ONCE = {"xla_backend_optimization_level": "0"}
"""Options of the first stage: for ResNet-50 compiling takes 0.45 s in place of 0.85, running 0.11 in place of 0.08."""


@dataclass(frozen=True, slots=True)
class Stages:
    """A program as two traced ones: the part that depends on weights alone, and the rest."""

    prepare: Any  # takes the weights and computes the values that `step` reads in their place
    step: Any  # the program, which takes the values computed from the weights in place of the weights
    # for each of these values: the index of the weight that it is, None if it is the next result of `prepare`
    passed: tuple[int | None, ...]


def in_stages(closed: Any, avals: Sequence[Any], weights: range, donated: tuple[int, ...] = ()) -> Stages | None:
    """Split a program by which of its arguments are `weights`; None if nothing can be computed from them alone.

    `donated` are indices of arguments, before or behind the weights, that are donated to the program.
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

    moved = tuple(i if i < begin else i - (end - begin) + len(inner) for i in donated)
    unread = any(i >= end for i in donated)  # what is donated there is memory for results, which nothing reads
    late = jax.jit(step, donate_argnums=moved, keep_unused=unread)
    return Stages(prepare, late.trace(*avals[:begin], *inner, *avals[end:]), halves.passed)


def preparation_of(stages: Stages) -> Preparation:
    """The first stage, ready to run: in NumPy if the device is the CPU and NumPy can compute it, else compiled."""
    on_cpu = jax.default_backend() == "cpu"
    call = host_program(stages.prepare.jaxpr) if on_cpu else None
    if call is None:
        call = compile_with(stages.prepare.lower(), _RUNS_ONCE if on_cpu else {})
    return Preparation(call, stages.passed, inverse_views(stages.prepare.jaxpr))
