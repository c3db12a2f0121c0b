"""The engines that stand side by side: ours, hand-written JAX, and the peers that are installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import popart_jax as popart

from .networks import Network

RATE, MOMENTUM = 0.01, 0.9
Call = Callable[[], np.ndarray]


@dataclass(frozen=True)
class Batches:
    """What one call consumes: images [steps, ...] and labels [steps, batch]."""

    x: np.ndarray
    y: np.ndarray


def batches(network: Network, steps: int) -> Batches:
    """Random data for `steps` training steps."""
    rng = np.random.default_rng(7)
    shape = network.feed["x"].shape
    batch = shape[1] if network.name == "lstm" else shape[0]
    x = rng.normal(size=(steps, *shape)).astype(np.float32)
    return Batches(x, rng.integers(0, network.classes, size=(steps, batch)).astype(np.int32))


def ours_inference(network: Network) -> Call:
    """`InferenceSession.run`, NumPy in and out."""
    flow = popart.DataFlow(1, {network.logits: popart.AnchorReturnType("All")})
    session = popart.InferenceSession(network.model, flow, popart.DeviceManager().createCpuDevice())
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    stepio = popart.PyStepIO(network.feed, anchors)

    def call() -> np.ndarray:
        session.run(stepio)
        return anchors[network.logits]

    return call


def by_hand_inference(network: Network) -> Call:
    """The hand-written network under jit, NumPy in and out, with the compiler options that suit it."""
    fn = jax.jit(network.forward, compiler_options=_options(network))
    params, x = network.lay_out(network.params), network.feed["x"]
    return lambda: np.asarray(fn(params, x))


def _options(network: Network) -> dict[str, str] | None:
    convolutional = any(v.ndim == 4 for v in network.params.values())
    return {"xla_cpu_experimental_ynn_fusion_type": ""} if convolutional and jax.default_backend() == "cpu" else None


def onnxruntime_inference(network: Network) -> Call:
    """ONNX Runtime with as many threads as cores."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(network.model, providers=["CPUExecutionProvider"])
    return lambda: np.asarray(session.run(None, network.feed)[0])


def torch_inference(network: Network) -> Call:
    """PyTorch eager."""
    from .torch_engine import torch_inference as make

    return make(network)


def torch_training(network: Network, data: Batches) -> Call:
    """PyTorch eager, momentum SGD."""
    from .torch_engine import torch_training as make

    return make(network, data.x, data.y, RATE, MOMENTUM)


def ours_training(network: Network, data: Batches) -> Call:
    """`TrainingSession.run` with momentum SGD; returns the loss of each step."""
    builder = popart.Builder(network.model)
    label = builder.addInputTensor(popart.TensorInfo("INT32", list(data.y.shape[1:])), "label")
    probabilities = builder.aiOnnxOpset11.softmax([network.logits])
    loss = builder.aiGraphcore.nllloss([probabilities, label])
    flow = popart.DataFlow(len(data.y), {loss: popart.AnchorReturnType("All")})
    optimizer = popart.SGD({"defaultLearningRate": (RATE, False), "defaultMomentum": (MOMENTUM, True)})
    device = popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, optimizer, device)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    stepio = popart.PyStepIO({"x": data.x, label: data.y}, anchors)

    def call() -> np.ndarray:
        session.run(stepio)
        return anchors[loss]

    return call


def by_hand_training(network: Network, data: Batches) -> Call:
    """The same step by hand: value_and_grad, momentum SGD, scan over the batches, donated state."""

    def loss_of(params, x, y):
        logits, statistics = (
            network.forward_train(params, x) if network.forward_train else (network.forward(params, x), {})
        )
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
        return -picked.mean(), statistics

    def step(state, batch):
        params, velocity = state
        (loss, statistics), grads = jax.value_and_grad(loss_of, has_aux=True)(params, *batch)
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, grads)
        params = jax.tree.map(lambda p, v: p - RATE * v, params, velocity)
        if statistics:
            params = {**params, **statistics}
        return (params, velocity), loss

    # XLA:CPU runs gradients of convolutions many times slower inside a loop: who knows that writes the steps out
    unroll = any(v.ndim == 4 for v in network.params.values())

    @partial(jax.jit, donate_argnums=0)
    def run(state, x, y):
        return jax.lax.scan(step, state, (x, y), unroll=unroll)

    params = network.lay_out(network.params)
    state = [(params, jax.tree.map(jnp.zeros_like, params))]

    def call() -> np.ndarray:
        state[0], losses = run(state[0], data.x, data.y)
        return np.asarray(losses)

    return call
