"""Transfers of weights and optimizer state between files, host and device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._calls import checked
from ..enums import SyntheticDataMode
from ..errors import logs_errors_of_methods, popart_runtime_error
from ..model.load import load_proto
from . import saving
from .engine import Engine
from .preparing import Prepared, Request
from .weights import HostWeights
from .weightsio import IWeightsIO, PyWeightsIO


@logs_errors_of_methods
class WeightMethods:
    """The host copy of weights, the device copy, and what lies between."""

    _prepared: Prepared
    _request: Request
    _weights: HostWeights
    _placed_state: Any
    _ready_token: object | None
    _ready: Callable[[str], Engine]

    def weightsFromHost(self) -> None:
        """Send the host copy of weights and optimizer state to the device."""
        self._weights.to_device(self._ready("weightsFromHost"))

    def weightsToHost(self) -> None:
        """Fetch weights and optimizer state from the device, for `readWeights`."""
        if self._request.options.syntheticDataMode is SyntheticDataMode.Off:
            self._weights.fetch(self._ready("weightsToHost"))

    @checked
    def readWeights(self, weightsIo: IWeightsIO, /) -> None:
        """Copy what `weightsToHost` fetched into arrays."""
        self._weights.read(_arrays(weightsIo))

    @checked
    def writeWeights(self, weightsIo: IWeightsIO, /) -> None:
        """Set the host copy of some weights; `weightsFromHost` then sends it."""
        self._weights.write(_arrays(weightsIo))

    @checked
    def modelToHost(self, fn: str, /) -> None:
        """Write the model with current weights and optimizer state to a file, and make these the host copy."""
        engine = self._ready("modelToHost")
        values = self._weights.sync(engine)
        state = frozenset(n for n in self._prepared.state if n in values)
        source = self._prepared.source
        saved = saving.saved_model(source.whole(), values, state, self._placed_state)
        saving.write_file(saved, fn, beside=source.beside)

    def resetHostWeights(
        self, modelProtoOrFilename: Any, ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False
    ) -> None:
        """Set the host copy from the initializers of a model.

        Raises
        ------
        popart_runtime_error
            Weights are constants, or an initializer does not fit a tensor of the session.
        """
        if self._request.loss is None and self._request.options.constantWeights:
            raise popart_runtime_error("Cannot call resetHostWeights when constantWeights is set")
        values = saving.initializer_values(load_proto(modelProtoOrFilename))
        unused = {t.name for t in self._prepared.source.proto.graph.initializer} - self._prepared.held.keys()
        values = {n: v for n, v in values.items() if n not in unused}
        skip = ignoreWeightsInModelWithoutCorrespondingHostWeight
        self._weights.replace(values, ignore_unknown=skip, where="resetHostWeights")
        self._weights.loaded = False
        self._ready_token = None


def _arrays(weights: IWeightsIO) -> PyWeightsIO:
    if not isinstance(weights, PyWeightsIO):
        raise TypeError(f"Expected a PyWeightsIO, got {type(weights).__name__}")
    return weights
