"""`InferenceSession`."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from .._calls import checked
from ..errors import logs_errors_of_methods
from ..model.files.opened import opened
from .core import SessionCore
from .devices.devices import DeviceInfo
from .older_calls import accepts_older_spellings
from .start import Asked


@runtime_checkable
class MakesSession(Protocol):
    """A program of another front end (PopXL) that can make an inference session of itself."""

    def _inference_session(self, device: DeviceInfo, name: str) -> InferenceSession: ...


@logs_errors_of_methods
class InferenceSession(SessionCore):
    """Runs a model forward.

    Parameters
    ----------
    fnModel : str, bytes or open binary file
        File name or serialised ModelProto; an onnx.ModelProto or onnx_ir.Model will do too.
    dataFlow : DataFlow
        Batches per step and anchors.
    deviceInfo : DeviceInfo
        Where to run.
    inputShapeInfo : InputShapeInfo
        Shapes of inputs that the model leaves open.
    patterns : Patterns, optional
        Graph rewrites.
    userOptions : SessionOptions
        Options.
    name : str
        Name of the session.

    Raises
    ------
    popart_exception
        Whatever is wrong with the model, options or anchors.
    """

    @accepts_older_spellings
    def __init__(
        self,
        fnModel: Any,
        dataFlow: Any,
        deviceInfo: Any,
        inputShapeInfo: Any = None,
        patterns: Any = None,
        userOptions: Any = None,
        name: str = "inference",
    ) -> None:
        self._start(Asked(opened(fnModel), dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions, name))
        self._in_sync = True

    @staticmethod
    def fromIr(ir: Any, deviceInfo: Any, name: str = "fromIr") -> InferenceSession:
        """A session of a PopXL program.

        Parameters
        ----------
        ir : Ir or its view
            The program.
        deviceInfo : DeviceInfo
            Where to run.
        name : str
            Name of the session, and of its folder of profiles.

        Raises
        ------
        TypeError
            `ir` is no such program.
        """
        if not isinstance(ir, MakesSession):
            raise TypeError(f"fromIr takes the Ir of a PopXL program, got {type(ir).__name__}")
        return ir._inference_session(deviceInfo, name)

    def getAllTensorIds(self) -> set[str]:
        """Names of all tensors."""
        return self._tensor_ids()

    def checkInplacingAmbiguity(self) -> None:
        """Nothing to check: arrays are not modified in this runtime."""

    def copyDeviceWeightsToHost(self) -> None:
        """Fetch the weights and make them the host copy."""
        self._parts.weights.sync(self._parts.place.ready("copyDeviceWeightsToHost"))
        self._in_sync = True

    def markHostWeightsOutOfSync(self) -> None:
        """Note that the host copy is stale."""
        self._in_sync = False

    def markHostWeightsInSync(self) -> None:
        """Note that the host copy is current."""
        self._in_sync = True

    def areHostWeightsInSync(self) -> bool:
        """Whether the host copy is current."""
        return self._in_sync

    @checked
    def setEngineIsLoaded(self, isLoaded: bool) -> None:
        """Say whether the engine is on the device."""
        self._parts.place.loaded = bool(isLoaded)
