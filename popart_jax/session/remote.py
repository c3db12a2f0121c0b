"""Smaller parts of the session interface: RNG state, external files, streams, other processes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from .._calls import checked
from ..errors import logs_errors_of_methods, popart_exception, popart_runtime_error
from ..model import external

RNG_WORDS = 2


def move_external_data(tensors: Iterable[onnx.TensorProto], source: str, target: str) -> None:
    """Copy external data to a new file and let the tensors refer to that.

    Raises
    ------
    popart_runtime_error
        The target exists, the source does not, or no initializer is stored there; looked for in this order.
    """
    start = f"Cannot update external tensor locations from '{source}' to '{target}', "
    if Path(target).exists():
        raise popart_runtime_error(f"{start}but file '{target}' already exists")
    if not Path(source).exists():
        raise popart_runtime_error(f"{start}but file '{source}' does not exist")
    moved = [
        entry
        for tensor in tensors
        if external.is_external(tensor)
        for entry in tensor.external_data
        if entry.key == "location" and entry.value == source
    ]
    if not moved:
        raise popart_runtime_error(f"{start}No ONNX model initializers have external location set to '{source}'")
    shutil.copyfile(source, target)
    for entry in moved:
        entry.value = target


@logs_errors_of_methods
class RemoteMethods:
    """RNG state, external locations, and what only makes sense on hardware."""

    _prepared: Any
    _request: Any
    _engine: Any
    _placed_state: dict[str, onnx.TensorProto]
    _ready: Callable[[str], Any]

    @checked
    def updateExternallySavedTensorLocations(self, fromLocation: str, toLocation: str, /) -> None:
        """Copy external data to another file, where `modelToHost` then writes."""
        tensors = (*self._prepared.source.proto.graph.initializer, *self._placed_state.values())
        move_external_data(tensors, fromLocation, toLocation)

    def getRNGState(self) -> list[int]:
        """State of the random number generators, `RNG_WORDS` numbers per replica.

        Raises
        ------
        popart_runtime_error
            The option enableLoadAndOffloadRNGState is off.
        """
        self._require_rng("getRNGState")
        engine = self._ready("getRNGState")
        words = engine.rng if engine.rng is not None else np.zeros(self._rng_size(), np.uint32)
        return [int(w) for w in words]

    @checked
    def setRNGState(self, rngValue: list[int]) -> None:
        """Set the state of the random number generators.

        Raises
        ------
        popart_runtime_error
            The option is off, or the list has a wrong length.
        """
        self._require_rng("setRNGState")
        if len(rngValue) != self._rng_size():
            raise popart_runtime_error(
                f"Cannot set the RNG state: the list has {len(rngValue)} values, expected {self._rng_size()} "
                f"({RNG_WORDS} for each of {self._prepared.local_replicas} replicas)"
            )
        self._ready("setRNGState").rng = np.asarray(rngValue, np.uint32)

    def _rng_size(self) -> int:
        return RNG_WORDS * self._prepared.local_replicas

    def _require_rng(self, what: str) -> None:
        if not self._request.options.enableLoadAndOffloadRNGState:
            raise popart_runtime_error(f"{what} needs the session option enableLoadAndOffloadRNGState set to true")

    def connectStreamToCallback(self, streamHandle: str, callback: Callable[..., Any], index: int, /) -> None:
        """Not available: this runtime has no data streams to hook into.

        Raises
        ------
        popart_exception
            Always.
        """
        raise popart_exception(
            f"connectStreamToCallback('{streamHandle}'): there are no device streams in this runtime.\n"
            "  fix: feed the tensor with a PyStepIOCallback."
        )
