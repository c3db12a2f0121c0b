"""A session's compiled programs and the state that stays on the device between runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

import jax
import numpy as np

from .._compat.jax import cache_hits, shortest_call
from ..execution import HYPER, Executable, Program, Step, compile_traced, one_thread, step_of, trace
from ..execution.compiled import Traced
from ..execution.graph_passes import LaidOut, lay_out
from ..execution.layout import from_device_order, group_values, replica_values
from ..execution.micro import GRADIENT
from ..execution.placement import as_argument, at_each_run, to_every_host, to_host, written_results
from ..execution.program import GENERATORS, SEED
from ..execution.replicas import mesh_for
from ..execution.stored import executables as stored
from ..execution.stored.container import Sealed
from ..execution.uninterrupted import Uninterrupted
from ..execution.written_results import Destinations, WrittenResults
from ..lowering.interpreter import names
from ..lowering.passes import autotune
from ..ops.kernels import library_called, may_call_libraries, platform, staying
from ..timings import phase
from .devices.staging import staged, wants_devices
from .feeding.arrays import AnchorFact, StreamFact
from .preparing import Prepared
from .progress import reporter
from .start import MAIN

FORWARD_ONLY = "implicitPipeliningFwdOnly"
_PHASES = 3  # laying out, tracing, compiling


@dataclass(frozen=True)
class Loaded:
    """One compiled program, with types and shapes of its inputs and anchors."""

    laid_out: LaidOut
    executable: Executable
    streams: list[StreamFact]
    anchors: list[AnchorFact]
    written: WrittenResults


class Engine:
    """Compiled programs, variables on the device, the random seed and the hyperparameters.

    Threads may share one: steps and writes come one after another. Reads do not wait, so that a host callback may look
    at variables while its step runs; where a step of another thread took the arrays meanwhile, they read again.
    """

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self._turn, self._settling = threading.RLock(), threading.Lock()
        self.portable = True  # XLA:CPU can't serialise programs that came from a cache or that call libraries
        self.programs: dict[str, Loaded] = {}
        self._changing: dict[str, Any] = {}
        self._landed: list[tuple[Any, ...]] = []  # results of a step that was interrupted before they were stored
        self._destinations: Destinations | None = None  # where these go
        self.has_run = False  # whether the main program has run
        self._newest: tuple[Any, ...] | None = None  # changing variables after a step, in the order of the signature
        self.fixed: tuple[Any, ...] = ()
        self.hyper: Any = None
        self._rng = np.zeros(2, np.uint32)
        self._shared: dict[str, Any] = {}  # fixed variables, for other programs
        self._fixed_host: dict[str, np.ndarray] = {}

    @property
    def changing(self) -> dict[str, Any]:
        """Variables that steps change, by name. Callers may write into the dictionary."""
        self.settle()
        if self._newest is not None:
            self.changing = dict(zip(self.programs[MAIN].executable.step.taken, self._newest, strict=True))
        return self._changing

    @changing.setter
    def changing(self, values: dict[str, Any]) -> None:
        self.settle()
        self._changing, self._newest = values, None

    def settle(self) -> None:
        """Store the results of a step, also of one that was interrupted after its program had ended."""
        with self._settling:  # a thread that reads may come here too
            landed = self._landed
            if landed:
                if self._destinations is not None:
                    self._destinations.keep(landed[0])
                self._newest, self._changing = landed[0][: len(self.programs[MAIN].executable.step.taken)], {}
                self._landed = []

    def compile(self, handles: tuple[str, ...], file: Sealed | None = None) -> None:
        """Trace and compile the programs by these handles, or load them from a container."""
        hits = cache_hits()
        advance = reporter(self.prepared.request.options, _PHASES * len(handles))
        for handle in handles:
            program = program_of(self.prepared.program, handle)
            training, single = self.prepared.program.training, not wants_devices(self.prepared.request.options)
            laid_out = lay_out(program, platform(), training, single=single)
            advance()
            executable = self._executable(laid_out, handle, file, advance)
            advance()
            facts = self._stream_facts(executable.step, program), self._anchor_facts(program)
            self.programs[handle] = Loaded(laid_out, executable, *facts, _memory_for(executable))
        self.prepared.program.memo.forget()
        stages = wants_devices(self.prepared.request.options)
        apart = not stages and any(executable.apart for executable in self.executables.values())
        self.portable = file is None and cache_hits() == hits and not (stages or apart or library_called())

    @property
    def executables(self) -> dict[str, Executable]:
        """The compiled programs by handle."""
        return {handle: loaded.executable for handle, loaded in self.programs.items()}

    @property
    def _hoists(self) -> bool:
        """Whether weights stay the same from run to run."""
        return self.prepared.program.training is None

    def _executable(
        self, laid_out: LaidOut, handle: str, file: Sealed | None, advance: Callable[[], None]
    ) -> Executable:
        if wants_devices(self.prepared.request.options):
            advance()
            return staged(laid_out.program, self.prepared.request, self._hyper_size)  # type: ignore[return-value]
        if file is not None:
            advance()
            return stored.load(self._step(laid_out), file, handle)
        traced = self._traced(laid_out)
        advance()
        asked = self.prepared.request.options.engineOptions.get(autotune.ENGINE_OPTION)
        place, options = autotune.folder(asked), laid_out.options
        if place is not None and traced.mesh is None:
            options = autotune.choose(traced.traced, options, place)
        return compile_traced(traced, options, device=self._device_for(traced))

    def _device_for(self, traced: Traced) -> Any:
        """The device of one thread, where that is faster; None for JAX's own devices."""
        alone = self._hoists and traced.mesh is None and not traced.step.state and not traced.may_fail
        return one_thread.device() if alone and may_call_libraries() and one_thread.suits(traced.jaxpr) else None

    def _step(self, laid_out: LaidOut) -> Step:
        program, several = laid_out.program, wants_devices(self.prepared.request.options)
        one = not several and platform() == "cpu" and mesh_for(program.structure.replicas, program.parts) is None
        return step_of(program, self._hyper_size, in_place=one)

    @property
    def _hyper_size(self) -> int:
        return 1 if self.prepared.hyper is None else self.prepared.hyper.size

    def _traced(self, laid_out: LaidOut) -> Traced:
        return trace(self._step(laid_out), hoist=self._hoists)

    def _stream_facts(self, step: Step, program: Program) -> list[StreamFact]:
        local, hosts = self.prepared.local_replicas, self.prepared.streams
        return [
            StreamFact(n, hosts[n].dtype, kind.dtype, step.fed[n].whole(local)) for n, kind in program.streams.items()
        ]

    def _anchor_facts(self, program: Program) -> list[AnchorFact]:
        facts: list[AnchorFact] = []
        for anchor in program.anchors:
            kind = self.prepared.infos.get(anchor.source) or program.types[anchor.source]
            slots, local = anchor.slots(program.structure), self.prepared.local_replicas
            lead = (slots, local) if program.structure.replicas > 1 else (slots,)
            facts.append(AnchorFact(anchor.name, kind.dtype, (*lead, *kind.shape), slots * local))
        return facts

    @phase("weights")
    def load_variables(self, host: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Bring the host copy of all variables to the device.

        Returned are views of device memory, of variables that no run changes; they can replace the host copies.
        """
        with self._turn:
            return self._load_variables(host)

    def _load_variables(self, host: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        main = self.programs[MAIN].executable
        changing = self.programs[MAIN].laid_out.program.changing
        for n in changing:  # one by one, so that memory never holds old and new values of all
            self.changing[n] = main.put_variable(n, host[n])
        self._fixed_host = {n: host[n] for n in self.prepared.variables if n not in changing}
        put = {n: main.put_variable(n, self._fixed_host[n]) for n in main.step.fixed}
        self.fixed = main.prepare(put)
        self._shared = put if len(self.programs) > 1 else {}
        views = main.host_views(self.fixed)
        same = {n: x for n, x in views.items() if (x.shape, x.dtype) == (host[n].shape, host[n].dtype)}
        self._fixed_host |= same
        return same

    def put_seed(self, words: np.ndarray) -> None:
        """Set the random seed, two words with the low one first."""
        if self.prepared.program.random:
            self._put_one(SEED, words)

    def _put_one(self, name: str, value: np.ndarray) -> None:
        with self._turn:
            self.changing[name] = self.programs[MAIN].executable.put_variable(name, value)

    def put_changing(self, values: Mapping[str, np.ndarray]) -> None:
        """Set variables that steps change, by name."""
        for name, value in values.items():
            self._put_one(name, value)

    def seed(self) -> np.ndarray:
        """The current seed."""
        return to_host(self.changing[SEED])

    def put_generators(self, words: np.ndarray) -> None:
        """Set the state of the random number generators, two words per replica; those of the first one count."""
        self._rng = words
        if self.prepared.program.generators:
            self._put_one(GENERATORS, words[:2])

    def take_generators(self, other: Engine) -> None:
        """Take over the generator state of another engine, if both have one."""
        if self.prepared.program.generators and other.prepared.program.generators:
            self.put_generators(other.generators())

    def generators(self) -> np.ndarray:
        """The current state of the random number generators; replicas differ in the low word."""
        low, high = to_host(self.changing[GENERATORS]) if self.prepared.program.generators else self._rng[:2]
        if (low, high) == tuple(self._rng[:2]):
            return self._rng
        replicas = np.arange(self.prepared.local_replicas, dtype=np.uint32)
        return np.stack([low + replicas, np.full_like(replicas, high)], 1).reshape(-1)

    def put_hyper(self, values: np.ndarray) -> None:
        """Set the hyperparameters."""
        main = self.programs[MAIN].executable
        self.hyper = main.put_fed(HYPER, values) if HYPER in main.step.fed else None

    def direct(
        self, feeds: Mapping[str, np.ndarray | Callable[[], np.ndarray]], places: Mapping[str, np.ndarray]
    ) -> Callable[[], None]:
        """A function that runs one step of the main program with given arrays, with the least overhead."""
        executable = self.programs[MAIN].executable
        step, call, room = executable.step, shortest_call(executable.function), executable.room
        fed = _fed([feeds[n] for n in step.fed if n != HYPER])  # hyperparameters come before the streams
        count, reads_hyper = len(step.taken), HYPER in step.fed
        targets = {n: places[n] for n in step.results}
        inputs = (x() if callable(x) else x for x in feeds.values())
        with self._turn:
            self.settle()
            destinations = self.programs[MAIN].written.destinations(targets, count, inputs)

        def run() -> None:
            with self._turn:
                once()

        def once() -> None:
            streams = fed()
            self.settle()
            room.ensure()
            landed = self._landed = []
            self._destinations = destinations
            state = self._newest
            if state is None:  # somebody looked at the variables by name, and may have set them
                state = tuple(self._changing[n] for n in step.taken)
            hyper = (self.hyper,) if reads_hyper else ()
            arguments = (*state, *self.fixed, *hyper, *streams, *destinations.arguments())
            try:  # in C from the call to the list: Ctrl-C comes between lines of Python, and old state is donated
                landed.extend(starmap(call, (arguments,)))
            except BaseException:
                self.settle()
                destinations.note_losses()
                raise
            self.settle()
            destinations.fill(landed[0], np.asarray)

        if count or reads_hyper or step.written or len(targets) != 1:
            return run
        (target,) = targets.values()

        def forward() -> None:
            room.ensure()
            (result,) = call(*self.fixed, *fed())
            target[...] = result

        return forward

    @property
    def turn(self) -> AbstractContextManager[object]:
        """Scope in which no other thread takes a step; results of a step last until the next one."""
        return self._turn

    def step(self, handle: str, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Run one step; returns the anchors as device arrays of shape [slots, (replicas,) *shape]."""
        with self._turn:
            return self._run_step(handle, feeds)

    def _run_step(self, handle: str, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        loaded = self.programs[handle]
        executable = loaded.executable
        placed = feeds if executable.mesh is None else {n: executable.put_fed(n, x) for n, x in feeds.items()}
        fed = {**placed, HYPER: self.hyper}
        if handle == MAIN:
            with Uninterrupted():
                self.changing, results = executable.run(self.changing, self.fixed, fed, loaded.written.own())
                self.has_run = True
            return results
        state = {n: x.copy() for n, x in self.changing.items() if n in (SEED, GENERATORS)}
        fixed = executable.prepare({**self._shared, **self.changing})
        return executable.run(state, fixed, fed, loaded.written.own())[1]

    @contextmanager
    def undone_on_error(self) -> Generator[None]:
        """Steps taken inside are undone if anything inside raises: variables, seed and generators are as before.

        A program overwrites its state, so this keeps a copy of it meanwhile.
        """
        with self._turn:
            before = {name: array.copy() for name, array in self.changing.items()}
            try:
                yield
            except BaseException:
                self.changing = before
                raise

    def stable_hlo(self) -> str:
        """The main program's StableHLO text; a program that was loaded compiled is traced again for it."""
        loaded = self.programs[MAIN]
        with staying(False):
            return loaded.executable.text or self._traced(loaded.laid_out).traced.lower().as_text()

    def wait(self) -> None:
        """Return when the last step is done, so that its input arrays may be changed."""
        with self._turn:
            for array in self.changing.values():
                array.block_until_ready()
                return

    def read(self, name: str) -> np.ndarray:
        """A variable's values on the device: [replicas, *shape] if replicas hold their own, else one value."""
        try:
            return self._read(name)
        except RuntimeError:  # a step of another thread took the array
            with self._turn:
                return self._read(name)

    def _read(self, name: str) -> np.ndarray:
        if name in self.changing:
            variable = self.programs[MAIN].laid_out.program.variables.get(name)
            array = to_every_host(self.changing[name])
            return array if variable is None else from_device_order(variable, array)
        variable = self.prepared.program.variables[name]
        host = np.asarray(self._fixed_host[name])
        if not variable.individual:
            return host
        rows = np.empty((sum(map(len, variable.groups)), *variable.type.shape), host.dtype)
        for g, members in enumerate(variable.groups):
            rows[list(members)] = host[g]
        return rows

    def read_groups(self, name: str) -> np.ndarray:
        """One value per group."""
        return group_values(self.prepared.program.variables[name], self.read(name))

    def read_replicas(self, name: str) -> np.ndarray:
        """One value per replica."""
        replicas = self.prepared.program.structure.replicas
        return replica_values(self.prepared.program.variables[name], self.read(name), replicas)


def _memory_for(executable: Executable) -> WrittenResults:
    """Memory for a program's large results."""
    kinds = executable.step.written
    if not kinds:
        return written_results({}, lends=False)
    return written_results(kinds, executable.device, lends=executable.is_in_place)


def _fed(sources: Sequence[np.ndarray | Callable[[], np.ndarray]]) -> Callable[[], tuple[np.ndarray | jax.Array, ...]]:
    """A function that returns the input arrays of a step, in order."""
    found = [x if callable(x) else at_each_run(x) for x in sources]
    if any(map(callable, found)):
        return lambda: tuple(as_argument(x()) if callable(x) else x for x in found)
    arrays: Any = tuple(found)
    return lambda: arrays


def program_of(program: Program, handle: str) -> Program:
    """The program behind a handle: the step itself, or its forward pass alone."""
    if handle == MAIN:
        return program
    anchors = tuple(
        a
        for a in program.anchors
        if not a.source.startswith(GRADIENT) and a.source in {*names(program.graph), *program.variables}
    )
    shown = {a.source for a in anchors}
    variables = {n: v for n, v in program.variables.items() if n in program.bound or n in shown}
    return replace(program, training=None, copies={}, anchors=anchors, scalars={}, variables=variables)
