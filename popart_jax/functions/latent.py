"""Integer weights of quantised models, as float parameters of the same names.

The float weight is trained. It is quantised where the integer weight was read, so that results before training are
those of the file, and once more when the model is saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from ..model.attribute_names import QUANTISED
from ..model.files.load import inline
from ..ops.quantize import dequantize_linear, quantized, spread
from .straight_through import expand, pass_rounding


@dataclass(frozen=True)
class Latent:
    """Quantisation of one integer weight."""

    dtype: ir.DataType  # type of the integers
    scale: np.ndarray  # scale of the whole tensor, per index of `axis`, or per block along it
    zero: np.ndarray | None  # zero points
    axis: int  # axis of the scales
    block: int  # size of their blocks; 0 means no blocks

    def real(self, whole: np.ndarray) -> np.ndarray:
        """The dequantised weight."""
        return np.asarray(dequantize_linear(whole, self.scale, self.zero, axis=self.axis, block_size=self.block))

    def whole(self, real: Any) -> np.ndarray:
        """The quantised weight."""
        numbers = np.asarray(real, self.scale.dtype)
        scale, zero = (
            None if p is None else spread(p, numbers.shape, self.axis, self.block) for p in (self.scale, self.zero)
        )
        assert scale is not None
        return np.asarray(quantized(numbers, scale, zero, self.dtype.numpy()))


def open_weights(model: ir.Model) -> dict[str, Latent]:
    """Make a quantised model trainable, in place; returns the quantisation of its weights.

    An operator on integers that has no derivative raises popart_exception.
    """
    inline(model)
    expand(model)
    graph = model.graph
    found: dict[str, Latent] = {}
    for name, value in list(graph.initializers.items()):
        latent = _latent(value)
        if latent is None:
            continue
        found[name] = latent
        _open(graph, value, latent)
    pass_rounding(model)
    return found


def latent_weights(model: ir.Model) -> dict[str, Latent]:
    """The quantisation of a model's weights; the model is not changed."""
    return open_weights(model.clone())


def _latent(value: ir.Value) -> Latent | None:
    """Quantisation of a weight; None for other tensors: all readers must dequantise it, with the same known scale."""
    tensor, uses = value.const_value, list(_bounded(value))
    if tensor is None or not uses or any(u.node.op_type != "DequantizeLinear" or u.idx for u in uses):
        return None
    first, *others = [use.node for use in uses]
    how = _how(first)
    if any(_how(other) != how for other in others):
        return None
    scale, zero, axis, block = how
    if scale is None or scale.const_value is None or (zero is not None and zero.const_value is None):
        return None
    shift = None if zero is None else zero.const_value.numpy()
    return Latent(tensor.dtype, scale.const_value.numpy(), shift, axis, block)


def _bounded(value: ir.Value) -> Iterator[Any]:
    """Uses of a value, and of what a Clip makes of it: Brevitas bounds narrow integers so."""
    for use in value.uses():
        if use.node.op_type == "Clip" and use.idx == 0:
            yield from _bounded(use.node.outputs[0])
        else:
            yield use


def _how(node: ir.Node) -> tuple[Any, Any, int, int]:
    inputs = [*node.inputs, None]
    return inputs[1], inputs[2], node.attributes.get_int("axis", 1), node.attributes.get_int("block_size", 0)


def _open(graph: ir.Graph, value: ir.Value, latent: Latent) -> None:
    """Replace an integer weight by a float weight and a node that quantises it."""
    assert value.const_value is not None
    real = latent.real(value.const_value.numpy())
    name, readers = value.name, list(value.uses())
    own = ir.Value(name=name, shape=value.shape, type=ir.TensorType(ir.DataType.from_numpy(real.dtype)))
    own.const_value = ir.Tensor(real, name=name)
    own.metadata_props[QUANTISED] = latent.dtype.name
    attributes = {"output_dtype": latent.dtype.value, "axis": latent.axis, "block_size": latent.block}
    first = next(_bounded(value)).node
    rounded = ir.Node(
        "", "QuantizeLinear", [own, *first.inputs[1:]],
        [ir.AttrInt64(n, v) for n, v in attributes.items()],
    )  # fmt: skip
    rounded.outputs[0].name = f"{name}/whole"
    home = graph[0]
    graph.insert_before(home, rounded)
    for use in readers:
        use.node.replace_input_with(use.idx, rounded.outputs[0])
    graph.initializers.pop(name or "")
    if value in graph.inputs:
        graph.inputs.remove(value)
    graph.register_initializer(own)
