"""Random chains of operators whose sizes are computed in roundabout ways, from shapes, constants and weights.

Each node is run by ONNX Runtime when it is drawn, so that the next one fits to its values; what it refuses is left out.
Values are used several times, in the run and in what follows from weights alone.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from ..hostile.build import like
from .judged import different

_OPSET = 18
_MOST = 2000  # elements of a tensor
_QUIET = onnxruntime.SessionOptions()
_QUIET.log_severity_level = 4
_QUIET.intra_op_num_threads = 1
_QUIET.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


class _Refused(Exception):
    """What was drawn is no valid node, or its values grow."""


class _Chain:
    """A model under construction, and the value of each of its tensors."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.values: dict[str, np.ndarray] = {}
        self.feeds: dict[str, Any] = {}
        self.weights: dict[str, np.ndarray] = {}

    def name(self) -> str:
        return f"t{len(self.values)}"

    def leaf(self, x: Any, places: Sequence[dict[str, Any]]) -> str:
        name = self.name()
        self.values[name] = self.dice.choice(places)[name] = np.asarray(x)
        return name

    def floats(self, *shape: int) -> str:
        return self.leaf(self.rng.normal(size=shape).astype(np.float32), (self.feeds, self.weights))

    def known(self, x: Any, dtype: Any = np.int64) -> str:
        return self.leaf(np.asarray(x, dtype), (self.weights,))

    def pick(self, fits: Callable[[np.ndarray], bool] = lambda x: True) -> str:
        found = [n for n, x in self.values.items() if x.dtype == np.float32 and fits(x)]
        if not found:
            raise _Refused
        return self.dice.choice(found[-6:])

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        out = self.name()
        made = helper.make_node(op, inputs, [out], name=f"{op}_{out}", **attributes)
        given = {n: self.values[n] for n in inputs}
        alone = _model([made], [like(n, x) for n, x in given.items()], [out])
        try:
            session = onnxruntime.InferenceSession(alone.SerializeToString(), _QUIET)
            value = np.asarray(session.run(None, given)[0])
        except Exception as err:
            raise _Refused from err
        if value.size > _MOST or not np.all(np.abs(value.astype(np.float64)) < 1e4):
            raise _Refused
        self.nodes.append(made)
        self.values[out] = value
        return out

    def sizes(self, numbers: Sequence[int]) -> str:
        """A list of sizes: a constant, or joined from constants, shapes, and floats that a weight multiplies."""
        if self.dice.random() < 0.3 or not numbers:
            return self.known(numbers)
        return self.op("Concat", *map(self._size, numbers), axis=0)

    def _size(self, number: int) -> str:
        places = [(n, i) for n, x in self.values.items() for i, d in enumerate(x.shape) if d == number]
        if not places or self.dice.random() < 0.2:
            return self.known([number])
        name, at = self.dice.choice(places)
        found = self.op("Slice", self.op("Shape", name), self.known([at]), self.known([at + 1]))
        if self.dice.random() < 0.4:
            there = self.op("Cast", found, to=TensorProto.FLOAT)
            found = self.op("Cast", self.op("Mul", there, self.known(1, np.float32)), to=TensorProto.INT64)
        return found


