"""An embedding table that is also the weight of a projection."""

from __future__ import annotations

from functools import reduce

import numpy as np
import onnx_ir as ir

from .._context import Context, static_shape
from .._core import Outcome, Refused, rewrites
from ..facts import attribute_int, attribute_string, elementwise, slice_of

VIEWS = frozenset({"Transpose", "Reshape", "Identity"})
FULLY_CONNECTED_OFF = "__fully_connected_off"
MODE, FACTOR = "__serialize_matmul_mode", "__serialize_matmul_factor"


@rewrites("TiedGather", "Gather")
def tied_gather(node: ir.Node, context: Context) -> Outcome:
    """The Gather reads a Detach of the table: PopartTiedGather, one per slice when the MatMul is serialised."""
    found = _tied(node)
    if not isinstance(found, ir.Node):
        return None if found is None else Refused(found)
    data, indices = node.inputs
    shape = static_shape(data)
    if data is None or indices is None or shape is None or indices.dtype is None:
        return Refused("shape or dtype is not static")
    factor = attribute_int(found, FACTOR, 0) if attribute_string(found, MODE, "none") != "none" else 1
    if attribute_string(found, MODE, "none") not in ("none", "output_channels"):
        return Refused("the MatMul is serialised over another dimension than the output channels")
    found.attributes[FULLY_CONNECTED_OFF] = ir.AttrInt64(FULLY_CONNECTED_OFF, 1)
    detached = context.graphcore("Detach", data, like=data)
    if factor <= 1:
        return context.graphcore("PopartTiedGather", detached, indices, like=node.outputs[0], axis=0)
    size = shape[0] // factor
    parts = [_part(context, node, detached, indices, i * size, size) for i in range(factor)]
    return reduce(lambda a, b: elementwise(context, "Add", a, b), parts)


def _part(context: Context, node: ir.Node, data: ir.Value, indices: ir.Value, start: int, size: int) -> ir.Value:
    """Rows of one slice of the table; an index outside of it gives zeros."""
    assert indices.dtype is not None
    piece = slice_of(context, data, 0, start, start + size)
    offset = context.constant_op(np.array([start], indices.dtype.numpy()))
    shifted = context.op("Sub", indices, offset, like=indices)
    return context.graphcore("PopartTiedGather", piece, shifted, like=node.outputs[0], axis=0)


@rewrites("TiedGather", "Gather", stages=("model",), modes=("training",))
def detached_gather(node: ir.Node, context: Context) -> Outcome:
    """The effect of TiedGather alone on the program: the Gather contributes no gradient to the table."""
    data = node.inputs[0]
    producer = None if data is None else data.producer()
    if data is None or (producer is not None and producer.op_type == "Detach"):
        return None
    found = _tied(node)
    if not isinstance(found, ir.Node):
        return None if found is None else Refused(found)
    detached = context.graphcore("Detach", data, like=data)
    return context.op("Gather", detached, node.inputs[1], like=node.outputs[0], attrs=dict(node.attributes))


def _tied(node: ir.Node) -> ir.Node | str | None:
    """The MatMul that shares the table, why there is none that matches, or None for an ordinary Gather."""
    data = node.inputs[0]
    if data is None or attribute_int(node, "axis", 0) != 0:
        return None
    table, transposed = _base(data)
    if table.producer() is not None:
        return None
    products = _products(table)
    if not products:
        return None
    matching = [n for n, other in products if other != transposed]
    return matching[0] if matching else "Gather and MatMul read the table in the same orientation"


def _base(value: ir.Value) -> tuple[ir.Value, bool]:
    """The table behind views, and whether an odd number of transposes lies between."""
    transposed = False
    producer = value.producer()
    while producer is not None and producer.op_type in VIEWS and producer.inputs[0] is not None:
        transposed ^= producer.op_type == "Transpose"
        value = producer.inputs[0]
        producer = value.producer()
    return value, transposed


def _products(table: ir.Value) -> list[tuple[ir.Node, bool]]:
    """MatMuls that read the table, with the parity of the transposes on the way."""
    found: list[tuple[ir.Node, bool]] = []
    pending = [(table, False)]
    while pending:
        value, transposed = pending.pop()
        for reader in value.consumers():
            if reader.op_type == "MatMul":
                found.append((reader, transposed))
            elif reader.op_type in VIEWS:
                pending.append((reader.outputs[0], transposed ^ (reader.op_type == "Transpose")))
    return found
