"""Call overhead: one `session.run` of a graph of two tiny operators, and many tiny steps in one run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import cast

import jax
import numpy as np

import popart_jax as popart

from .engines import prepared_call

Rows = list[tuple[str, Callable[[], Mapping[str, Callable[[], np.ndarray]]]]]


def tiny_rows() -> Rows:
    """Rows with 1, 10 and 100 batches per step."""
    return [(f"tiny, {n} batches per step", functools.partial(_row, n)) for n in (1, 10, 100)]


def _row(steps: int) -> Mapping[str, Callable[[], np.ndarray]]:
    x = np.random.default_rng(0).normal(size=(steps, 16)).astype(np.float32)
    return {"ours": _ours(x), "by hand": _by_hand(x)}


def _ours(x: np.ndarray) -> Callable[[], np.ndarray]:
    builder = popart.Builder()
    a = builder.addInputTensor(popart.TensorInfo("FLOAT", [16]), "x")
    w = builder.addInitializedInputTensor(np.ones(16, np.float32), "w")
    out = builder.aiOnnx.relu([builder.aiOnnx.add([a, w])])
    flow = popart.DataFlow(len(x), {out: popart.AnchorReturnType("All")})
    session = popart.InferenceSession(builder.getModelProto(), flow, popart.DeviceManager().createCpuDevice())
    return prepared_call(session, {a: x}, out)


def _by_hand(x: np.ndarray) -> Callable[[], np.ndarray]:
    w, out = jax.numpy.ones(16), np.empty_like(x)

    def one(x: jax.Array):
        return jax.nn.relu(x + w)

    def every(x: jax.Array):
        def row(carry: None, x: jax.Array):
            return carry, one(x)

        return jax.lax.scan(row, None, x)[1]

    fn = cast("Callable[..., jax.Array]", jax.jit(one if len(x) == 1 else every))

    def call() -> np.ndarray:
        np.copyto(out, fn(x))
        return out

    return call
