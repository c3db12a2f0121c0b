"""The device's side of a session: state arrays, uploads, downloads, runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import poplar_application_runtime_error
from ..execution.placement import to_every_host, to_host
from ..logs import module_logger
from . import _weights as weights
from ._create import FAULT
from ._program import FROM_HOST, TO_HOST, Executable, Layout, Step, normal_contexts

State = dict[str, Any]
_TRACE = 5


class DeviceState:
    """State of one program on the device; `None` while nothing was uploaded."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.normal = Executable(Step(layout, normal_contexts()))
        self.loading = self._fragment(FROM_HOST)
        self.storing = self._fragment(TO_HOST)
        self._watched = FAULT in self.normal.sent
        self.arrays: State | None = None
        for t in layout.owner.main_graph.variables:
            module_logger("session").log(_TRACE, "Reusing TensorData for d2hWeightBuffer of tensor %s", t.id)

    def _fragment(self, contexts: Any) -> Executable | None:
        ops = self.layout.owner.main_graph._ops.values()
        if any(op._settings.executionContext in contexts for op in ops):
            return Executable(Step(self.layout, contexts), donate=False)
        return None

    @property
    def programs(self) -> dict[str, Executable]:
        """Every program that exists, by name."""
        every = {"main": self.normal, "weights_from_host": self.loading, "weights_to_host": self.storing}
        return {name: program for name, program in every.items() if program is not None}

    def compile(self) -> None:
        """Compile every program now."""
        for program in self.programs.values():
            _ = program.call

    # --- weights --------------------------------------------------------------------------------------------------

    def upload(self) -> None:
        """Host to device: variables, remote entries, then the weight-loading program."""
        module_logger("session").debug("Writing weights from host, %d variables", len(self.layout.variables))
        layout, replicas = self.layout, self.layout.replicas
        arrays: State = {}
        for name, t in layout.variables.items():
            arrays[f"var:{name}"] = self._put(weights.to_replicas(t, replicas))
        for name, (shape, dtype) in layout.state_shapes().items():
            if name.startswith("remote:"):
                arrays[name] = self._put(self._buffer(name, shape, dtype))
        self.arrays = arrays
        if self.loading is not None:
            self._run_fragment(self.loading)

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Initial content of a remote buffer: zeros and the variables stored in it."""
        replicas = self.layout.replicas
        data = np.zeros((replicas, *shape), dtype)
        for t in self.layout.owner.main_graph.variables:
            if t._remote is None or f"remote:{t._remote.buffer}" != name:
                continue
            if t._remote.shards is None:
                data[:, t._remote.offset] = weights.to_replicas(t, replicas).reshape(-1, *t.shape)
            else:
                data[:, t._remote.offset] = weights.shards_to_replicas(t, shape[1:], t._remote.shards, replicas)
        return data if replicas > 1 else data[0]

    def _put(self, host: np.ndarray) -> Any:
        axis = 0 if self.layout.replicas > 1 else None
        sharding = self.normal.sharding(axis)
        if sharding is None:
            return jnp.array(host, copy=True)
        if jax.process_count() > 1:
            return jax.make_array_from_process_local_data(sharding, self._mine(host), host.shape)
        return jax.device_put(host, sharding, may_alias=False)

    def _mine(self, host: np.ndarray, axis: int = 0) -> np.ndarray:
        """The part of an array of all replicas that belongs to this process's."""
        n = self.layout.replicas // jax.process_count()
        start = jax.process_index() * n
        return np.take(host, range(start, start + n), axis)

    def _run_fragment(self, program: Executable) -> None:
        assert self.arrays is not None
        program.run(self.arrays, ())

    def download(self) -> dict[str, np.ndarray]:
        """Device to host, per variable id: a value for each replica (or the value, for one replica)."""
        assert self.arrays is not None
        if self.storing is not None:
            self._run_fragment(self.storing)
        layout = self.layout
        found = {name: to_every_host(self.arrays[f"var:{name}"]) for name in layout.variables}
        buffers: dict[str, np.ndarray] = {}
        for t in layout.owner.main_graph.variables:
            if t._remote is None:
                continue
            name = f"remote:{t._remote.buffer}"
            if name not in buffers:
                buffers[name] = to_every_host(self.arrays[name]).reshape(
                    layout.replicas, *layout.state_shapes()[name][0]
                )
            entry = buffers[name][:, t._remote.offset]
            whole = entry if t._remote.shards is None else weights.shards_from_replicas(t, entry, t._remote.shards)
            found[t.id] = whole if layout.replicas > 1 else whole[0]
        return found

    # --- running --------------------------------------------------------------------------------------------------

    def run(self, fed: list[Any]) -> list[Any]:
        """One run; streams as the host has them, in the order of the layout, and so is what comes back.

        Raises
        ------
        poplar_application_runtime_error
            The scale of a float8 operator was out of range.
        """
        arrays, program = self.arrays, self.normal
        assert arrays is not None
        if program.mesh is not None:
            fed = [self._stream(x) for x in fed]
        sent = program.run(arrays, fed)
        if self._watched and np.any(to_host(sent[-1])):
            raise poplar_application_runtime_error(
                "The log2 scale of a float8 operator is outside the range [-32, 32)."
            )
        return sent

    def _stream(self, host: np.ndarray) -> Any:
        sharding = self.normal.sharding(self.normal.stream_axis)
        if jax.process_count() > 1:
            return jax.make_array_from_process_local_data(sharding, host)
        return jax.device_put(host, sharding)
