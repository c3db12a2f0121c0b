"""The devices of one stage, and compilation of one replica's functions for all replicas there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, Sharding, SingleDeviceSharding

from ...lowering.full_precision import full_precision
from ..program import AXIS, Program
from ..replicas import map_axes, replicate, spec

Axes = Any  # None, int, or a pytree of them, as for `replicate`


def always(axes: Axes) -> Callable[..., Axes]:
    """The same axes, whatever the arguments are; see `Place.compiled`."""

    def given(*_: Any) -> Axes:
        return axes

    return given


@dataclass(frozen=True)
class Place:
    """The devices on which a stage runs."""

    devices: tuple[Any, ...]  # one per replica, or a single one that runs all replicas

    @cached_property
    def mesh(self) -> Mesh | None:
        """The devices of the replicas; None where a single one runs all."""
        return None if len(self.devices) == 1 else Mesh(np.asarray(self.devices), (AXIS,))

    def sharding(self, axis: int | None) -> Sharding:
        """Sharding of an array whose dimension `axis` is the replica."""
        return SingleDeviceSharding(self.devices[0]) if self.mesh is None else NamedSharding(self.mesh, spec(axis))

    def put(self, x: Any, axis: int | None) -> jax.Array:
        """Transfer an array to this place."""
        return jax.device_put(x, self.sharding(axis))

    def compiled(
        self, program: Program, function: Callable[..., Any], takes: Callable[..., Axes], gives: Callable[..., Axes]
    ) -> Callable[..., Any]:
        """Compile one replica's function as a function of all replicas of a program.

        `takes` and `gives` tell, from the arguments, the index of the replica dimension in each argument (a tuple) and
        in the result.
        """
        function, replicas = full_precision()(function), program.structure.replicas
        if replicas == 1:
            return jax.jit(function)

        def call(*arguments: Any) -> Any:
            axes, shared = gives(*arguments), self.mesh is None
            every = replicate(function, takes(*arguments), 0 if shared else axes, replicas, self.mesh)(*arguments)
            return map_axes(_settled, axes, every) if shared else every

        return jax.jit(call)


def _settled(axis: int | None, every: jax.Array) -> jax.Array:
    """Results with the replica as first dimension, in the layout of `axis`; of a shared value, that of replica 0."""
    return every[0] if axis is None else jnp.moveaxis(every, 0, axis)


def places(program: Program, numbers: Iterable[int], found: list[Any]) -> list[Place]:
    """The place of each virtual graph: one device per replica if there are enough devices, else one for all replicas.

    The devices of one replica have consecutive numbers.
    """
    numbers, replicas = list(numbers), program.structure.replicas
    count = max(numbers, default=0) + 1
    if replicas == 1 or len(found) < count * replicas:
        return [Place((found[n],)) for n in numbers]
    return [Place(tuple(found[n : count * replicas : count])) for n in numbers]


def each(program: Program) -> int | None:
    """The replica dimension of values that every replica computes for itself."""
    return 0 if program.structure.replicas > 1 else None


def replica_axis(program: Program, name: str) -> int | None:
    """The replica dimension of a stream or a variable; None where replicas share it, as they do hyperparameters."""
    if name in program.streams:
        return None if name in program.broadcast else each(program)
    return program.variables[name].axis if name in program.variables else None


def replica_axes(program: Program, names: Iterable[str]) -> dict[str, int | None]:
    """The replica dimension of each of several streams or variables, by name."""
    return {n: replica_axis(program, n) for n in names}
