"""A training session that starts from a file computes the bits of one that is made in full."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import popart_jax as popart
from popart_jax import learnt
from popart_jax.session import start_lookup as start

from ..platforms import ON_CPUS
from .starting import LABELS, OPTIMIZERS, RATE, RNG, accumulating, model, prepared, read, specific, steps, stored, whole

pytestmark = ON_CPUS


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_bits_are_those_of_a_session_made_in_full(
    case: str, cache: Path, made_in_full: list[str], tmp_path: Path
) -> None:
    given, optimizer = model(norm=case == "Adam"), OPTIMIZERS[case]
    first = whole(given, optimizer, tmp_path / "first.onnx")
    assert made_in_full == ["session"]
    second, stepio = prepared(given, optimizer(0.1))
    assert steps(second, stepio, 3) == first[:6]
    second.updateOptimizerFromHost(optimizer(0.03))
    steps(second, stepio, 2)
    read(second, "w1")
    assert made_in_full == ["session"]
    assert whole(given, optimizer, tmp_path / "second.onnx") == first
    assert made_in_full == ["session"] * 2
    again = ((tmp_path / "first.onnx").read_bytes(), given[1])  # holds optimizer state
    assert whole(again, optimizer, tmp_path / "third.onnx") == whole(again, optimizer, tmp_path / "fourth.onnx")
    assert made_in_full == ["session"] * 4


def test_options_of_the_program_alone_start_too(cache: Path, made_in_full: list[str]) -> None:
    given, seen = model(), []
    for _ in range(2):
        made, stepio = prepared(given, OPTIMIZERS["momentum"](0.1), userOptions=accumulating())
        seen.append((steps(made, stepio, 3), read(made, "w1", "w2")))
    assert made_in_full == ["session"]
    assert seen[0] == seen[1]


def maps() -> tuple[bytes, str]:
    """A network of convolutions, whose weights have another order on the device, with statistics that runs change."""
    builder = popart.Builder()
    h = builder.addInputTensor(popart.TensorInfo("FLOAT", [6, 5, 9, 9]), "x")
    labels = builder.addInputTensor(popart.TensorInfo("INT32", LABELS.shape[1:]), "labels")
    for width, name in ((8, "c1"), (4, "c2")):
        shape = (width, 5 if name == "c1" else 8, 3, 3)
        w = builder.addInitializedInputTensor(RNG.normal(size=shape).astype(np.float32), name)
        h = builder.aiOnnx.conv([h, w], pads=[1, 1, 1, 1])
        parts = [np.full(width, v, np.float32) for v in (1, 0, 0, 1)]
        norm = [builder.addInitializedInputTensor(x, f"{name}_{i}") for i, x in enumerate(parts)]
        h = builder.aiOnnx.relu([builder.aiOnnx.batchnormalization([h, *norm], 5)[0]])
    h = builder.aiOnnx.flatten([builder.aiOnnx.globalaveragepool([h])])
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([h]), labels])
    return builder.getModelProto(), loss


def test_convolutions_and_statistics(cache: Path, made_in_full: list[str], tmp_path: Path) -> None:
    proto, loss = maps()
    flow = popart.DataFlow(2, {loss: popart.AnchorReturnType("All"), "c2": popart.AnchorReturnType("Final")})
    data = {"x": RNG.normal(size=(2, 6, 5, 9, 9)).astype(np.float32), "labels": LABELS}
    kinds = {t.name: tuple(t.dims) for t in onnx.ModelProto.FromString(proto).graph.initializer}
    found: list[Any] = []
    for name in ("first", "second"):
        device = popart.DeviceManager().createCpuDevice()
        made = popart.TrainingSession(proto, flow, loss, OPTIMIZERS["Adam"](0.1), device)
        made.prepareDevice()
        made.weightsFromHost()
        stepio, into = popart.PyStepIO(data, made.initAnchorArrays()), {n: np.empty(s, "f4") for n, s in kinds.items()}
        seen: list[Any] = steps(made, stepio, 3)
        made.weightsToHost()
        made.readWeights(popart.PyWeightsIO(into))
        assert made_in_full == ["session"]  # the first one
        made.modelToHost(str(tmp_path / name))
        seen += [{n: x.tobytes() for n, x in into.items()}, stored(tmp_path / name), *steps(made, stepio, 2)]
        found.append(seen)
    assert found[0] == found[1]
    assert made_in_full == ["session"] * 2
    assert len(kinds) == 10


def test_other_weights_start_from_the_same_file(cache: Path, made_in_full: list[str], tmp_path: Path) -> None:
    adam = OPTIMIZERS["Adam"]
    proto, loss = model()
    prepared((proto, loss), adam(0.1))
    other = onnx.ModelProto.FromString(proto)
    for tensor in other.graph.initializer:
        tensor.float_data[:] = [v / 2 for v in tensor.float_data]
    changed = other.SerializeToString()
    started, stepio = prepared((changed, loss), adam(0.2))  # another value that is not constant
    found = steps(started, stepio, 2)
    assert made_in_full == ["session"]
    (tmp_path / "model.onnx").write_bytes(changed)
    made, stepio = prepared((tmp_path / "model.onnx", loss), adam(0.2))
    assert steps(made, stepio, 2) == found
    assert made_in_full == ["session"]
    made.getIr()
    assert steps(made, stepio, 2) == steps(started, stepio, 2)


CHANGES: dict[str, Callable[[], popart.Optimizer]] = {
    "a constant value": lambda: popart.SGD({RATE: (0.1, False), "defaultMomentum": (0.8, True)}),
    "what is constant": lambda: popart.SGD({RATE: (0.1, True), "defaultMomentum": (0.9, True)}),
    "another kind": lambda: popart.Adam({RATE: (0.1, False)}),
    "Nesterov": lambda: popart.SGD({RATE: (0.1, False), "defaultMomentum": (0.9, True), "nesterov": (1, False)}),
    "no Nesterov": lambda: popart.SGD({RATE: (0.1, False), "defaultMomentum": (0.9, True), "nesterov": (0, False)}),
    "a type": lambda: popart.SGD(
        {RATE: (0.1, False), "defaultMomentum": (0.9, True)}, accl1Type=popart.DataType.FLOAT16
    ),
    "specific values": lambda: specific(0.1),
    "clips": lambda: popart.SGD(
        {RATE: (0.1, False), "defaultMomentum": (0.9, True)}, [popart.ClipNormSettings.clipAllWeights(1)]
    ),
}


def test_another_optimizer_is_another_file(
    cache: Path, made_in_full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also among the programs that sessions made in full find."""
    given, found = model(), []
    optimizers = [OPTIMIZERS["momentum"], *(lambda _, make=make: make() for make in CHANGES.values())]
    for optimizer in optimizers:
        made, stepio = prepared(given, optimizer(0.1))
        found.append(steps(made, stepio, 3))
    assert made_in_full == ["session"] * len(optimizers)
    assert len({seen[-1] for seen in found}) == len(optimizers) - 1  # a constant rate computes as one that is not
    with monkeypatch.context() as patch:
        patch.setenv(learnt.FOLDER, "")
        for optimizer, before in zip(optimizers, found, strict=True):
            made, stepio = prepared(given, optimizer(0.1))
            assert steps(made, stepio, 3) == before


