"""A training session that starts from a file computes the bits of one that is made in full, and becomes one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import popart_jax as popart
from popart_jax import learnt
from popart_jax.session import parts as session_parts
from popart_jax.session import start_lookup as start

from ..platforms import ON_CPUS

pytestmark = ON_CPUS

RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(2, 6, 5)).astype(np.float32), RNG.integers(0, 4, (2, 6)).astype(np.int32)
W1, W2 = RNG.normal(size=(5, 7)).astype(np.float32), RNG.normal(size=(7, 4)).astype(np.float32)
RATE = "defaultLearningRate"


def model(*, dropout: bool = False, norm: bool = False) -> tuple[bytes, str]:
    """A classifier, and the name of its loss."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", X.shape[1:]), "x")
    labels = builder.addInputTensor(popart.TensorInfo("INT32", LABELS.shape[1:]), "labels")
    weights = [builder.addInitializedInputTensor(w, n) for n, w in (("w1", W1), ("w2", W2))]
    h = builder.aiOnnx.matmul([x, weights[0]])
    if norm:
        first = [builder.addInitializedInputTensor(np.full(7, v, np.float32)) for v in (1, 0, 0, 1)]
        h = builder.aiOnnx.batchnormalization([h, *first], 5)[0]
    h = builder.aiOnnx.relu([h])
    if dropout:
        h = builder.aiOnnx.dropout([h], 1, 0.5)[0]
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([builder.aiOnnx.matmul([h, weights[1]])]), labels])
    return builder.getModelProto(), loss


def accumulating() -> popart.SessionOptions:
    """Options that act in the program alone: two micro-batches for each update, whose mean it takes."""
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    options.enableOutlining = False
    return options


def session(given: tuple[Any, str], optimizer: popart.Optimizer, **more: Any) -> Any:
    proto, loss = given
    batches = 1 if "userOptions" in more else 2
    flow = popart.DataFlow(batches, {loss: popart.AnchorReturnType("All"), "w2": popart.AnchorReturnType("Final")})
    return popart.TrainingSession(proto, flow, loss, optimizer, popart.DeviceManager().createCpuDevice(), **more)


def prepared(given: tuple[Any, str], optimizer: popart.Optimizer, **more: Any) -> tuple[Any, popart.PyStepIO]:
    made = session(given, optimizer, **more)
    made.prepareDevice()
    made.weightsFromHost()
    return made, popart.PyStepIO({"x": X.copy(), "labels": LABELS.copy()}, made.initAnchorArrays())


