"""Arguments of a session's constructor, checked and copied: `Request`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from ..errors import popart_exception
from ..model.files.stripped import StrippedModel
from ..model.input_shapes import InputShapeInfo
from ..model.origin import imported_as_popart
from ..optimizers import Optimizer
from .devices.devices import DeviceInfo
from .feeding.dataflow import DataFlow
from .options.session_options import SessionOptions, local_replicas
from .patterns_api import Patterns
from .start import Asked

STRICT = "popart_jax.strict"
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

    Raises
    ------
    popart_exception
        The option is neither true nor false.
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


def make_request(
    fnModel: Any, dataFlow: Any, deviceInfo: Any, inputShapeInfo: Any, patterns: Any, userOptions: Any, name: str,
    loss: Any = None, optimizer: Optimizer | None = None,
) -> Request:  # fmt: skip
    """Arguments of a constructor, checked and copied.

    Raises
    ------
    popart_exception
        No device.
    TypeError
        An argument of a wrong type.
    """
    if deviceInfo is None:
        kind = "InferenceSession" if loss is None else "TrainingSession"
        raise popart_exception(f"Must pass a valid deviceInfo to {kind}::createFromOnnxModel")
    flow = DataFlow(1, {}) if dataFlow is None else dataFlow
    for value, kind, what in (
        (flow, DataFlow, "dataFlow"),
        (inputShapeInfo or InputShapeInfo(), InputShapeInfo, "inputShapeInfo"),
        (patterns or Patterns(), Patterns, "patterns"),
        (userOptions or SessionOptions(), SessionOptions, "userOptions"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{what} must be a {kind.__name__}, got {type(value).__name__}")
    return Request(
        model=fnModel,
        data_flow=copy.deepcopy(flow),
        device=deviceInfo,
        options=copy.deepcopy(userOptions) if userOptions is not None else SessionOptions(),
        patterns=copy.deepcopy(patterns) if patterns is not None else _patterns_by_default(),
        shapes=copy.deepcopy(inputShapeInfo) if inputShapeInfo is not None else InputShapeInfo(),
        name=name,
        loss=loss,
        optimizer=None if optimizer is None else optimizer.clone(),
    )


def request_of(asked: Asked, model: StrippedModel | None = None) -> Request:
    """The request of an inference session; `model` is its model if that was read already. See `make_request`."""
    given = asked.model if model is None else model
    return make_request(given, asked.data_flow, asked.device, asked.shapes, asked.patterns, asked.options, asked.name)
