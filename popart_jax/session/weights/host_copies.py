"""The host's copies of a session's variables and their traffic with the device.

Three copies exist, as PopART documents it: (a) the host copy, (b) the device's, (c) what `weightsToHost` last fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ...enums import SyntheticDataMode, VariableRetrievalMode
from ...errors import noted, popart_runtime_error
from ...logs import module_logger
from ..engine import Engine
from ..preparing import Prepared
from .weightsio import PyWeightsIO


class HostWeights:
    """Copies (a) and (c) of all variables."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.copy = prepared.initial  # (a) by name; not copied: nobody else keeps arrays that are replaced here
        self.fetched: dict[str, np.ndarray] = {}  # (c) by name
        self.sent = False  # whether the program has sent (a) since it was last reset

    def send(self, engine: Engine) -> None:
        """(a) to (b), because the program asks for it."""
        self.upload(engine)
        self.sent = True

    def upload(self, engine: Engine) -> None:
        """(a) to (b). For variables that no run changes, (a) becomes a view of device memory, to hold them once."""
        shared = engine.load_variables(self.copy)
        self.prepared.source.share(self.copy, shared)
        self.copy.update(shared)

    def fetch(self, engine: Engine) -> None:
        """(b) to (c)."""
        for name, variable in self.prepared.variables.items():
            if not self._streamed(name):
                continue
            every = variable.settings.getRetrievalMode() is VariableRetrievalMode.AllReplicas
            self.fetched[name] = engine.read_replicas(name) if every else engine.read_groups(name)

    def _streamed(self, name: str) -> bool:
        options = self.prepared.request.options
        if name in self.prepared.constants:
            return False
        if options.disableGradAccumulationTensorStreams and name.startswith("Accl___"):
            return False
        return not (options.disableOptimizerStateTensorStreams and name in self.prepared.state)

    def read(self, into: PyWeightsIO) -> None:
        """(c) to the given arrays: all, or none if one of them does not fit.

        popart_runtime_error before weights were fetched, and for an array that has another size or is read-only.
        """
        if self.prepared.request.options.syntheticDataMode is not SyntheticDataMode.Off:
            return
        self._warn_of_unknown(into, "readWeights")
        names = [n for n in into.weights if n in self.prepared.variables and self._streamed(n)]
        sources = {name: self._fitting(name, into.weights[name]) for name in names}
        for name, source in sources.items():
            into.weights[name].reshape(-1).view(np.uint8)[...] = source.reshape(-1).view(np.uint8)

    def _fitting(self, name: str, target: np.ndarray) -> np.ndarray:
        """The value of (c) for an array of the program."""
        if name not in self.fetched:
            raise popart_runtime_error(
                f"No data for weight '{name}' on the host. Call weightsToHost before readWeights."
            )
        source = np.ascontiguousarray(self.fetched[name], self.prepared.variables[name].host_dtype)
        if source.nbytes != target.nbytes:
            raise popart_runtime_error(
                f"sizes (in bytes) of src ({source.nbytes}) and dst ({target.nbytes}) differ in hostStreamToHost "
                f"for {name}"
            )
        if not target.flags.writeable:
            raise popart_runtime_error(f"readWeights: the array for weight '{name}' is read-only; pass a writable one.")
        return source

    def write(self, weights: PyWeightsIO) -> None:
        """The given arrays to (a).

        One for a constant, or of another type or shape, raises popart_runtime_error before anything is written.
        """
        self.require_writable("writeWeights")
        self._warn_of_unknown(weights, "writeWeights")
        self.replace(weights.weights, ignore_unknown=True, where="writeWeights")

    def _warn_of_unknown(self, given: PyWeightsIO, call: str) -> None:
        for name in sorted(given.weights.keys() - self.prepared.variables.keys()):
            module_logger("session").warning("%s: this session has no weight '%s'; it is ignored", call, name)

    def require_writable(self, call: str) -> None:
        """Raise popart_runtime_error if the weights are constants."""
        declined = self.prepared.variables.keys() - self.prepared.constants
        if self.prepared.request.loss is None and self.prepared.request.options.constantWeights and not declined:
            more = (
                ". Set `constantWeights` to False in the `SessionOption`s when initialising the session to enable this "
                "behaviour."
            )
            text = f"Cannot call {call} when constantWeights is set"
            raise popart_runtime_error(text + (more if call == "writeWeights" else ""))

    def reset(self, values: Mapping[str, np.ndarray], *, ignore_unknown: bool) -> None:
        """Set (a) from another model; initializers of this session's model that nothing reads are passed over."""
        unused = {t.name for t in self.prepared.source.proto.graph.initializer} - self.prepared.variables.keys()
        known = {n: v for n, v in values.items() if n not in unused}
        self.replace(known, ignore_unknown=ignore_unknown, where="resetHostWeights")
        self.sent = False

    def take(self, values: Mapping[str, np.ndarray]) -> None:
        """Set (a) from a file that was written for this session."""
        self.copy.update({n: v for n, v in values.items() if n in self.prepared.variables})

    def replace(self, arrays: Mapping[str, np.ndarray], *, ignore_unknown: bool, where: str) -> None:
        """Set (a) for some variables, all or none."""
        checked: dict[str, np.ndarray] = {}
        for name, array in arrays.items():
            variable = self.prepared.variables.get(name)
            if variable is None:
                if ignore_unknown:
                    continue
                raise popart_runtime_error(f"resetWeights, no tensor '{name}' in tensors")
            if array.dtype != variable.host_dtype or tuple(array.shape) != variable.host_shape:
                shown = f"{variable.host_dtype}{list(variable.host_shape)}"
                raise self._misfit(where, name, shown, f"{array.dtype}{list(array.shape)}")
            checked[name] = np.array(array)
        self.copy.update(checked)

    @staticmethod
    def _misfit(where: str, name: str, wanted: str, given: str) -> popart_runtime_error:
        words = f"{where}: tensor '{name}' is {wanted}, the data are {given}"
        if where != "resetHostWeights":
            return popart_runtime_error(words)
        text = "Trying to reset weights using tensor with non matching tensor info. Tensor ID: "
        return noted(popart_runtime_error(f"{text}{name}"), words)

    def sync(self, engine: Engine) -> Mapping[str, np.ndarray]:
        """(b) to (c) to (a), one value per group; returns (a) of everything that is not constant."""
        self.fetch(engine)
        fresh: dict[str, Any] = {}
        for name, variable in self.prepared.variables.items():
            if self._streamed(name):
                value = np.asarray(engine.read_groups(name)).astype(variable.host_dtype)
                fresh[name] = value.reshape(variable.host_shape)
        self.copy.update(fresh)
        return fresh

    def broadcast(self, root: int) -> None:
        """(a) of process `root` to all processes of a distributed run."""
        if jax.process_count() == 1:
            return
        import jax.experimental.multihost_utils as multihost_utils

        everywhere = multihost_utils.broadcast_one_to_all(self.copy, is_source=jax.process_index() == root)
        self.copy.update({n: np.asarray(x).astype(self.copy[n].dtype) for n, x in everywhere.items()})
