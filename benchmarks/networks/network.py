"""The form of a benchmark network, and a helper that writes ONNX graphs with named random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes.common import RemoveInitializersFromInputsPass

import popart_jax as popart

Params = dict[str, np.ndarray]


@dataclass(frozen=True)
class Network:
    """One network in both forms.

    Attributes
    ----------
    name : str
        Table row.
    model : bytes
        ONNX model of the forward pass (opset 11), logits as its only output. Its weights are no inputs, so that every
        engine may fold and order them.
    feed : dict of str to ndarray
        One input batch.
    logits : str
        Name of the output, shape [batch, classes].
    params : dict of str to ndarray
        Initial weights by ONNX name.
    lay_out : callable
        ``lay_out(params) -> pytree`` in the layout that the hand-written form likes best.
    forward : callable
        ``forward(pytree, x) -> logits`` written by hand.
    forward_train : callable or None
        ``forward_train(pytree, x) -> (logits, statistics)`` where training differs: new running statistics by name.
    """

    name: str
    model: bytes
    feed: dict[str, np.ndarray]
    logits: str
    params: Params
    lay_out: Callable[[Params], Any]
    forward: Callable[[Any, Any], Any]
    forward_train: Callable[[Any, Any], tuple[Any, dict[str, Any]]] | None = None

    @property
    def classes(self) -> int:
        """Width of the logits; the last dense layer's bias has it."""
        return int(list(self.params.values())[-1].shape[0])


class Author:
    """Builds a graph with the Builder and remembers each weight it draws."""

    def __init__(self, seed: int = 0) -> None:
        self.builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
        self.onnx = self.builder.aiOnnxOpset11
        self.rng = np.random.default_rng(seed)
        self.params: Params = {}

    def input(self, shape: list[int], name: str = "x") -> str:
        """Add a streamed float input."""
        return self.builder.addInputTensor(popart.TensorInfo("FLOAT", shape), debugContext=name)

    def weight(self, name: str, *shape: int, scale: float | None = None) -> str:
        """Add a weight, drawn with variance 1/fan-in unless `scale` is given."""
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        deviation = (1.0 / fan_in) ** 0.5 if scale is None else scale
        return self.add(name, self.rng.normal(size=shape) * deviation)

    def add(self, name: str, value: np.ndarray) -> str:
        """Add a weight with the given values."""
        array = np.ascontiguousarray(value, np.float32)
        key = self.builder.addInitializedInputTensor(array, name)
        self.params[key] = array
        return key

    def constant(self, value: Any, dtype: type = np.int64) -> str:
        """Add a constant node."""
        return self.onnx.constant(cast("np.ndarray", np.asarray(value, dtype)))

    def finish(
        self, name: str, shape: list[int], logits: str, lay_out: Any, forward: Any, forward_train: Any = None
    ) -> Network:
        """Close the graph."""
        self.builder.addOutputTensor(logits)
        feed = {"x": self.rng.normal(size=shape).astype(np.float32)}
        model = with_constant_weights(self.builder.getModelProto())
        return Network(name, model, feed, logits, self.params, lay_out, forward, forward_train)


def with_constant_weights(model: bytes) -> bytes:
    """The model with weights that are no inputs, as exporters write it.

    The Builder makes them inputs, as PopART does; ONNX Runtime then takes them for variables, and neither folds a batch
    normalisation into a convolution nor orders a weight beforehand.
    """
    found = ir.serde.deserialize_model(onnx.load_model_from_string(model))
    RemoveInitializersFromInputsPass()(found)
    return ir.serde.serialize_model(found).SerializeToString()