def draw(seed: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The random case with this number: a model, and its feeds."""
    chain = _Chain(seed)
    for _ in range(chain.dice.randint(1, 3)):
        chain.floats(*(chain.dice.randint(1, 4) for _ in range(chain.dice.randint(0, 4))))
    for _ in range(4 * (wanted := chain.dice.randint(4, 14))):
        if len(chain.nodes) < wanted:
            try:
                chain.dice.choice(_STEPS)(chain)
            except _Refused:
                continue
    made = [name for node in chain.nodes for name in node.output]
    results = chain.dice.sample(made, min(len(made), 4))
    model = _model(chain.nodes, [like(n, x) for n, x in chain.feeds.items()], results)
    model.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in chain.weights.items())
    return model, chain.feeds


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    """Results of `to_jax` by its three ways to compute: called, jitted, and with weights laid out.

    Raises
    ------
    AssertionError
        They differ.
    """
    from popart_jax import NeedsConstantError, to_jax

    fn, params = to_jax(model)
    found = {name: np.asarray(x) for name, x in fn(params, feeds).items()}
    for way, compute in (("jit", lambda: fn.jit(params, feeds)), ("weights", lambda: fn.with_weights(params)(feeds))):
        with contextlib.suppress(NeedsConstantError):
            if said := different(found, compute()):
                raise AssertionError(f"{way}: {said}")
    return found


def _model(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto], results: Sequence[str]
) -> onnx.ModelProto:
    made = onnx.ModelProto(ir_version=10)
    made.opset_import.add(domain="", version=_OPSET)
    made.graph.name = "chain"
    made.graph.node.extend(nodes)
    made.graph.input.extend(inputs)
    made.graph.output.extend(onnx.ValueInfoProto(name=r) for r in results)
    return made


def _one(g: _Chain) -> None:
    g.op(g.dice.choice(("Exp", "Tanh", "Neg", "Relu", "Sigmoid", "Softplus", "Abs", "Erf", "Identity")), g.pick())


def _two(g: _Chain) -> None:
    g.op(g.dice.choice(("Add", "Sub", "Mul", "Max", "MatMul")), g.pick(), g.pick())


def _weighed(g: _Chain) -> None:
    shape = g.values[x := g.pick()].shape
    cut = shape[g.dice.randint(0, len(shape)) :]
    g.op(g.dice.choice(("Add", "Mul")), x, g.floats(*(g.dice.choice((1, d)) for d in cut)))


def _reduced(g: _Chain) -> None:
    x = g.pick(lambda x: x.ndim > 0)
    rank = g.values[x].ndim
    axes = g.known(g.dice.sample(range(-rank, 0), g.dice.randint(1, rank)))
    g.op(
        g.dice.choice(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSumExp")),
        x,
        axes,
        keepdims=g.dice.randint(0, 1),
    )


def _reshaped(g: _Chain) -> None:
    shape = list(g.values[x := g.pick()].shape)
    g.dice.shuffle(shape)
    if shape and g.dice.random() < 0.5:
        shape[g.dice.randrange(len(shape))] = -1
    g.op("Reshape", x, g.sizes(shape))


def _expanded(g: _Chain) -> None:
    x = g.pick()
    shape = [g.dice.randint(1, 3) if d == 1 else d for d in g.values[x].shape]
    g.op("Expand", x, g.sizes([2, *shape] if len(shape) < 4 else shape))


def _cut(g: _Chain) -> None:
    x = g.pick(lambda x: x.ndim > 0)
    size = g.values[x].shape[axis := g.dice.randrange(g.values[x].ndim)]
    step = g.dice.choice((1, 1, 2, -1))
    ends = (0, size) if step > 0 else (size - 1, -size - 1)
    g.op("Slice", x, *(g.known([n]) for n in (*ends, axis, step)))


def _padded(g: _Chain) -> None:
    rank = g.values[x := g.pick(lambda x: x.ndim > 0)].ndim
    g.op("Pad", x, g.sizes([g.dice.randint(0, 1) for _ in range(2 * rank)]), g.floats())


def _joined(g: _Chain) -> None:
    x = g.pick(lambda x: x.ndim > 0)
    g.op("Concat", x, g.pick(lambda y: y.ndim == g.values[x].ndim), axis=-1)


def _turned(g: _Chain) -> None:
    x = g.pick(lambda x: x.ndim > 0)
    order = list(range(g.values[x].ndim))
    g.dice.shuffle(order)
    g.op("Transpose", x, perm=order)


def _looked_up(g: _Chain) -> None:
    x = g.pick(lambda x: x.ndim > 0 and x.shape[0] > 0)
    g.op("Gather", x, g.known(g.rng.integers(-len(g.values[x]), len(g.values[x]), 3)), axis=0)


_STEPS = (
    _one,
    _two,
    _two,
    _weighed,
    _reduced,
    _reshaped,
    _expanded,
    _expanded,
    _cut,
    _padded,
    _joined,
    _turned,
    _looked_up,
)
