"""From a step to an executable: tracing, donation, compilation, and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import Mesh

from .._compat.jax import compile_with, forget_effects, setting
from .._process.heap import give_back
from ..errors import popart_exception
from ..limits import limits
from ..lowering.full_precision import full_precision
from ..lowering.on_load.stages import Stages, in_stages, preparation_of
from ..ops.kernels import fixed_weights
from ..ops.stopping import calls_host
from ..preparation import Preparation
from ..timings import phase
from . import layout
from .placement import as_argument, local_part, put
from .program import Type
from .replicas import mesh_for, replicate
from .room import Room
from .step import Step
from .written_results import ResultMemory


@dataclass(frozen=True)
class Traced:
    """A step as a jaxpr, before XLA compiles it; computations of fixed variables alone may be split off as a stage."""

    step: Step
    mesh: Mesh | None
    traced: Any
    stages: Stages | None = None
    may_fail: bool = False

    @property
    def jaxpr(self) -> Any:
        """Closed jaxpr of the whole step, all replicas."""
        return self.traced.jaxpr


@phase("trace")
def trace(step: Step, *, single_device: bool = False, hoist: bool = False) -> Traced:
    """Trace a step for the available devices.

    State is donated, unless the step calls back into the host: a callback may fail in the middle of a run, and the old
    state must survive then. With `hoist`, computations that depend on fixed variables alone are split off, to run once
    when these are loaded. Raises popart_exception, which names the node, where one can't be translated; also where
    `jax_disable_jit` is set.
    """
    if setting("jax_disable_jit"):
        raise popart_exception(
            "Sessions run compiled programs, and jax_disable_jit is set, under which JAX compiles and runs none.\n"
            "  fix: put the session into `with jax.disable_jit(False):`; for one operator after another use to_jax."
        )
    mesh = None if single_device else mesh_for(step.replicas, step.parts)
    stay = hoist and mesh is None
    with fixed_weights(sum(v.type.nbytes for v in step.fixed.values()) if stay else None):
        traced = _traced(step, mesh, step.donated)
    may_fail = calls_host(traced.jaxpr)
    if may_fail:
        step = replace(step, written={})
        traced = _traced(step, mesh, ())
    if not stay:
        return Traced(step, mesh, traced, may_fail=may_fail)
    begin, donated = len(step.taken), () if may_fail else step.donated
    stages = in_stages(traced.jaxpr, step.arguments(mesh), range(begin, begin + len(step.fixed)), donated)
    return Traced(step, None, traced if stages is None else stages.step, stages, may_fail)


def _traced(step: Step, mesh: Mesh | None, donated: tuple[int, ...]) -> Any:
    whole = full_precision()(replicate(step.flat, step.in_axes, step.out_axes, step.replicas, mesh))
    places: dict[str, Any] = {} if mesh is None else {"out_shardings": step.results_at(mesh)}
    unread = bool(step.written)  # memory for results is no more than that, and JAX drops what nothing reads
    return jax.jit(whole, donate_argnums=donated, keep_unused=unread, **places).trace(*step.arguments(mesh))


def compile_traced(traced: Traced, options: Mapping[str, Any] | None = None, *, device: Any = None) -> Executable:
    """Let XLA compile a traced step, for JAX's devices or for another one.

    Raises popart_exception where a run would need more memory than `popart_jax.limits` allows, in which case XLA would
    end the process.
    """
    with phase("lower"), nullcontext() if device is None else jax.default_device(device):
        lowered = traced.traced.lower()
    with phase("compile"):
        call = compile_with(lowered, options or {})
        preparation = None if traced.stages is None else preparation_of(traced.stages)
        give_back()
    made = Executable(traced.step, traced.mesh, call, preparation, lowered, traced.may_fail, device)
    if made.memory is not None:
        limits.check_bytes(made.memory.peak, "A run of the program, with what lies between its operators,")
    return made


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of device memory that one run of a compiled step needs, known before it runs."""

    arguments: int  # inputs: variables, as the step reads them, and fed arrays
    results: int  # outputs, without those that take the place of old state
    temporary: int  # largest total of intermediate values at one time

    @property
    def peak(self) -> int:
        """The sum of arguments, results and temporary memory."""
        return self.arguments + self.results + self.temporary

    @classmethod
    def of(cls, call: Any, written: int = 0) -> Memory | None:
        """From XLA's buffer assignment for a compiled program; None where this backend reports none.

        `written` are the bytes of arguments that are no more than memory for results.
        """
        plan = call.memory_analysis()
        if plan is None:
            return None
        results = plan.output_size_in_bytes - plan.alias_size_in_bytes
        return cls(plan.argument_size_in_bytes - written, results + written, plan.temp_size_in_bytes)


def room_of(memory: Memory | None) -> Room:
    """Host memory that a compiled program needs in addition to its arguments."""
    if memory is None or jax.default_backend() != "cpu":
        return Room(0)
    return Room.of(memory.results + memory.temporary)


