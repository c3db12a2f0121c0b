"""The host's copies of a session's variables and their traffic with the device.

Three copies exist, as PopART documents it: (a) the host copy, (b) the device's, (c) what `weightsToHost` last fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from ..enums import SyntheticDataMode, VariableRetrievalMode
from ..errors import popart_runtime_error
from .engine import Engine
from .preparing import Prepared
from .weightsio import PyWeightsIO


class HostWeights:
    """Copies (a) and (c) of all variables."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.copy = prepared.initial  # the very same: nobody else keeps what is replaced here
        self.fetched: dict[str, np.ndarray] = {}
        self.loaded = False

    def to_device(self, engine: Engine) -> None:
        """(a) to (b), for good."""
        self.send(engine)
        self.loaded = True

    def send(self, engine: Engine) -> None:
        """(a) to (b); where the device keeps a value for good, (a) becomes a view of it, so that it is there once."""
        shared = engine.load_variables(self.copy)
        self.prepared.source.share(self.copy, shared)
        self.copy.update(shared)

    def fetch(self, engine: Engine) -> None:
        """(b) to (c)."""
        for name, held in self.prepared.held.items():
            if not self._streamed(name):
                continue
            every = held.settings.getRetrievalMode() is VariableRetrievalMode.AllReplicas
            self.fetched[name] = engine.read_replicas(name) if every else engine.read_groups(name)

    def _streamed(self, name: str) -> bool:
        options = self.prepared.request.options
        if name in self.prepared.constants:
            return False
        if options.disableGradAccumulationTensorStreams and name.startswith("Accl___"):
            return False
        return not (options.disableOptimizerStateTensorStreams and name in self.prepared.state)

    def read(self, into: PyWeightsIO) -> None:
        """(c) to the given arrays.

        Raises
        ------
        popart_runtime_error
            Nothing was fetched yet, or an array has another size.
        """
        if self.prepared.request.options.syntheticDataMode is not SyntheticDataMode.Off:
            return
        for name, target in into.weights.items():
            if name not in self.prepared.held or not self._streamed(name):
                continue
            if name not in self.fetched:
                raise popart_runtime_error(
                    f"No data for weight '{name}' on the host. Call weightsToHost before readWeights."
                )
            source = np.ascontiguousarray(self.fetched[name], self.prepared.held[name].host_dtype)
            if source.nbytes != target.nbytes:
                raise popart_runtime_error(
                    f"Reading weight '{name}': "
                    f"sizes (in bytes) of src ({source.nbytes}) and dst ({target.nbytes}) differ"
                )
            target.reshape(-1).view(np.uint8)[...] = source.reshape(-1).view(np.uint8)

    def write(self, weights: PyWeightsIO) -> None:
        """The given arrays to (a).

        Raises
        ------
        popart_runtime_error
            Weights are constants, unknown, or of another type or shape; nothing is written then.
        """
        if self.prepared.request.loss is None and self.prepared.request.options.constantWeights:
            raise popart_runtime_error("Cannot call writeWeights when constantWeights is set")
        self.replace(weights.weights, ignore_unknown=True, where="writeWeights")

    def replace(self, arrays: Mapping[str, np.ndarray], *, ignore_unknown: bool, where: str) -> None:
        """Set (a) for some variables, all or none."""
        checked = {}
        for name, array in arrays.items():
            held = self.prepared.held.get(name)
            if held is None:
                if ignore_unknown:
                    continue
                raise popart_runtime_error(
                    f"{where}: no tensor '{name}' in this session to take the initializer's value"
                )
            if array.dtype != held.host_dtype or tuple(array.shape) != held.host_shape:
                raise popart_runtime_error(
                    f"{where}: tensor '{name}' is {held.host_dtype}{list(held.host_shape)}, "
                    f"the data are {array.dtype}{list(array.shape)}"
                )
            checked[name] = np.array(array)
        self.copy.update(checked)

    def sync(self, engine: Engine) -> Mapping[str, np.ndarray]:
        """(b) to (c) to (a), one value per group; returns (a) of everything that is not constant."""
        self.fetch(engine)
        fresh: dict[str, Any] = {}
        for name, held in self.prepared.held.items():
            if self._streamed(name):
                value = np.asarray(engine.read_groups(name)).astype(held.host_dtype)
                fresh[name] = value.reshape(held.host_shape)
        self.copy.update(fresh)
        return fresh

    def broadcast(self, root: int) -> None:
        """(a) of process `root` to all processes of a distributed run."""
        if jax.process_count() == 1:
            return
        everywhere = multihost_utils.broadcast_one_to_all(self.copy, is_source=jax.process_index() == root)
        self.copy.update({n: np.asarray(x).astype(self.copy[n].dtype) for n, x in everywhere.items()})
