"""What a constructor prepares: the model is read once, and its graph before the patterns stays as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popart_jax as popart
from popart_jax.session.preparing import prepared
from popart_jax.session.reports import op_list

from . import nets
from .nets import flow, linear, sgd


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each time that a session reads its model."""
    found: list[object] = []

    def counted(read: Callable[..., Any]) -> Callable[..., Any]:
        def call(source: object, *rest: Any, **named: Any) -> Any:
            found.append(source)
            return read(source, *rest, **named)

        return call

    for module in (prepared, op_list):
        monkeypatch.setattr(module, "read_session_model", counted(module.read_session_model))
    return found


def scaled() -> popart.TrainingSession:
    """A session with automatic loss scaling, whose tracked gradients are those of the op list."""
    settings = popart.AutomaticLossScalingSettings(True)
    optimizer = popart.SGD({"lossScaling": (8, False), "defaultLearningRate": (0.1, False)})
    options = nets.make_options(automaticLossScalingSettings=settings)
    proto = nets.model(
        "g (float16[3] x) => (float16 loss) { z = Mul(x, w)  y = Sqrt(z)"
        ' loss = ai.graphcore.IdentityLoss<reduction = "Sum">(y) }',
        w=np.ones(3, np.float16),
    )
    return popart.TrainingSession(
        proto, flow(1, {"loss": "All"}), "loss", optimizer, nets.device(), userOptions=options
    )


def test_the_model_is_read_once(reads: list[object]) -> None:
    session = scaled()
    session.prepareDevice()
    assert "Histogram" in session._serializeIr(popart.IrSerializationFormat.JSON)
    assert session.getIr().serialize()
    assert session.getTensorIds()
    assert len(reads) == 1


def test_the_op_list_stays_as_it_was() -> None:
    """Patterns, layouts and compilation change other graphs."""
    text = "g (float[3] x) => (float[3] y) { a = Identity(x)  b = Sum(a, w)  y = Relu(b) }"
    session = popart.InferenceSession(nets.model(text, w=np.ones(3, np.float32)), flow(1, {"y": "All"}), nets.device())
    before = session._serializeIr(popart.IrSerializationFormat.JSON)
    session.prepareDevice()
    assert session._serializeIr(popart.IrSerializationFormat.JSON) == before
    assert {node.op_type for node in session._parts.prepared.graph} == {"Identity", "Sum", "Relu"}
    assert "Identity" not in {node.op_type for node in session._parts.prepared.program.graph}
    assert [op["type"] for op in next(iter(json.loads(before).values()))] == ["Add", "ReluInplace"]


def test_sessions_are_gone_with_their_last_name() -> None:
    """Parts do not refer back to each other: weights leave memory without the collector."""
    import gc
    import weakref

    gc.collect()
    gc.disable()
    try:
        session = popart.TrainingSession(linear()[0], flow(1, {"loss": "All"}), "loss", sgd(), nets.device())
        session.prepareDevice()
        session.weightsFromHost()
        weights = weakref.ref(session._parts.weights)
        del session
        assert weights() is None
    finally:
        gc.enable()
