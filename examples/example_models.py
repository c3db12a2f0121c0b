"""Data and ONNX files that the examples share: 1,797 handwritten digits and two small networks."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import onnx
import optax
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

import popart_jax


class Digits(NamedTuple):
    """Images of 8 by 8 pixels in 0..1, as rows of 64, with labels."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def digits(*, turned: bool = False) -> Digits:
    """The digits that come with scikit-learn; `turned` ones lie on their side: the same task, other data."""
    data: Any = load_digits()
    x = (data.images / 16).astype(np.float32)
    x = (np.rot90(x, axes=(1, 2)) if turned else x).reshape(-1, 64)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], data.target[order].astype(np.int32)
    return Digits(x[:1500], y[:1500], x[1500:], y[1500:])


def classifier(*widths: int, seed: int = 0) -> onnx.ModelProto:
    """An ONNX file as an exporter writes it: dense layers with Relu between, ``x [N, 64] -> logits [N, 10]``."""
    rng, sizes = np.random.default_rng(seed), (64, *widths, 10)
    nodes, weights, at = [], [], "x"
    for i, (n, m) in enumerate(itertools.pairwise(sizes)):
        w = rng.normal(0, (2 / n) ** 0.5, (n, m)).astype(np.float32)
        weights += [numpy_helper.from_array(w, f"dense{i}.w"), numpy_helper.from_array(w[0] * 0, f"dense{i}.b")]
        last = i == len(widths)
        out = "logits" if last else f"dense{i}"
        nodes.append(helper.make_node("Gemm", [at, f"dense{i}.w", f"dense{i}.b"], [out]))
        if not last:
            nodes.append(helper.make_node("Relu", [out], [f"relu{i}"]))
        at = f"relu{i}"
    return _model(nodes, weights, [64])


TRANSFORMER = """
<ir_version: 8, opset_import: ["": 17]>
transformer (float[N, 8, 8] x) => (float[N, 10] logits) {
  embedded = MatMul(x, embed_w)
  placed = Add(embedded, position)
  normal0 = LayerNormalization <axis = -1> (placed, norm0_g, norm0_b)
  q = MatMul(normal0, query_w)
  k = MatMul(normal0, key_w)
  v = MatMul(normal0, value_w)
  turned = Transpose <perm = [0, 2, 1]> (k)
  scores = MatMul(q, turned)
  scaled = Mul(scores, scale)
  shares = Softmax <axis = -1> (scaled)
  mixed = MatMul(shares, v)
  projected = MatMul(mixed, out_w)
  residual = Add(placed, projected)
  normal1 = LayerNormalization <axis = -1> (residual, norm1_g, norm1_b)
  up = MatMul(normal1, up_w)
  active = Relu(up)
  down = MatMul(active, down_w)
  block = Add(residual, down)
  mean = ReduceMean <axes = [1], keepdims = 0> (block)
  logits = MatMul(mean, head_w)
}
"""


def transformer(width: int = 32, seed: int = 0) -> onnx.ModelProto:
    """One block over the eight rows of an image: ``x [N, 8, 8] -> logits [N, 10]``."""
    rng, model = np.random.default_rng(seed), onnx.parser.parse_model(TRANSFORMER)
    shapes = {"embed": (8, width), "up": (width, 2 * width), "down": (2 * width, width), "head": (width, 10)}
    shapes |= dict.fromkeys(("query", "key", "value", "out"), (width, width))
    values = {f"{n}_w": rng.normal(0, s[0] ** -0.5, s) for n, s in shapes.items()}
    values |= {"position": rng.normal(0, 0.5, (8, width)), "scale": np.array(width**-0.5)}
    values |= {f"norm{i}_g": np.ones(width) for i in (0, 1)} | {f"norm{i}_b": np.zeros(width) for i in (0, 1)}
    model.graph.initializer.extend(numpy_helper.from_array(v.astype(np.float32), n) for n, v in values.items())
    return model


def loss_of(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def train(loss: Any, params: Any, x: np.ndarray, y: np.ndarray, *, steps: int = 200, rate: float = 3e-3) -> Any:
    """Minimise ``loss(params, x, y)`` by Adam over random batches of 64."""
    optimizer, rng = optax.adam(rate), np.random.default_rng(1)

    @jax.jit
    def step(params: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        updates, state = optimizer.update(jax.grad(loss)(params, x, y), state)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for _ in range(steps):
        rows = rng.integers(0, len(x), 64)
        params, state = step(params, state, x[rows], y[rows])
    return params


def trained(model: onnx.ModelProto, path: str, *, steps: int = 200) -> str:
    """Train `model` on the upright digits and save it, once: the file that somebody else gave you."""
    if Path(path).exists():
        return path
    fn, params = popart_jax.to_jax(model)
    data = digits()
    shape = [-1, *[d for d in fn.inputs["x"].shape or () if isinstance(d, int)]]
    params = train(
        lambda p, x, y: loss_of(fn(p, x)["logits"], y), params, data.train_x.reshape(shape), data.train_y, steps=steps
    )
    fn.save(path, params)
    return path


def _model(nodes: list[Any], weights: list[Any], shape: list[int]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *shape])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])
    graph = helper.make_graph(nodes, "classifier", [x], [logits], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