class Own(popart.SGD):
    """An optimizer that a program defines."""


def test_optimizers_of_programs_are_made_in_full(cache: Path, made_in_full: list[str]) -> None:
    given = model()
    for _ in range(2):
        prepared(given, Own({RATE: (0.1, False)}))
    assert made_in_full == ["session"] * 2


@pytest.mark.parametrize("damage", ["cut", "other", "empty"])
def test_a_damaged_file_is_as_none(damage: str, cache: Path, made_in_full: list[str]) -> None:
    given, optimizer = model(), OPTIMIZERS["momentum"](0.1)
    found = steps(*prepared(given, optimizer), 2)
    for path in cache.glob("*.popef"):
        data = path.read_bytes()
        path.write_bytes({"cut": data[: len(data) // 2], "other": b"x" * len(data), "empty": b""}[damage])
    assert steps(*prepared(given, optimizer), 2) == found
    assert made_in_full == ["session"] * 2


def test_another_version_is_made_in_full(cache: Path, made_in_full: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given, optimizer = model(), OPTIMIZERS["momentum"](0.1)
    found = steps(*prepared(given, optimizer), 2)
    monkeypatch.setattr(start, "installed", lambda: ["jax-9.9.dist-info"])
    assert steps(*prepared(given, optimizer), 2) == found
    assert made_in_full == ["session"] * 2


def test_weights_from_host_starts_again(cache: Path, made_in_full: list[str]) -> None:
    given, optimizer = model(), OPTIMIZERS["Adam"](0.1)
    prepared(given, optimizer)
    made, stepio = prepared(given, optimizer)
    found = steps(made, stepio, 2)
    made.weightsFromHost()
    assert steps(made, stepio, 2) == found
    assert made_in_full == ["session"]
    made.prepareDevice()  # once more, which sends the host's values too
    assert steps(made, stepio, 2) == found
    assert made_in_full == ["session"] * 2
