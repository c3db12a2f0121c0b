"""The sessions under the names and argument orders of the compiled core: options come before patterns there."""

from __future__ import annotations

from typing import Any

from .anchor_arrays import init_anchor_arrays
from .inference import InferenceSession
from .training import TrainingSession


class _InferenceSessionCore(InferenceSession):
    """An inference session made with the core's argument order."""

    def __init__(
        self,
        model: str | bytes,
        dataFlow: Any,
        deviceInfo: Any,
        inputShapeInfo: Any,
        userOptions: Any,
        patterns: Any,
        name: str = "inference",
    ) -> None:
        super().__init__(model, dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions, name)


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
