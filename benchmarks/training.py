"""Engines compared in training: ours, hand-written JAX and PyTorch, with two update rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

import popart_jax as popart

from .engines import Call, prepared_call
from .networks import Network

RATE, MOMENTUM = 0.01, 0.9
ADAM_RATE, BETA1, BETA2, EPSILON = 1e-4, 0.9, 0.999, 1e-8
RULES = ("sgd-m", "adam")


@dataclass(frozen=True)
class Batches:
    """Data of one call: images [steps, ...] and labels [steps, batch]."""

    x: np.ndarray
    y: np.ndarray


def batches(network: Network, steps: int) -> Batches:
    """Random data for `steps` training steps."""
    rng = np.random.default_rng(7)
    shape = network.feed["x"].shape
    batch = shape[1] if network.name == "lstm" else shape[0]
    x = rng.normal(size=(steps, *shape)).astype(np.float32)
    return Batches(x, rng.integers(0, network.classes, size=(steps, batch)).astype(np.int32))


def _optimizer(rule: str) -> popart.Optimizer:
    if rule == "sgd-m":
        return popart.SGD({"defaultLearningRate": (RATE, False), "defaultMomentum": (MOMENTUM, True)})
    values = {"defaultBeta1": BETA1, "defaultBeta2": BETA2, "defaultEps": EPSILON, "defaultWeightDecay": 0.0}
    return popart.Adam({"defaultLearningRate": (ADAM_RATE, False)} | {k: (v, True) for k, v in values.items()})


def training_model(network: Network, data: Batches) -> tuple[bytes, str, str]:
    """The network with a loss on the labels of `data`: the model, and the names of the labels and of the loss."""
    builder = popart.Builder(network.model)
    label = builder.addInputTensor(popart.TensorInfo("INT32", list(data.y.shape[1:])), "label")
    probabilities = builder.aiOnnxOpset11.softmax([network.logits])
    loss = builder.aiGraphcore.nllloss([probabilities, label])
    return builder.getModelProto(), label, loss


def training_session(model: bytes, loss: str, steps: int, rule: str) -> popart.TrainingSession:
    """A session that trains by a rule, and returns the loss of each step."""
    flow = popart.DataFlow(steps, {loss: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    return popart.TrainingSession(model, flow, loss, _optimizer(rule), device)


def ours_training(network: Network, data: Batches, rule: str) -> Call:
    """`TrainingSession.run`; returns the loss of each step."""
    model, label, loss = training_model(network, data)
    session = training_session(model, loss, len(data.y), rule)
    return prepared_call(session, {"x": data.x, label: data.y}, loss)


def _momentum(velocity: Any, grads: Any, params: Any, count: Any) -> tuple[Any, Any]:
    def turned(v: jax.Array, g: jax.Array) -> jax.Array:
        return MOMENTUM * v + g

    def stepped(p: jax.Array, v: jax.Array) -> jax.Array:
        return p - RATE * v

    velocity = jax.tree.map(turned, velocity, grads)
    return velocity, jax.tree.map(stepped, params, velocity)


def _adam(moments: Any, grads: Any, params: Any, count: Any) -> tuple[Any, Any]:
    def first(m: jax.Array, g: jax.Array) -> jax.Array:
        return BETA1 * m + (1 - BETA1) * g

    def second(v: jax.Array, g: jax.Array) -> jax.Array:
        return BETA2 * v + (1 - BETA2) * g * g

    def stepped(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return p - ADAM_RATE * (m / (1 - BETA1**count)) / (jnp.sqrt(v / (1 - BETA2**count)) + EPSILON)

    m, v = jax.tree.map(first, moments[0], grads), jax.tree.map(second, moments[1], grads)
    return (m, v), jax.tree.map(stepped, params, m, v)


def _loss(network: Network, params: Any, x: Any, y: Any) -> tuple[Any, dict[str, Any]]:
    if network.forward_train:
        logits, statistics = network.forward_train(params, x)
    else:
        logits, statistics = network.forward(params, x), {}
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean(), statistics


def program_by_hand(network: Network, rule: str) -> tuple[Any, Any]:
    """The same step by hand, jitted, and its first state: value_and_grad, the update written out, donated state.

    The program takes the state, images and labels of all steps, and returns the state and the losses.
    """
    update: Callable[..., tuple[Any, Any]] = {"sgd-m": _momentum, "adam": _adam}[rule]

    def step(state: Any, batch: tuple[jax.Array, jax.Array]):
        params, slots, count = state
        (loss, statistics), grads = jax.value_and_grad(partial(_loss, network), has_aux=True)(params, *batch)
        slots, params = update(slots, grads, params, count + 1)
        return ({**params, **statistics} if statistics else params, slots, count + 1), loss

    # XLA:CPU runs gradients of convolutions many times slower inside a loop, even one of a single pass, so a programmer
    # who knows that unrolls the steps
    convolutional = any(v.ndim == 4 for v in network.params.values())

    def run(state: Any, x: jax.Array, y: jax.Array):
        if not convolutional:
            return jax.lax.scan(step, state, (x, y))
        losses: list[jax.Array] = []
        for i in range(len(x)):
            state, loss = step(state, (x[i], y[i]))
            losses.append(loss)
        return state, jnp.stack(losses)

    params = network.lay_out(network.params)
    zeros = [jax.tree.map(cast("Callable[..., jax.Array]", jnp.zeros_like), params) for _ in range(2)]
    return jax.jit(run, donate_argnums=0), (params, tuple(zeros) if rule == "adam" else zeros[0], jnp.float32(0))


def by_hand_training(network: Network, data: Batches, rule: str) -> Call:
    """The program by hand, which keeps its state between calls."""
    compiled, first = program_by_hand(network, rule)
    state: list[Any] = [first]

    def call() -> np.ndarray:
        state[0], losses = compiled(state[0], data.x, data.y)
        return np.asarray(losses)

    return call


def torch_training(network: Network, data: Batches, rule: str, compiled: bool = False) -> Call:
    """PyTorch, eager or compiled."""
    from .torch_engine import torch_training as make

    return make(network, data.x, data.y, rule, compiled)
