"""The programs whose start is measured: ``python -m benchmarks.startup_programs JOB ours|by_hand FOLDER``.

Each is the whole of a process, from reading its files to the first result on the host, and prints its peak memory
[MiB]. It imports what it needs and no more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from .peak import peak_mib

CONVOLUTIONS = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}
"""The options of XLA with which LeNet and ResNet infer fastest on a CPU."""
RATE, MOMENTUM = 0.01, 0.9


def write(network: Any, folder: Path) -> None:
    """The files that the programs read: the ONNX model, and for the hand-written one its weights as it wants them."""
    (folder / "model.onnx").write_bytes(network.model)
    (folder / "logits").write_text(network.logits)
    np.save(folder / "x.npy", network.feed["x"])
    laid_out = network.lay_out(network.params).items()
    arrays: dict[str, Any] = {k: np.array(v, order="C") for k, v in laid_out}
    np.savez(folder / "weights.npz", **arrays)


def inference_ours(folder: Path) -> Any:
    """`InferenceSession` of a file."""
    import popart_jax as popart

    logits = (folder / "logits").read_text()
    flow = popart.DataFlow(1, {logits: popart.AnchorReturnType("All")})
    session = popart.InferenceSession(str(folder / "model.onnx"), flow, popart.DeviceManager().createCpuDevice())
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.load(folder / "x.npy")}, anchors))
    return anchors[logits]


def inference_by_hand(forward: Callable[[], Any], options: dict[str, str], folder: Path) -> Any:
    """A jitted function of weights in an archive of NumPy's."""
    import jax

    with np.load(folder / "weights.npz") as stored:
        params = jax.device_put(dict(stored))
    chosen = options if jax.default_backend() == "cpu" else {}
    call = cast("Callable[..., Any]", jax.jit(forward(), compiler_options=chosen))
    return np.asarray(call(params, np.load(folder / "x.npy")))


def to_jax_ours(folder: Path) -> Any:
    """`to_jax` of a file, with its weights given once."""
    import popart_jax

    fn, params = popart_jax.to_jax(folder / "model.onnx")
    infer = fn.with_weights(params)
    return np.asarray(infer({"x": np.load(folder / "x.npy")})[(folder / "logits").read_text()])


def training_ours(folder: Path) -> Any:
    """One step of a `TrainingSession`; the loss is added to the model of the file."""
    import popart_jax as popart

    x = np.load(folder / "x.npy")
    builder = popart.Builder(str(folder / "model.onnx"))
    label = builder.addInputTensor(popart.TensorInfo("INT32", [len(x)]), "label")
    probabilities = builder.aiOnnxOpset11.softmax([(folder / "logits").read_text()])
    loss = builder.aiGraphcore.nllloss([probabilities, label])
    flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")})
    optimizer = popart.SGD({"defaultLearningRate": (RATE, False), "defaultMomentum": (MOMENTUM, True)})
    device = popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, optimizer, device)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": x, label: np.zeros(len(x), np.int32)}, anchors))
    return anchors[loss]


def training_by_hand(forward: Callable[[], Any], folder: Path) -> Any:
    """One jitted step with donated state."""
    import jax
    import jax.numpy as jnp

    apply, x = forward(), np.load(folder / "x.npy")

    def loss_of(params: Any, x: jax.Array, y: jax.Array):
        return -jnp.take_along_axis(jax.nn.log_softmax(apply(params, x)), y[:, None], 1).mean()

    def step(state: Any, x: jax.Array, y: jax.Array):
        params, velocity = cast("tuple[dict[str, jax.Array], dict[str, jax.Array]]", state)
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        velocity = {n: MOMENTUM * v + grads[n] for n, v in velocity.items()}
        return ({n: p - RATE * velocity[n] for n, p in params.items()}, velocity), loss

    with np.load(folder / "weights.npz") as stored:
        host = dict(stored)
    state = jax.device_put((host, {n: np.zeros_like(v) for n, v in host.items()}), may_alias=False)
    run = cast("Callable[..., Any]", jax.jit(step, donate_argnums=0))
    return np.asarray(run(state, x, np.zeros(len(x), np.int32))[1])


def popxl_ours(folder: Path) -> Any:
    """One step of a PopXL program."""
    from . import popxl_mnist  # before the module below, which imports JAX itself; isort: skip
    from . import mnist_step

    return popxl_mnist.mnist(*mnist_step.data())()


def popxl_by_hand(folder: Path) -> Any:
    """The same, jitted."""
    from . import mnist_step

    return mnist_step.by_hand(*mnist_step.data())()


def _resnet50() -> Any:
    from .networks.resnet import RESNET50, forward

    return partial(forward, RESNET50)


def _bert() -> Any:
    from .networks.transformer import BERT_BASE, forward

    return partial(forward, BERT_BASE)


def _lenet() -> Any:
    from .networks.convolutional import lenet_forward

    return lenet_forward


def _mlp() -> Any:
    from .networks.dense import mlp_forward

    return mlp_forward


Program = Callable[[Path], Any]
JOBS: dict[str, tuple[str, int, Program, Program]] = {
    "resnet50": ("resnet50", 1, inference_ours, partial(inference_by_hand, _resnet50, CONVOLUTIONS)),
    "bert-base": ("bert-base", 1, inference_ours, partial(inference_by_hand, _bert, {})),
    "mlp": ("mlp", 1, inference_ours, partial(inference_by_hand, _mlp, {})),
    "train mlp": ("mlp", 64, training_ours, partial(training_by_hand, _mlp)),
    "lenet": ("lenet", 1, inference_ours, partial(inference_by_hand, _lenet, CONVOLUTIONS)),
    "train lenet": ("lenet", 64, training_ours, partial(training_by_hand, _lenet)),
    "popxl mnist": ("", 64, popxl_ours, popxl_by_hand),
    "to_jax resnet50": ("resnet50", 1, to_jax_ours, partial(inference_by_hand, _resnet50, CONVOLUTIONS)),
}
"""Per job: the network of its files ('' without any), its batch, and the two programs."""


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in JOBS or sys.argv[2] not in ("ours", "by_hand"):
        sys.exit(f"{__doc__}\nJobs: {', '.join(JOBS)}.")  # importing argparse would be measured too
    _, _, ours, by_hand = JOBS[sys.argv[1]]
    (ours if sys.argv[2] == "ours" else by_hand)(Path(sys.argv[3]))
    print(peak_mib())
