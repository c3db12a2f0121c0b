"""The main job on real input: train, evaluate, save, cross-check and price a small network on handwritten digits.

``python -m popart_jax demo`` runs it. It is also the example to read first: it uses PopART's own API only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.console import Console
from rich.progress import Progress

import popart_jax as popart

BATCH, BATCHES_PER_STEP, EPOCHS = 32, 4, 14
CLASSES, SIDE = 10, 8
LEARNING_RATES = ((0, 0.1), (7, 0.03), (11, 0.01))


@dataclass(frozen=True)
class Digits:
    """Images [n, 1, 8, 8] in 0..1 and labels [n]; every fifth image is held out."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def load_digits() -> Digits:
    """The 1,797 handwritten digits that ship with scikit-learn; ImportError if that is not installed."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as err:
        raise ImportError("The demo reads scikit-learn's digits. fix: pip install 'popart-jax[demo]'") from err
    data = cast("Mapping[str, np.ndarray]", load())
    x = (data["images"] / 16.0).astype(np.float32).reshape(-1, 1, SIDE, SIDE)
    y = data["target"].astype(np.int32)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order]
    held = np.arange(len(y)) % 5 == 0
    return Digits(x[~held], y[~held], x[held], y[held])


@dataclass(frozen=True)
class Names:
    """Tensors of the network that the sessions refer to."""

    image: str
    label: str
    probabilities: str
    loss: str


def build() -> tuple[bytes, Names]:
    """Two convolutions, max-pooling and a dense layer with softmax and negative log likelihood."""
    rng = np.random.default_rng(1)
    builder = popart.Builder()
    onnx, graphcore = builder.aiOnnx, builder.aiGraphcore

    def weight(name: str, *shape: int) -> str:
        scale = (2 / np.prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0
        return builder.addInitializedInputTensor((rng.normal(size=shape) * scale).astype(np.float32), name)

    image = builder.addInputTensor(popart.TensorInfo("FLOAT", [BATCH, 1, SIDE, SIDE]), "image")
    label = builder.addInputTensor(popart.TensorInfo("INT32", [BATCH]), "label")
    x = image
    for i, (n, m) in enumerate(((1, 32), (32, 64))):
        args = [x, weight(f"conv{i}.w", m, n, 3, 3), weight(f"conv{i}.b", m)]
        x = onnx.relu([onnx.conv(args, pads=[1] * 4, strides=[1, 1], debugContext=f"conv{i}")])
    x = onnx.maxpool([x], 1, kernel_shape=[2, 2], strides=[2, 2])[0]
    flat = onnx.flatten([x])
    logits = onnx.gemm([flat, weight("dense.w", CLASSES, 64 * 16), weight("dense.b", CLASSES)], transB=1)
    probabilities = onnx.softmax([logits])
    loss = graphcore.nllloss([probabilities, label], reduction=popart.ReductionType.Mean)
    builder.addOutputTensor(probabilities)
    return builder.getModelProto(), Names(image, label, probabilities, loss)


def optimizer(learning_rate: float) -> popart.SGD:
    """Momentum SGD whose learning rate the host may change."""
    return popart.SGD({"defaultLearningRate": (learning_rate, False), "defaultMomentum": (0.9, True)})


def train(model: bytes, names: Names, data: Digits, console: Console) -> popart.TrainingSession:
    """Train with decreasing learning rates; one compiled program serves them all."""
    flow = popart.DataFlow(BATCHES_PER_STEP, {names.loss: popart.AnchorReturnType("All")})
    session = popart.TrainingSession(
        model, flow, names.loss, optimizer(LEARNING_RATES[0][1]), popart.DeviceManager().createIpuModelDevice({})
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    rng = np.random.default_rng(2)
    per_step = BATCH * BATCHES_PER_STEP
    steps = len(data.train_y) // per_step
    with Progress(console=console, transient=not console.is_terminal) as progress:
        task = progress.add_task("training", total=EPOCHS * steps)
        for epoch in range(EPOCHS):
            for start, rate in LEARNING_RATES:
                if epoch == start:
                    session.updateOptimizerFromHost(optimizer(rate))
            order = rng.permutation(len(data.train_y))
            losses: list[float] = []
            for step in range(steps):
                pick = order[step * per_step : (step + 1) * per_step]
                feed = {
                    names.image: data.train_x[pick].reshape(BATCHES_PER_STEP, BATCH, 1, SIDE, SIDE),
                    names.label: data.train_y[pick].reshape(BATCHES_PER_STEP, BATCH),
                }
                session.run(popart.PyStepIO(feed, anchors))
                losses.append(float(anchors[names.loss].mean()))
                progress.update(task, advance=1, description=f"epoch {epoch + 1}/{EPOCHS} loss {np.mean(losses):.4f}")
    return session


def predict(model: bytes | str, names: Names, images: np.ndarray) -> np.ndarray:
    """Class probabilities from an InferenceSession, batch by batch."""
    flow = popart.DataFlow(1, {names.probabilities: popart.AnchorReturnType("All")})
    session = popart.InferenceSession(model, flow, popart.DeviceManager().createCpuDevice())
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    rows: list[np.ndarray] = []
    for batch in _batches(images):
        session.run(popart.PyStepIO({names.image: batch}, anchors))
        rows.append(anchors[names.probabilities].copy())
    return np.concatenate(rows)[: len(images)]


def _batches(images: np.ndarray) -> list[np.ndarray]:
    padding = -len(images) % BATCH
    padded = np.concatenate([images, np.zeros((padding, *images.shape[1:]), images.dtype)])
    return list(padded.reshape(-1, BATCH, *images.shape[1:]))


def reference(path: Path, names: Names, images: np.ndarray) -> tuple[str, np.ndarray]:
    """Probabilities that ONNX Runtime, or else the onnx reference evaluator, computes from the saved file."""
    from .functions.served import inference_model

    model = inference_model(str(path), [names.probabilities])
    try:
        import onnxruntime

        runtime = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        engine, run = "ONNX Runtime", cast("Callable[..., Sequence[Any]]", runtime.run)
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(model)
        engine, run = "the onnx reference evaluator", cast("Callable[..., Sequence[Any]]", evaluator.run)
    found = [np.asarray(run(None, {names.image: batch})[0]) for batch in _batches(images)]
    return engine, np.concatenate(found)[: len(images)]


def main(out: str = "out") -> int:
    """Run the whole demo, with its files in the folder `out`; returns 0 when every check holds."""
    console, started = Console(), time.perf_counter()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    data = load_digits()
    model, names = build()
    session = train(model, names, data, console)
    path = folder / "digits.onnx"
    session.modelToHost(str(path))
    console.print(f"saved the trained model: {path}")

    ours = predict(str(path), names, data.test_x)
    accuracy = float((ours.argmax(1) == data.test_y).mean())
    console.print(f"accuracy on {len(data.test_y)} held-out digits: {accuracy:.2%} (at least 97 %)")
    engine, theirs = reference(path, names, data.test_x)
    same = bool((ours.argmax(1) == theirs.argmax(1)).all()) and bool(np.allclose(ours, theirs, rtol=1e-3, atol=1e-4))
    console.print(f"{engine} from the same file: predictions {'agree' if same else 'DIFFER'}, "
                  f"largest difference {np.abs(ours - theirs).max():.1e}")  # fmt: skip

    console.print(session.getSummaryReport(), markup=False, highlight=False)
    report = folder / "report.html"
    session.getReport().save_html(report)
    console.print(
        f"IPU report: {report} ({report.stat().st_size // 1024} KiB); took {time.perf_counter() - started:.1f} s"
    )
    return 0 if same and accuracy >= 0.97 else 1