@dataclass(frozen=True)
class Executable:
    """A compiled step."""

    step: Step  # the step that was compiled
    mesh: Mesh | None  # devices of the replicas; None where one device runs all of them
    call: Any  # the program on flat arguments: state, fixed variables (as prepared), fed arrays
    # computed once from the fixed variables; its results are passed in their place
    preparation: Preparation | None = None
    lowered: Any = None  # the lowered program given to XLA; None when the executable was loaded from a file
    # whether a run may be stopped half-way by the host. It is waited for, so that the old state is kept until then
    may_fail: bool = False
    apart: Any = None  # the device that it was compiled for, if that is none of JAX's

    @property
    def text(self) -> str:
        """StableHLO of the step; empty when it was loaded from a file."""
        return "" if self.lowered is None else self.lowered.as_text()

    @property
    def function(self) -> Callable[..., Any]:
        """The program as a function of flat arguments, which returns when no error can come any more."""
        if not self.may_fail:
            return self.call
        return self._to_the_end

    def _to_the_end(self, *arguments: Any) -> Any:
        try:
            return cast("Any", jax.block_until_ready(self.call(*arguments)))
        except Exception:
            forget_effects()
            raise

    @cached_property
    def memory(self) -> Memory | None:
        """Memory of a run; None where this backend does not report it."""
        return Memory.of(self.call, sum(x.nbytes for x in self.step.written.values()))

    @property
    def device(self) -> Any:
        """The device of a program of one device, with any arguments."""
        (place,) = jax.tree.leaves(self.call.input_shardings)[0].device_set
        return place

    @cached_property
    def is_in_place(self) -> bool:
        """Whether XLA writes all it may into the memory of arguments: state, and results that memory is passed for."""
        plan = self.call.memory_analysis()
        arguments = self.step.arguments(self.mesh)
        donated = sum(Type(arguments[i].shape, arguments[i].dtype).nbytes for i in self.step.donated)
        return plan is not None and plan.alias_size_in_bytes >= donated

    @cached_property
    def room(self) -> Room:
        """Host memory that a run needs in addition to its arguments."""
        return room_of(self.memory)

    def prepare(self, fixed: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments that the program takes in place of the fixed variables."""
        values = tuple(fixed[n] for n in self.step.fixed)
        if self.preparation is not None:
            values = self.preparation.take(values, cast("Callable[..., jax.Array]", jax.device_put))
        return values if self.apart is None else tuple(jax.device_put(x, self.apart) for x in values)

    def host_views(self, arguments: Sequence[Any]) -> dict[str, np.ndarray]:
        """Fixed variables as views of the arguments that `prepare` returned, if those hold them in another layout."""
        if self.preparation is None or self.mesh is not None or jax.default_backend() != "cpu":
            return {}
        fixed = list(self.step.fixed.items())
        views = [(*fixed[i], x) for i, x in self.preparation.views(arguments).items()]
        return {name: x for name, kind, x in views if not kind.individual and kind.order is None}

    def run(
        self,
        state: Mapping[str, Any],
        fixed: Sequence[Any],
        fed: Mapping[str, Any],
        memories: Sequence[ResultMemory] = (),
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run once, with the arguments that `prepare` returned; returns the new state and the results.

        Results that are written into `memories` are views of them, and last until the next run. Raises popart_exception
        where there is not enough free memory; the state is unchanged.
        """
        self.room.ensure()
        step = self.step
        given = (*(state[n] for n in step.taken), *fixed, *(self._argument(fed[n]) for n in step.fed))
        found = self.function(*given, *(m.argument() for m in memories))
        count = len(step.state)
        results = dict(zip(step.results, found[count:], strict=True))
        for name, memory in zip(step.written, memories, strict=True):
            memory.array = results[name]
            memory.finish()
            results[name] = memory.view()
        return dict(zip(step.state, found[:count], strict=True)), results

    def _argument(self, fed: np.ndarray | jax.Array) -> np.ndarray | jax.Array:
        elsewhere = self.apart is not None and isinstance(fed, jax.Array)
        return jax.device_put(fed, self.apart) if elsewhere else as_argument(fed)

    def put_variable(self, name: str, host: np.ndarray) -> jax.Array:
        """A resident array, from a host array with one value per group of replicas."""
        variable = self.step.state.get(name) or self.step.fixed[name]
        array = layout.to_device_layout(variable, host)
        if variable.individual:
            array = local_part(array, 0)
        array = np.asarray(array, variable.type.dtype)  # in any order: `put` copies it into rows
        return put(array, self.mesh, variable.axis, variable.device_split, donated=name in self.step.state)

    def put_fed(self, name: str, host: np.ndarray | jax.Array) -> jax.Array:
        """A fed array of this process's replicas on the devices; an array that is there already is returned."""
        if isinstance(host, jax.Array):
            return host
        fed, local = self.step.fed[name], self.step.replicas // jax.process_count()
        return put(host.reshape(fed.whole(local)), self.mesh, fed.axis, fed.split, donated=False)
