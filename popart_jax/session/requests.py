"""Arguments of a session's constructor, checked and copied: `Request`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from .._calls import Mismatch
from ..errors import popart_exception
from ..model.files.stripped import StrippedModel
from ..model.input_shapes import InputShapeInfo
from ..model.origin import imported_as_popart
from ..optimizers import Optimizer
from .devices.devices import DeviceInfo
from .feeding.dataflow import DataFlow
from .options.engine_options import STRICT
from .options.session_options import SessionOptions, local_replicas
from .patterns_api import Patterns
from .start import Asked

_WORDS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class Request:
    """A session's own copy of its constructor's arguments. `loss` and `optimizer` are None for inference."""

    model: str | bytes | Path | onnx.ModelProto | StrippedModel
    data_flow: DataFlow
    device: DeviceInfo
    options: SessionOptions
    patterns: Patterns
    shapes: InputShapeInfo
    name: str
    loss: str | None = None
    optimizer: Optimizer | None = None

    @property
    def strict(self) -> bool:
        """Whether PopART's refusals hold where ONNX has none."""
        return is_strict(self.options.engineOptions)

    @property
    def local_replicas(self) -> int:
        """Replicas of this process."""
        return local_replicas(self.options)


def is_strict(options: Mapping[str, str]) -> bool:
    """Whether PopART's refusals hold, by the engine options or else by how the program imported us.

    An option that is neither true nor false raises popart_exception.
    """
    asked = options.get(STRICT)
    if asked is None:
        return imported_as_popart()
    if asked.lower() not in _WORDS:
        raise popart_exception(f"Engine option {STRICT} is true or false, got '{asked}'.")
    return _WORDS[asked.lower()]


def _patterns_by_default() -> Patterns:
    """Patterns of a session without that argument: PopART's default, plus strided slices, which the default refuses."""
    return Patterns().enablePattern("Slice2SliceSubsample", True)


def request_of(asked: Asked, model: StrippedModel | None = None) -> Request:
    """Arguments of a constructor, checked and copied; `model` is the model if that was read already.

    Raises popart_exception without a device, Mismatch for an argument of a wrong type.
    """
    if asked.device is None:
        kind = "InferenceSession" if asked.loss is None else "TrainingSession"
        raise popart_exception(f"Must pass a valid deviceInfo to {kind}::createFromOnnxModel")
    flow = DataFlow(1, {}) if asked.data_flow is None else asked.data_flow
    for value, kind, what in (
        (flow, DataFlow, "dataFlow"),
        (asked.device, DeviceInfo, "deviceInfo"),
        (asked.shapes, InputShapeInfo, "inputShapeInfo"),
        (asked.patterns, Patterns, "patterns"),
        (asked.options, SessionOptions, "userOptions"),
    ):
        if value is not None and not isinstance(value, kind):
            raise Mismatch(f"{what} must be a {kind.__name__}, got {type(value).__name__}")
    return Request(
        model=asked.model if model is None else model,
        data_flow=copy.deepcopy(flow),
        device=asked.device,
        options=copy.deepcopy(asked.options) if asked.options is not None else SessionOptions(),
        patterns=copy.deepcopy(asked.patterns) if asked.patterns is not None else _patterns_by_default(),
        shapes=copy.deepcopy(asked.shapes) if asked.shapes is not None else InputShapeInfo(),
        name=asked.name,
        loss=asked.loss,
        optimizer=None if asked.optimizer is None else asked.optimizer.clone(),
    )
