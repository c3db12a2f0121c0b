"""Device state of a session: resident arrays, uploads, downloads, runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...errors import popart_exception, poplar_application_runtime_error
from ...execution import Executable
from ...execution.placement import to_every_host, to_host
from ...execution.uninterrupted import Uninterrupted
from ...logs import module_logger
from ...ops.popxl.exchange import missing_entry
from .._building.create import FAULT
from ..tensor import Variable
from . import weights as weights
from .program import REMOTE, VARIABLE, Programs


class DeviceState:
    """Compiled programs of an Ir and the arrays that they share."""

    def __init__(self, programs: Programs, executables: Mapping[str, Executable]) -> None:
        self.programs, self.executables = programs, executables
        self.arrays: dict[str, Any] | None = None  # resident arrays by name; None while nothing was uploaded
        self.stale: set[str] = set()  # names of those that `changed` was told of; `refresh` uploads them
        self._main = executables["main"]

    @property
    def _all_variables(self) -> list[Variable]:
        return list(self.programs.owner.main_graph.variables)

    # --- weights --------------------------------------------------------------------------------------------------

    def upload(self) -> None:
        """Host to device: variables, remote buffers, then the program that loads weights."""
        programs = self.programs
        module_logger("session").debug("Writing weights from host, %d variables", len(programs.variables))
        self.arrays = {n: self._put(n) for n in (*programs.variables, *programs.buffers)}
        self.stale.clear()
        self._run_if_there("weights_from_host")

    def changed(self, variables: Iterable[Variable]) -> None:
        """The host's copies of variables are new; they are uploaded before the device needs them, all at once."""
        homes = {name for t in variables for name in (f"{VARIABLE}{t.id}", t._remote and f"{REMOTE}{t._remote.buffer}")}
        homes &= {*self.programs.variables, *self.programs.buffers}
        module_logger("session").debug("Writing weights from host, %d arrays", len(homes))
        self.stale |= homes

    def refresh(self) -> None:
        """Upload what `changed` was told of, then run the program that loads weights."""
        assert self.arrays is not None
        self.arrays |= {n: self._put(n) for n in self.stale}
        self.stale.clear()
        self._run_if_there("weights_from_host")

    def _put(self, name: str) -> Any:
        """Put the host's data on the device as a resident array, in its own memory if some program donates it."""
        variable, every = self.programs.variables.get(name), self.executables.values()
        host = self._buffer(name) if variable is None else weights.host_values(variable)
        return next((e for e in every if name in e.step.state), self._main).put_variable(name, host)

    def _buffer(self, name: str) -> np.ndarray:
        """Initial content of a remote buffer on every replica: zeros, and the variables that are stored there."""
        replicas, kind = self.programs.replicas, self.programs.resident[name].type
        data = np.zeros((replicas, *kind.shape), kind.dtype)
        for t in self._stored_in(name):
            if wrong := missing_entry(t._remote.offset, t._remote.buffer, kind.shape[0]):
                raise popart_exception(f"{t!r} can't be uploaded: {wrong}")
            if t._remote.shards is None:
                data[:, t._remote.offset] = weights.entry_of(t, kind.shape[1:], replicas)
            else:
                data[:, t._remote.offset] = weights.shards_to_replicas(t, kind.shape[1:], t._remote.shards, replicas)
        return data

    def _stored_in(self, buffer: str) -> list[Variable]:
        return [t for t in self._all_variables if t._remote is not None and f"{REMOTE}{t._remote.buffer}" == buffer]

    def _run_if_there(self, program: str) -> None:
        if program in self.executables:
            self._run(self.executables[program], {})

    def download(self) -> dict[str, np.ndarray]:
        """Device to host: by variable id, a value for each replica (for a single replica the value itself)."""
        assert self.arrays is not None
        self._run_if_there("weights_to_host")
        found = {n.removeprefix(VARIABLE): to_every_host(self.arrays[n]) for n in self.programs.variables}
        for name in self.programs.buffers:
            stored = self._stored_in(name)
            if stored:
                found |= self._entries(stored, to_every_host(self.arrays[name]))
        return found

    def _entries(self, stored: list[Variable], buffer: np.ndarray) -> dict[str, np.ndarray]:
        """Values of the variables that are stored in a remote buffer."""
        every = buffer if self.programs.replicas > 1 else buffer[None]
        found: dict[str, np.ndarray] = {}
        for t in stored:
            entry, shards = every[:, t._remote.offset], t._remote.shards
            read = weights.values_of_entries if shards is None else weights.shards_from_replicas
            values = read(t, entry, shards or 1)
            found[t.id] = values if self.programs.replicas > 1 else values[0]
        return found

    @property
    def put_fed(self) -> Callable[[str, np.ndarray], Any]:
        """Puts a stream's data on the devices ahead of the run."""
        return self._main.put_fed

    # --- running --------------------------------------------------------------------------------------------------

    def run(self, fed: Mapping[str, Any]) -> dict[str, Any]:
        """One run: takes host arrays by stream's tensor id, returns the sent arrays, still on the device.

        A float8 operator whose scale is out of range raises poplar_application_runtime_error.
        """
        main = self._main
        if main.mesh is not None:
            fed = {n: main.put_fed(n, x) for n, x in fed.items()}
        sent = self._run(main, fed)
        if FAULT in sent and np.any(to_host(sent[FAULT])):
            raise poplar_application_runtime_error("Log2 scale is not in the range [-32, 32). ")
        return sent

    def _run(self, program: Executable, fed: Mapping[str, Any]) -> dict[str, Any]:
        """Run a program on the resident arrays, and replace those that it changes."""
        arrays = self.arrays
        assert arrays is not None
        fixed = program.prepare(arrays)
        with Uninterrupted():
            new, results = program.run(arrays, fixed, fed)
            arrays.update(new)
        return results
