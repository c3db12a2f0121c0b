"""From a step to an executable: trace, donate, compile, run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from .._compat.jax import compile_with
from .._memory import memory_free
from ..buffers import give_back
from ..limits import limits
from ..lowering.stages import Preparation, Stages, in_stages
from ..timings import phase
from . import layout
from .placement import local_part, put
from .replicas import mesh_for, replicate
from .step import Step


@dataclass(frozen=True)
class Traced:
    """A step as a jaxpr, before XLA sees it; what depends on fixed variables alone may stand beside it."""

    step: Step
    mesh: Mesh | None
    traced: Any
    stages: Stages | None = None

    @property
    def jaxpr(self) -> Any:
        """Closed jaxpr of the whole step, all replicas."""
        return self.traced.jaxpr


@phase("trace")
def trace(step: Step, *, single_device: bool = False, hoist: bool = False) -> Traced:
    """Trace a step for the devices that are there.

    State is donated, unless the step calls back into the host: a callback may fail in the middle of a run, and the old
    state must survive then. With `hoist`, what follows from fixed variables alone is taken out, to be computed when
    they are loaded.

    Raises
    ------
    popart_exception
        A node can't be translated; the message names it.
    """
    mesh = None if single_device else mesh_for(step.replicas, step.parts)
    whole = replicate(step.flat, step.in_axes, step.out_axes, step.replicas, mesh)
    arguments = step.arguments(mesh)
    places: dict[str, Any] = {}
    if mesh is not None:
        places["out_shardings"] = step.results_at(mesh)
    donated = tuple(range(len(step.taken)))
    traced = jax.jit(whole, donate_argnums=donated, **places).trace(*arguments)
    if traced.jaxpr.effects:
        donated, traced = (), jax.jit(whole, **places).trace(*arguments)
    if not hoist or mesh is not None:
        return Traced(step, mesh, traced)
    begin = len(step.taken)
    stages = in_stages(traced.jaxpr, arguments, range(begin, begin + len(step.fixed)), donated)
    return Traced(step, None, traced if stages is None else stages.step, stages)


def compile_traced(traced: Traced, options: Mapping[str, Any] | None = None) -> Executable:
    """Let XLA compile a traced step.

    Raises
    ------
    popart_exception
        A run would take more memory than `popart_jax.limits` allows; XLA would end the process.
    """
    with phase("lower"):
        lowered = traced.traced.lower()
    with phase("compile"):
        call = compile_with(lowered, options or {})
        preparation = None if traced.stages is None else Preparation.of(traced.stages)
        give_back()
    made = Executable(traced.step, traced.mesh, call, preparation, lowered)
    if made.memory is not None:
        limits.check_bytes(made.memory.peak, "A run of the program, with what lies between its operators,")
    return made


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the device's memory that one run of a compiled step takes, known before it runs.

    Attributes
    ----------
    arguments : int
        What goes in: variables, as the step reads them, and what is fed.
    results : int
        What comes out and takes over no memory of an argument.
    temporary : int
        Intermediate values, at most at one time.
    """

    arguments: int
    results: int
    temporary: int

    @property
    def peak(self) -> int:
        """All of it."""
        return self.arguments + self.results + self.temporary

    @classmethod
    def of(cls, call: Any) -> Memory | None:
        """By XLA's plan of the buffers of a compiled program; None where this backend has none."""
        plan = call.memory_analysis()
        if plan is None:
            return None
        results = plan.output_size_in_bytes - plan.alias_size_in_bytes
        return cls(plan.argument_size_in_bytes, results, plan.temp_size_in_bytes)


_MUCH = 32 << 20


@dataclass(frozen=True)
class Room:
    """Memory that a run takes beside its arguments.

    XLA looks for it when it has taken over the old state, and the end of memory is then the end of the weights.

    Attributes
    ----------
    size : int
        Bytes; 0 where they are too few to ask for them before each run, or not the host's.
    """

    size: int

    @classmethod
    def of(cls, memory: Memory | None) -> Room:
        """The room that a compiled program needs."""
        size = 0 if memory is None or jax.default_backend() != "cpu" else memory.results + memory.temporary
        return cls(size if size >= _MUCH else 0)

    def check(self) -> None:
        """Refuse a run for which there is no room now.

        Raises
        ------
        popart_exception
            With what it takes and what there is.
        """
        if self.size:
            most = min(limits.memory, memory_free())
            limits.check_bytes(self.size, "A run of the program, beside its inputs and weights,", most)


@dataclass(frozen=True)
class Executable:
    """A compiled step.

    Attributes
    ----------
    step : Step
        What was compiled.
    mesh : Mesh or None
        Devices of the replicas; None where one device takes all.
    call : jax.stages.Compiled
        The program on flat arguments: state, fixed variables (prepared), what is fed.
    preparation : Preparation or None
        What is computed once from the fixed variables and takes their place.
    lowered : jax.stages.Lowered or None
        As it was handed to XLA; None when it came from a file.
    """

    step: Step
    mesh: Mesh | None
    call: Any
    preparation: Preparation | None = None
    lowered: Any = None

    @property
    def text(self) -> str:
        """StableHLO of the step; empty when it came from a file."""
        return "" if self.lowered is None else self.lowered.as_text()

    @cached_property
    def memory(self) -> Memory | None:
        """What a run takes; None where this backend has no plan."""
        return Memory.of(self.call)

    @cached_property
    def room(self) -> Room:
        """What a run takes beside its arguments."""
        return Room.of(self.memory)

    def prepare(self, fixed: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments that stand for the fixed variables."""
        values = tuple(fixed[n] for n in self.step.fixed)
        return values if self.preparation is None else self.preparation.take(values)

    def host_views(self, arguments: Sequence[Any]) -> dict[str, np.ndarray]:
        """Fixed variables that the CPU's memory already has in the arguments that `prepare` made, in another order."""
        if self.preparation is None or self.mesh is not None or jax.default_backend() != "cpu":
            return {}
        fixed = list(self.step.fixed.items())
        views = [(*fixed[i], x) for i, x in self.preparation.views(arguments).items()]
        return {name: x for name, kind, x in views if not kind.individual and kind.order is None}

    def run(
        self, state: Mapping[str, Any], fixed: Sequence[Any], fed: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run once, with the arguments that `prepare` made; returns the new state and the results.

        Raises
        ------
        popart_exception
            There is no room for it now; the state is as before.
        """
        self.room.check()
        step = self.step
        found = self.call(*(state[n] for n in step.taken), *fixed, *(fed[n] for n in step.fed))
        count = len(step.state)
        return dict(zip(step.state, found[:count], strict=True)), dict(zip(step.results, found[count:], strict=True))

    def put_variable(self, name: str, host: np.ndarray) -> jax.Array:
        """A resident array, given with one value per group of replicas."""
        variable = self.step.state.get(name) or self.step.fixed[name]
        array = layout.to_device_layout(variable, host)
        if variable.individual:
            array = local_part(array, 0)
        array = np.asarray(array, variable.type.dtype, order="C")
        return put(array, self.mesh, variable.axis, variable.device_split, donated=name in self.step.state)

    def put_fed(self, name: str, host: np.ndarray | jax.Array) -> jax.Array:
        """A fed array of this process's replicas, put on the devices before the run (unless it is there)."""
        if isinstance(host, jax.Array):
            return host
        fed, local = self.step.fed[name], self.step.replicas // jax.process_count()
        return put(host.reshape(fed.whole(local)), self.mesh, fed.axis, fed.split, donated=False)
