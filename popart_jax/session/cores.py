"""Sessions with the argument order of `popart_core`: options come before patterns there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, overload

from .._calls import overloaded
from .devices.devices import DeviceInfo
from .feeding.anchor_arrays import init_anchor_arrays
from .inference import InferenceSession
from .training import TrainingSession


class _InferenceSessionCore(InferenceSession):
    """An inference session made with the core's argument order, or one of a PopXL program."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else kwargs.get("model", kwargs.get("ir"))
        if isinstance(first, (str, bytes, Path)):
            return super().__new__(cls)
        return cls.fromIr(*args, **kwargs)

    @overload
    def __init__(
        self,
        model: str | bytes,
        dataFlow: Any,
        deviceInfo: Any,
        inputShapeInfo: Any,
        userOptions: Any,
        patterns: Any,
        name: str = "inference",
    ) -> None: ...
    @overload
    def __init__(self, ir: Any, deviceInfo: Any, name: str = "fromIr") -> None: ...
    @overloaded
    def __init__(
        self,
        model: Any = None,
        dataFlow: Any = None,
        deviceInfo: Any = None,
        inputShapeInfo: Any = None,
        userOptions: Any = None,
        patterns: Any = None,
        name: str = "inference",
    ) -> None:
        super().__init__(model, dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions, name)

    def _setDeviceInfo(self, deviceInfo: DeviceInfo, /) -> None:
        self._parts.place.device = deviceInfo


class _TrainingSessionCore(TrainingSession):
    """A training session made with the core's argument order."""

    def __init__(
        self,
        model: str | bytes,
        dataFlow: Any,
        loss: str,
        optimizer: Any,
        deviceInfo: Any,
        inputShapeInfo: Any,
        userOptions: Any,
        patterns: Any,
        name: str = "training",
    ) -> None:
        super().__init__(model, dataFlow, loss, optimizer, deviceInfo, inputShapeInfo, patterns, userOptions, name)


def _initAnchorArrays(sess: InferenceSession | TrainingSession) -> dict[str, Any]:
    """Arrays for the anchors of a session."""
    return init_anchor_arrays(sess)
