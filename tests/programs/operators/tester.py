"""Runs a small program as PopART users test an operator: build, make a session, run once, look at every anchor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import popart_jax as popart

GRADIENT = popart.reservedGradientPrefix()


class Recorder(popart.Builder):
    """A builder that takes arrays as inputs and keeps them as the data to feed."""

    def __init__(self, opsets: dict[str, int] | None = None) -> None:
        super().__init__(opsets=opsets)
        self.fed: dict[str, np.ndarray] = {}

    def feed(self, data: Any, *rest: Any) -> str:
        """Add an input of the array's type and shape."""
        array = np.asarray(data)
        name = self.addInputTensor(popart.TensorInfo(array), *rest)
        self.fed[name] = array
        return name

    def onnx(self, opset: int) -> Any:
        """The ai.onnx operators of an opset."""
        return getattr(self, f"aiOnnxOpset{opset}")


def session_of(
    builder: Recorder,
    anchors: Sequence[str],
    *,
    train: bool = False,
    loss: str = "",
    reduction: popart.ReductionType = popart.ReductionType.Sum,
    optimizer: Any = None,
    patterns: popart.Patterns | None = None,
    options: Mapping[str, Any] | None = None,
    batches: int = 1,
) -> Any:
    """A prepared session; in training the loss is the sum of the first anchor unless `loss` is given."""
    settings = popart.SessionOptions()
    for name, value in (options or {}).items():
        setattr(settings, name, value)
    flow = popart.DataFlow(batches, {a: popart.AnchorReturnType("All") for a in anchors})
    device = popart.DeviceManager().createCpuDevice()
    common = {"dataFlow": flow, "deviceInfo": device, "userOptions": settings, "patterns": patterns}
    if train:
        target = loss or builder.aiGraphcore.identityloss([anchors[0]], reduction)
        optimizer = optimizer or popart.ConstSGD(0.01)
        session = popart.TrainingSession(builder.getModelProto(), loss=target, optimizer=optimizer, **common)
    else:
        session = popart.InferenceSession(builder.getModelProto(), **common)
    session.prepareDevice()
    session.weightsFromHost()
    return session


def run(build: Callable[[Recorder], Any], opsets: dict[str, int] | None = None, **kwargs: Any) -> list[np.ndarray]:
    """Arrays of the anchors that `build` returns, in their order."""
    builder = Recorder(opsets)
    anchors = build(builder)
    anchors = [anchors] if isinstance(anchors, str) else list(anchors)
    session = session_of(builder, anchors, **kwargs)
    arrays = session.initAnchorArrays()
    session.run(popart.PyStepIO(builder.fed, arrays))
    return [arrays[a] for a in anchors]
