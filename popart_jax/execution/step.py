"""A step as data: one replica's pure function, and the arrays that it takes and returns.

Sessions and PopXL programs both become such steps; `compiled.py` traces, compiles and runs them, `pricing.py` prices
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
from jax.sharding import Mesh

from . import layout
from .placement import sharding
from .program import Type, Variable

Tensors = dict[str, Any]
StepFunction = Callable[[Tensors, Tensors, Tensors], tuple[Mapping[str, Any], Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Fed:
    """An array that the host passes to each run."""

    type: Type  # type of one replica's part
    axis: int | None = None  # index of the replica dimension in the array of all replicas; None where they share one
    split: tuple[Any, ...] = ()  # mesh axes along which the dimensions of one replica's part are split

    def whole(self, replicas: int) -> tuple[int, ...]:
        """Shape of the array of all `replicas`."""
        shape = self.type.shape
        return shape if self.axis is None else (*shape[: self.axis], replicas, *shape[self.axis :])


@dataclass(frozen=True)
class Step:
    """A function that is compiled as one program, with its arguments and results."""

    # ``(state, fixed, fed) -> (new state, results)`` of one replica; each of them is a dictionary by name
    function: StepFunction
    state: Mapping[str, Variable]  # resident arrays that a run replaces; the old ones are donated
    fixed: Mapping[str, Variable]  # resident arrays that a run only reads
    fed: Mapping[str, Fed]  # arrays that the host passes
    # index of the replica dimension in each array that a run returns in addition to the new state
    results: Mapping[str, int | None]
    replicas: int = 1  # number of replicas of all processes together
    # state that the function creates without reading its old value
    created: frozenset[str] = field(default_factory=frozenset[str])
    parts: int = 1  # number of devices of each replica
    # results that are written into the memory of the last arguments, which are donated; types of all replicas together
    written: Mapping[str, Type] = field(default_factory=dict[str, Type])

    @cached_property
    def taken(self) -> tuple[str, ...]:
        """State that is an argument: the first arguments of the compiled program, before `fixed` and `fed`."""
        return tuple(n for n in self.state if n not in self.created)

    @cached_property
    def donated(self) -> tuple[int, ...]:
        """Indices of the flat arguments whose memory a run takes."""
        fed = len(self.taken) + len(self.fixed) + len(self.fed)
        return (*range(len(self.taken)), *range(fed, fed + len(self.written)))

    @cached_property
    def in_axes(self) -> tuple[int | None, ...]:
        """Index of the replica dimension in each flat argument."""
        resident = [self.state[n] for n in self.taken] + list(self.fixed.values())
        return (*(v.axis for v in resident), *(x.axis for x in self.fed.values()), *(None for _ in self.written))

    @cached_property
    def out_axes(self) -> tuple[int | None, ...]:
        """Index of the replica dimension in each flat result: the new state, then `results`."""
        return (*(v.axis for v in self.state.values()), *self.results.values())

    def flat(self, *arguments: Any) -> tuple[Any, ...]:
        """The function on flat arguments; plain tuples cost less per call than dictionaries."""
        rest = iter(arguments)
        taken, fixed, fed = ({n: next(rest) for n in names} for names in (self.taken, self.fixed, self.fed))
        state, results = self.function(taken, fixed, fed)
        return (*(state[n] for n in self.state), *(results[n] for n in self.results))

    def arguments(self, mesh: Mesh | None) -> list[jax.ShapeDtypeStruct]:
        """Shapes, types and shardings of the flat arguments, for all replicas together."""
        resident = [self.state[n] for n in self.taken] + list(self.fixed.values())
        kinds = [(tuple(layout.device_shape(v, self.replicas)), v.type.dtype) for v in resident]
        kinds += [(x.whole(self.replicas), x.type.dtype) for x in self.fed.values()]
        kinds += [(x.shape, x.dtype) for x in self.written.values()]
        splits = [
            *(v.device_split for v in resident),
            *(x.split for x in self.fed.values()),
            *(() for _ in self.written),
        ]
        return [
            jax.ShapeDtypeStruct(shape, dtype, sharding=sharding(mesh, axis, split))
            for (shape, dtype), axis, split in zip(kinds, self.in_axes, splits, strict=True)
        ]

    def results_at(self, mesh: Mesh | None) -> tuple[Any, ...]:
        """Shardings of the flat results."""
        state = (sharding(mesh, v.axis, v.device_split) for v in self.state.values())
        return (*state, *(sharding(mesh, axis) for axis in self.results.values()))
