"""From a step program to an executable: trace, donate, compile, and the calls that feed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from .._compat.jax import compile_with
from ..buffers import give_back, lasting
from ..lowering.stages import Preparation, Stages, in_stages
from . import container, layout
from .program import SEED, Program
from .replicas import mesh_for, replicate, spec
from .signature import Signature
from .step import make_step


@dataclass(frozen=True)
class Traced:
    """A step program as a jaxpr, before XLA sees it; what depends on fixed weights alone may stand beside it."""

    program: Program
    mesh: Mesh | None
    traced: Any
    stages: Stages | None = None

    @property
    def jaxpr(self) -> Any:
        """Closed jaxpr of the whole step, all replicas."""
        return self.traced.jaxpr


def trace(program: Program, hyper_size: int, *, single_device: bool = False, hoist: bool = False) -> Traced:
    """Trace the step of a program for the devices that are there.

    With `hoist`, what follows from fixed variables alone is taken out, to be computed when they are loaded.

    Raises
    ------
    popart_exception
        A node can't be translated; the message names it.
    """
    mesh = None if single_device else mesh_for(program.structure.replicas)
    in_axes, out_axes = layout.axes(program)
    signature = Signature.of(program)
    whole = signature.flat(replicate(make_step(program), in_axes, out_axes, program.structure.replicas, mesh))
    avals = signature.pack(*_avals(program, hyper_size, in_axes, mesh))
    shardings = _out_shardings(signature.pack_results(*out_axes), mesh)
    state = tuple(range(len(signature.changing)))
    traced = jax.jit(whole, donate_argnums=state, **shardings).trace(*avals)
    if traced.jaxpr.effects:  # a host callback may fail in the middle of a run: the old state must survive then
        state, traced = (), jax.jit(whole, **shardings).trace(*avals)
    if not hoist or mesh is not None:
        return Traced(program, mesh, traced)
    begin = len(signature.changing)
    stages = in_stages(traced.jaxpr, avals, range(begin, begin + len(signature.fixed)), state)
    return Traced(program, None, traced if stages is None else stages.step, stages)


def _out_shardings(out_axes: Any, mesh: Mesh | None) -> dict[str, Any]:
    if mesh is None:
        return {}
    return {"out_shardings": tuple(NamedSharding(mesh, spec(a)) for a in out_axes)}


def _avals(program: Program, hyper_size: int, in_axes: Any, mesh: Mesh | None) -> tuple[Any, ...]:
    replicas = program.structure.replicas
    changing_axes, fixed_axes, _, stream_axes = in_axes

    def aval(shape: Any, dtype: Any, axis: int | None) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            tuple(shape), dtype, sharding=None if mesh is None else NamedSharding(mesh, spec(axis))
        )

    def variable(name: str, axis: int | None) -> jax.ShapeDtypeStruct:
        if name == SEED:
            return aval((2,), np.uint32, None)
        held = program.variables[name]
        return aval(layout.device_shape(held, replicas), held.type.dtype, axis)

    shapes = layout.input_shapes(program, replicas)
    return (
        {n: variable(n, a) for n, a in changing_axes.items()},
        {n: variable(n, a) for n, a in fixed_axes.items()},
        aval((hyper_size,), np.float32, None),
        {n: aval(shapes[n], program.streams[n].dtype, a) for n, a in stream_axes.items()},
    )


def compile_traced(traced: Traced, options: Mapping[str, Any] | None = None) -> Executable:
    """Let XLA compile a traced step."""
    lowered = traced.traced.lower()
    call = compile_with(lowered, options or {})
    preparation = None if traced.stages is None else Preparation.of(traced.stages)
    give_back()
    return Executable(traced.program, traced.mesh, call, preparation, lowered)


def from_container(program: Program, path: Path, handle: str) -> Executable:
    """A step that was compiled before, from a file."""
    call, prepare = container.load(path, handle), container.load(path, handle + PREPARE)
    assert call is not None
    preparation = None if prepare is None else Preparation.noted(prepare, container.note(path, handle + PREPARE))
    return Executable(program, mesh_for(program.structure.replicas), call, preparation)


PREPARE = "/weights"
"""Suffix of a handle: the program that makes what the step reads of its fixed variables."""


class Executable:
    """A compiled step; `put_*` bring host arrays to the device in the layout it expects.

    Attributes
    ----------
    signature : Signature
        Order of the flat arguments and results of `call`, fixed variables before they are prepared.
    call : jax.stages.Compiled
        The step, on flat arguments.
    preparation : Preparation or None
        What is computed once from the fixed variables and takes their place.
    """

    def __init__(
        self,
        program: Program,
        mesh: Mesh | None,
        call: Any,
        preparation: Preparation | None = None,
        lowered: Any = None,
    ) -> None:
        self.program, self.mesh, self.call, self.preparation, self._lowered = program, mesh, call, preparation, lowered
        self.signature = Signature.of(program)
        (self._changing, self._fixed, _, self._streams), _ = layout.axes(program)

    @property
    def text(self) -> str:
        """StableHLO of the step; empty when it came from a file."""
        return "" if self._lowered is None else self._lowered.as_text()

    @property
    def parts(self) -> dict[str, Any]:
        """What a container keeps, by suffix of the handle."""
        return {"": self.call} if self.preparation is None else {"": self.call, PREPARE: self.preparation.call}

    @property
    def notes(self) -> dict[str, Any]:
        """What a container keeps about `parts`, as JSON."""
        return {} if self.preparation is None else {PREPARE: self.preparation.note}

    def take(self, fixed: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments that stand for the fixed variables."""
        values = tuple(fixed[n] for n in self.signature.fixed)
        return values if self.preparation is None else self.preparation.take(values)

    def host_views(self, arguments: Sequence[Any]) -> dict[str, np.ndarray]:
        """Fixed variables that the CPU's memory holds already, in the arguments that `take` made, in another order."""
        if self.preparation is None or self.mesh is not None or jax.default_backend() != "cpu":
            return {}
        names, known = self.signature.fixed, self.program.variables
        views = {names[i]: x for i, x in self.preparation.views(arguments).items()}
        return {n: x for n, x in views.items() if not known[n].individual and known[n].order is None}

    def step(self, changing: Mapping[str, Any], fixed: Sequence[Any], hyper: Any, feeds: Mapping[str, Any]) -> Any:
        """Run once, with what `take` gave; returns the new variables and the anchors by name."""
        signature = self.signature
        state, streams = (changing[n] for n in signature.changing), (feeds[n] for n in signature.streams)
        results = self.call(*state, *fixed, *((hyper,) if signature.hyper else ()), *streams)
        return signature.unpack_results(results)

    def put_variable(self, name: str, host: np.ndarray) -> jax.Array:
        """A variable, given with one value per group."""
        variable = self.program.variables[name]
        array = layout.to_device_layout(variable, host)
        axis = self._changing.get(name, self._fixed.get(name))
        if variable.individual and jax.process_count() > 1:
            local = len(array) // jax.process_count()
            array = array[jax.process_index() * local :][:local]
        return self._put(np.asarray(array, variable.type.dtype, order="C"), axis, name in self._changing)

    def put_seed(self, words: np.ndarray) -> jax.Array:
        """The random seed, low word first."""
        return self._put(words, None, True)

    def put_hyper(self, values: np.ndarray) -> jax.Array:
        """The vector of hyperparameters."""
        return self._put(values, None, False)

    def stream(self, name: str, host: np.ndarray) -> Any:
        """A fed array, of its full shape; handed to the call as it is where one device takes all."""
        return host if self.mesh is None else self._put(host, self._streams[name], False)

    def _put(self, host: np.ndarray, axis: int | None, owned: bool) -> jax.Array:
        if self.mesh is None:
            # an own copy: device_put may share memory with an aligned NumPy array, which donation would then reuse
            return jax.numpy.array(host, copy=True) if owned else jax.device_put(lasting(host))
        sharding = NamedSharding(self.mesh, spec(axis))
        if jax.process_count() > 1:
            return jax.make_array_from_process_local_data(sharding, host)  # streams and seeds are local already
        return jax.device_put(host, sharding, may_alias=False)


def to_every_host(array: jax.Array) -> np.ndarray:
    """Contents of a device array, those of other processes' replicas included; all processes must call it."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return to_host(array)
    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


def to_host(array: jax.Array) -> np.ndarray:
    """Contents of a device array; of this process's replicas when several processes share it."""
    if array.is_fully_addressable:
        return np.asarray(array)
    if array.is_fully_replicated:
        return np.asarray(array.addressable_shards[0].data)
    shards = sorted(array.addressable_shards, key=lambda s: [i.start or 0 for i in s.index])
    axis = next(i for i, part in enumerate(shards[0].index) if part.start is not None)
    return np.concatenate([np.asarray(s.data) for s in shards], axis)
