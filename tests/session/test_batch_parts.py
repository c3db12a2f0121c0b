"""Batch serialisation as it runs: the same values, and less memory where the parts take turns."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import popart_jax as popart
from popart_jax.execution.micro import run_micro_batch
from popart_jax.ops.kernels import tracing_for

from . import nets

X = np.random.default_rng(0).normal(size=(6, 4, 3)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)


def options(factor: int, schedule: str = "Isomorphic") -> popart.SessionOptions:
    made = nets.make_options()
    made.batchSerializationSettings.factor = factor
    made.batchSerializationSettings.batchSchedule = popart.BatchSerializationBatchSchedule[schedule]
    return made


def network() -> tuple[popart.Builder, dict[str, str]]:
    """Operators on parts, a mean over the whole batch between them, and shapes that hold the batch."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", X.shape), "x")
    w = builder.addInitializedInputTensor(W, "w")
    product = builder.aiOnnx.matmul([x, w])
    flat = builder.reshape_const(builder.aiOnnx, [product], [6, 32])
    mean = builder.aiOnnx.reducemean([flat], axes=[0], keepdims=1)
    centred = builder.aiOnnx.sub([flat, mean])
    turned = builder.aiOnnx.transpose([centred], perm=[1, 0])
    odds = builder.aiOnnx.softmax([builder.aiOnnx.transpose([turned], perm=[1, 0])], axis=1)
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.mul([odds, centred])], 0.5, popart.ReductionType.Sum)
    return builder, {"turned": turned, "odds": odds, "loss": loss, "flat": flat}


def expected() -> dict[str, np.ndarray]:
    flat = (X.astype(float) @ W).reshape(6, 32)
    centred = flat - flat.mean(0, keepdims=True)
    e = np.exp(centred - centred.max(1, keepdims=True))
    odds = e / e.sum(1, keepdims=True)
    return {"turned": centred.T, "odds": odds, "loss": 0.5 * np.abs(odds * centred).sum()}


@pytest.mark.parametrize("schedule", ["Isomorphic", "Scheduler"])
@pytest.mark.parametrize("factor", [2, 3])
def test_parts_compute_the_whole(factor: int, schedule: str) -> None:
    builder, names = network()
    wanted = {n: t for n, t in names.items() if n != "flat"}
    session = popart.InferenceSession(
        builder.getModelProto(), nets.flow(1, dict.fromkeys(wanted.values(), "All")), nets.device(),
        userOptions=options(factor, schedule),
    )  # fmt: skip
    batch = session._parts.prepared.program.batch
    assert batch is not None
    assert batch.axes == {"x": 0, "MatMul:0": 0, "Reshape:0": 0, "Sub:0": 0, "Transpose:0": 1, "Transpose:0/1": 0,
                          "Softmax:0": 0, "Mul:0": 0}  # fmt: skip
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": X}, anchors))
    for name, value in expected().items():
        np.testing.assert_allclose(anchors[wanted[name]], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["NoRecompute", "RecomputeAll"])
def test_gradients_are_those_of_the_whole(mode: str) -> None:
    """Also of a tensor inside, which gets its gradient part by part."""
    found: list[dict[str, Any]] = []
    for factor in (0, 3):
        builder, names = network()
        settings = options(factor)
        settings.autoRecomputation = popart.RecomputationType[mode]
        asked = {"Gradient___w": "All", "Gradient___" + names["flat"]: "All"}
        session = popart.TrainingSession(
            builder.getModelProto(), nets.flow(1, asked), names["loss"], nets.sgd(), nets.device(), userOptions=settings
        )
        session.prepareDevice()
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({"x": X}, anchors))
        found.append(anchors)
    for name, value in found[0].items():
        assert np.abs(value).max() > 0.01
        np.testing.assert_allclose(found[1][name], value, rtol=1e-4, atol=1e-6)


def peak(factor: int, schedule: str = "Isomorphic") -> int:
    """Temporary memory of a wide hidden layer."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [256, 8]), "x")
    wide, narrow = (
        builder.addInitializedInputTensor(np.ones(shape, np.float32), f"w{shape[0]}") for shape in ((8, 64), (64, 8))
    )
    hidden = builder.aiOnnx.sigmoid([builder.aiOnnx.matmul([x, wide])])
    result = builder.aiOnnx.matmul([hidden, narrow])
    session = popart.InferenceSession(
        builder.getModelProto(), nets.flow(1, {result: "All"}), nets.device(), userOptions=options(factor, schedule)
    )
    program = session._parts.prepared.program
    types = {**program.streams, **{n: v.type for n, v in program.variables.items()}}
    given = {n: jax.ShapeDtypeStruct(t.shape, t.dtype) for n, t in types.items()}
    with tracing_for("cpu"):
        lowered = jax.jit(lambda bound: run_micro_batch(program, bound, None, None).values[result]).lower(given)
        memory: Any = lowered.compile().memory_analysis()
    return memory.temp_size_in_bytes


def test_memory_falls_with_the_number_of_parts() -> None:
    whole = peak(0)
    assert peak(2) < 0.7 * whole
    assert peak(4) < 0.45 * whole
    assert peak(4, "Scheduler") > peak(4)


def test_what_is_drawn_differs_between_parts() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 64]), "x")
    w = builder.addInitializedInputTensor(np.ones(64, np.float32), "w")
    kept = builder.aiOnnx.dropout([builder.aiOnnx.mul([x, w])], 1, 0.5)[0]
    loss = builder.aiGraphcore.identityloss([kept])
    session = popart.TrainingSession(
        builder.getModelProto(), nets.flow(1, {kept: "All", "Gradient___x": "All"}), loss, nets.sgd(), nets.device(),
        userOptions=options(2),
    )  # fmt: skip
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.ones((2, 64), np.float32)}, anchors))
    assert (anchors[kept][0] != anchors[kept][1]).any()
    np.testing.assert_allclose(anchors["Gradient___x"] * 128, anchors[kept], rtol=1e-6)  # the mask, over 128 elements