def steps(made: Any, stepio: popart.PyStepIO, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        made.run(stepio)
        found += [a.tobytes() for a in stepio.outputs.values()]
    return found


def read(made: Any, *names: str) -> list[bytes]:
    made.weightsToHost()
    into = {n: np.empty({"w1": W1, "w2": W2}[n.removeprefix("Accl1___")].shape, np.float32) for n in names}
    made.readWeights(popart.PyWeightsIO(into))
    return [a.tobytes() for a in into.values()]


def stored(file: Path) -> dict[str, bytes]:
    return {t.name: t.SerializeToString() for t in onnx.load(file).graph.initializer}


def sgd(**values: Any) -> Callable[[float], popart.Optimizer]:
    more = values.pop("more", {})
    return lambda rate: popart.SGD({RATE: (rate, False), **values}, **more)


SEPARATE = {"accumulatorAndMomentum": popart.SGDAccumulatorAndMomentum.Separate}


def specific(rate: float) -> popart.Optimizer:
    made = popart.SGD({RATE: (rate, False), "defaultMomentum": (0.9, True)})
    made.insertSpecific("w1", {"learningRate": (rate / 2, False), "momentum": (0.5, True)})
    return made


def adam(mode: str = "Adam", **values: Any) -> Callable[[float], popart.Optimizer]:
    return lambda rate: popart.Adam({RATE: (rate, False), **values}, mode=getattr(popart.AdamMode, mode))


def adaptive(mode: str, **values: Any) -> Callable[[float], popart.Optimizer]:
    return lambda rate: popart.Adaptive({RATE: (rate, False), **values}, mode=getattr(popart.AdaptiveMode, mode))


OPTIMIZERS: dict[str, Callable[[float], popart.Optimizer]] = {
    "plain": sgd(),
    "constant": lambda _: popart.ConstSGD(0.1, 0.01),
    "momentum": sgd(defaultMomentum=(0.9, True), defaultWeightDecay=(0.1, False)),
    "two tensors": sgd(defaultMomentum=(0.9, False), defaultDampening=(0.1, False), more=SEPARATE),
    "Nesterov": sgd(defaultMomentum=(0.9, True), nesterov=(1, True)),
    "loss scaling": sgd(lossScaling=(8, False)),
    "clipped": sgd(more={"clip_norm_settings": [popart.ClipNormSettings.clipAllWeights(0.5)]}),
    "half a velocity": sgd(defaultMomentum=(0.9, True), more={"accl1Type": popart.DataType.FLOAT16}),
    "specific": specific,
    "Adam": adam(defaultWeightDecay=(0.01, True)),
    "Adam without bias": adam("AdamNoBias"),
    "Lamb": adam("Lamb", lossScaling=(4, False)),
    "AdaGrad": adaptive("AdaGrad"),
    "RMSProp": adaptive("CenteredRMSProp", defaultMomentum=(0.5, True)),
}


def whole(given: tuple[Any, str], optimizer: Callable[[float], popart.Optimizer], file: Path) -> list[Any]:
    """All that a program can see of a training session."""
    made, stepio = prepared(given, optimizer(0.1))
    seen: list[Any] = steps(made, stepio, 3)
    made.updateOptimizerFromHost(optimizer(0.03))
    seen += steps(made, stepio, 2) + read(made, "w1", "w2")
    made.modelToHost(str(file))  # the session is made in full here
    seen += [stored(file), *steps(made, stepio, 2), *read(made, "w1", "w2")]
    return seen


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


def refused(given: tuple[Any, str], act: Callable[[Any, popart.PyStepIO], None], name: str) -> str:
    made = session(given, OPTIMIZERS["momentum"](0.1), name=name)
    anchors = {given[1]: np.empty(2, np.float32), "w2": np.empty_like(W2)}
    with pytest.raises(popart.popart_exception) as caught:
        act(made, popart.PyStepIO({"x": X, "labels": LABELS}, anchors))
    return str(caught.value)


def without_weights(made: Any, stepio: popart.PyStepIO) -> None:
    made.prepareDevice()
    made.run(stepio)


def unfetched(made: Any, _: popart.PyStepIO) -> None:
    made.prepareDevice()
    made.readWeights(popart.PyWeightsIO({"w1": np.empty_like(W1)}))


def of_another_size(made: Any, _: popart.PyStepIO) -> None:
    made.prepareDevice()
    made.weightsToHost()
    made.readWeights(popart.PyWeightsIO({"w1": np.empty(3, np.float32)}))


REFUSED: dict[str, Callable[[Any, popart.PyStepIO], None]] = {
    "not prepared": lambda made, _: made.weightsFromHost(),
    "not prepared, to host": lambda made, _: made.weightsToHost(),
    "weights not sent": without_weights,
    "not fetched": unfetched,
    "another size": of_another_size,
    "another optimizer": lambda made, _: made.updateOptimizerFromHost(popart.ConstSGD(0.1)),
    "no optimizer for it": lambda made, _: made.updateOptimizerFromHost(popart.Adam({RATE: (0.1, False)})),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_refused_as_ever(case: str, cache: Path) -> None:
    given = model()
    prepared(given, OPTIMIZERS["momentum"](0.1))
    assert refused(given, REFUSED[case], "training") == refused(given, REFUSED[case], "made in full")


def test_a_run_that_fails_leaves_the_weights(
    cache: Path, made_in_full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, optimizer = model(), OPTIMIZERS["Adam"](0.1)
    made, stepio = prepared(given, optimizer)
    wanted = steps(made, stepio, 3)
    second, stepio = prepared(given, optimizer)

    def fail(*_: Any) -> None:
        raise RuntimeError("lost")

    first = second._parts.first
    found = steps(second, stepio, 1)
    before = read(second, "w1", "w2")
    with monkeypatch.context() as patch:
        patch.setattr(first, "_put_hyper", fail)
        with pytest.raises(RuntimeError, match="lost"):
            second.run(stepio)
    with pytest.raises(popart.popart_exception):
        second.run(popart.PyStepIO({"x": X.astype(np.float64), "labels": LABELS}, stepio.outputs))
    assert read(second, "w1", "w2") == before
    assert found + steps(second, stepio, 2) == wanted


def test_a_first_run_that_fails_is_made_in_full(
    cache: Path, made_in_full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, optimizer = model(), OPTIMIZERS["Adam"](0.1)
    wanted = steps(*prepared(given, optimizer), 3)
    made, stepio = prepared(given, optimizer)

    def fail(*_: Any) -> None:
        raise RuntimeError("lost")

    monkeypatch.setattr(made._parts.first, "call", fail)
    assert steps(made, stepio, 3) == wanted
    assert made_in_full == ["session"] * 2


def test_a_session_that_can_not_be_made_goes_on(
    cache: Path, made_in_full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, optimizer = model(), OPTIMIZERS["Adam"](0.1)
    wanted = steps(*prepared(given, optimizer), 5)
    made, stepio = prepared(given, optimizer)
    found = steps(made, stepio, 2)

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(session_parts.later, "Reports", fail)
        with pytest.raises(KeyboardInterrupt):
            made.getIr()
    found += steps(made, stepio, 1)
    assert made_in_full == ["session"] * 2
    made.getIr()
    assert found + steps(made, stepio, 2) == wanted


def test_steps_run_on_while_another_thread_makes_the_session(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, optimizer = model(), OPTIMIZERS["momentum"](0.1)
    wanted = steps(*prepared(given, optimizer), 8)
    made, stepio = prepared(given, optimizer)
    found = steps(made, stepio, 2)
    begun, may_end, files = threading.Event(), threading.Event(), session_parts.later.ModelFiles

    def slow(*args: Any) -> Any:
        begun.set()
        assert may_end.wait(60)
        return files(*args)

    monkeypatch.setattr(session_parts.later, "ModelFiles", slow)
    other = threading.Thread(target=made.getIr)
    other.start()
    assert begun.wait(60)
    found += steps(made, stepio, 3)
    may_end.set()
    other.join()
    assert made._parts.first is None
    assert found + steps(made, stepio, 3) == wanted


def test_no_step_is_lost_while_another_thread_makes_the_session(cache: Path) -> None:
    given, optimizer = model(), OPTIMIZERS["momentum"](0.1)
    wanted = steps(*prepared(given, optimizer), 300)
    made, stepio = prepared(given, optimizer)
    other = threading.Thread(target=made.getIr)
    found = steps(made, stepio, 2)
    other.start()
    found += steps(made, stepio, 298)
    other.join()
    assert found == wanted


def test_the_seed_is_handed_over(cache: Path, made_in_full: list[str]) -> None:
    given, optimizer = model(dropout=True), OPTIMIZERS["plain"](0.1)
    made, stepio = prepared(given, optimizer)
    started, other = prepared(given, optimizer)
    seed = started._parts.first.seed
    found = steps(started, other, 2)
    assert made_in_full == ["session"]
    now = started.getRandomSeed()
    found += steps(started, other, 2)
    made.setRandomSeed(seed)
    wanted = steps(made, stepio, 2)
    assert made.getRandomSeed() == now
    assert wanted + steps(made, stepio, 2) == found
    assert len(set(found)) == len(found)


SCRIPT = """
import sys, numpy as np, popart_jax as popart
flow = popart.DataFlow(2, {sys.argv[2]: popart.AnchorReturnType("All")})
optimizer = popart.Adam({"defaultLearningRate": (0.1, False)})
session = popart.TrainingSession(sys.argv[1], flow, sys.argv[2], optimizer, popart.DeviceManager().createCpuDevice())
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
data = {"x": np.ones((2, 6, 5), np.float32), "labels": np.zeros((2, 6), np.int32)}
for rate in (0.2, 0.1):
    session.updateOptimizerFromHost(popart.Adam({"defaultLearningRate": (rate, False)}))
    session.run(popart.PyStepIO(data, anchors))
session.weightsToHost()
weights = {"w1": np.empty((5, 7), np.float32)}
session.readWeights(popart.PyWeightsIO(weights))
print(weights["w1"].tobytes().hex())
print(*[name for name in ("jax", "onnx", "onnx_ir.serde", "patterns") if name in sys.modules])
"""


@pytest.mark.processes
def test_a_process_needs_neither_jax_nor_onnx(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(model()[0])
    environment = {n: v for n, v in os.environ.items() if not n.startswith("POP")}
    environment |= {learnt.FOLDER: str(tmp_path / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "model.onnx"), model()[1]]
    done = [subprocess.run(command, env=environment, check=True, capture_output=True, text=True) for _ in range(2)]
    weights, imported = zip(*(run.stdout.split("\n")[:2] for run in done), strict=True)
    assert weights[0] == weights[1]
    assert [text.split() for text in imported] == [["jax", "onnx", "onnx_ir.serde", "patterns"], []]


BUILT = """
import sys, numpy as np, popart_jax as popart
builder = popart.Builder()
x = builder.addInputTensor("FLOAT", [6, 5], "x")
w = builder.addInitializedInputTensor(np.ones((5, 7), np.float32), "w")
loss = builder.aiGraphcore.l1loss([builder.aiGraphcore.gelu([builder.aiOnnx.matmul([x, w])])], 0.1)
flow, device = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}), popart.DeviceManager().createCpuDevice()
CHANGE
session = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
session.run(popart.PyStepIO({"x": np.linspace(-1, 1, 30, dtype=np.float32).reshape(6, 5)}, anchors))
print(anchors[loss].tobytes().hex(), "jax" in sys.modules)
"""


@pytest.mark.processes
def test_a_process_whose_builder_needed_jax_leaves_a_file(tmp_path: Path) -> None:
    environment = {n: v for n, v in os.environ.items() if not n.startswith("POP")}
    environment |= {learnt.FOLDER: str(tmp_path / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    changed = "import jax; jax.config.update('jax_default_matmul_precision', 'bfloat16')"
    scripts = [BUILT.replace("CHANGE", changed), *[BUILT.replace("CHANGE", "")] * 2]
    done = [
        subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
        for script in scripts
    ]
    losses, imported = zip(*(run.stdout.split() for run in done), strict=True)
    assert imported == ("True", "True", "False")  # the changed setting has left no file
    assert losses[1] == losses[2]
