"""LSTM in the two forms, and collectives over identical inputs."""

from __future__ import annotations

import onnx_ir as ir

from .._context import Context, dims, static_shape
from .._core import Outcome, Refused, rewrites
from ..facts import attribute_int, attribute_string, input_at, reshape, slice_of, transpose
from ..operators import GRAPHCORE

GATES = (2, 0, 3, 1)  # ai.graphcore's forget, input, candidate, output among ai.onnx's input, output, forget, candidate


@rewrites("AllReduceToIdentity", "AllReduce", "AllReduceGrad")
def all_reduce_of_equals(node: ir.Node, context: Context) -> Outcome:
    """An all-reduce whose inputs are declared identical becomes the identity of each input."""
    name = "identicalGradInputs" if node.op_type == "AllReduceGrad" else "identicalInputs"
    if not attribute_int(node, name, 0):
        return Refused("the inputs differ")
    return [context.op("Identity", v, like=v) for v in node.inputs if v is not None]


@rewrites("LSTMOp", "LSTM")
def graphcore_lstm(node: ir.Node, context: Context) -> Outcome:
    """ai.onnx LSTM as ai.graphcore LSTM: gates reordered, weights transposed and joined, biases added."""
    if node.domain == GRAPHCORE:
        return None
    data, weights, recurrent = node.inputs[:3]
    why = _why_not(node)
    if data is None or weights is None or recurrent is None or why:
        return Refused(why or "shapes are not static")
    steps, batch, width = dims(data)
    hidden = dims(recurrent)[2]
    joined = _joined(context, weights, recurrent, width, hidden)
    inputs = [data, joined, _bias(context, node, hidden), _state(context, node), input_at(node, 4)]
    while inputs[-1] is None:
        inputs.pop()
    typed = [(data.dtype, (steps, batch, hidden)), (data.dtype, (batch, hidden))]
    sequence, cell = context.ops("LSTM", inputs, domain=GRAPHCORE, results=typed, output_full_sequence=1)
    last = slice_of(context, sequence, 0, steps - 1, steps)
    every = reshape(context, sequence, (steps, 1, batch, hidden))
    return [every, last, reshape(context, cell, (1, batch, hidden))][: len(node.outputs)]


def _why_not(node: ir.Node) -> str | None:
    if attribute_string(node, "direction", "forward") != "forward":
        return "it does not run forward only"
    if input_at(node, 7) is not None or attribute_int(node, "input_forget", 0) or "activations" in node.attributes:
        return "peepholes, coupled gates or other activations"
    if attribute_int(node, "layout", 0) or "clip" in node.attributes:
        return "the batch axis comes first, or values are clipped"
    if any(static_shape(v) is None for v in node.inputs if v is not None):
        return "shapes are not static"
    if (input_at(node, 5) is None) != (input_at(node, 6) is None):
        return "only one of the two initial states is given"
    if input_at(node, 4) is not None and len(node.outputs) > 1 and node.outputs[1].uses():
        return "the last hidden state of sequences of different length is read"
    return None


def _joined(context: Context, weights: ir.Value, recurrent: ir.Value, width: int, hidden: int) -> ir.Value:
    """[1, 4H, I] and [1, 4H, H] as [4, I+H, H] in graphcore's gate order."""
    parts: list[ir.Value] = []
    for value, size in ((weights, width), (recurrent, hidden)):
        gates = reshape(context, value, (4, hidden, size))
        parts.append(transpose(context, gates, (0, 2, 1)))
    both = context.op("Concat", *parts, like=weights, shape=(4, width + hidden, hidden), axis=1)
    return _reordered(context, both)


def _reordered(context: Context, gates: ir.Value) -> ir.Value:
    pieces = [slice_of(context, gates, 0, g, g + 1) for g in GATES]
    return context.op("Concat", *pieces, like=gates, axis=0)


def _bias(context: Context, node: ir.Node, hidden: int) -> ir.Value | None:
    given = input_at(node, 3)
    if given is None:
        return None
    both = reshape(context, given, (8, hidden))
    halves = [slice_of(context, both, 0, 4 * i, 4 * i + 4) for i in range(2)]
    return _reordered(context, context.op("Add", *halves, like=halves[0]))


def _state(context: Context, node: ir.Node) -> ir.Value | None:
    hidden, cell = input_at(node, 5), input_at(node, 6)
    if hidden is None or cell is None:
        return None
    shape = (2, *dims(hidden)[1:])
    return context.op("Concat", hidden, cell, like=hidden, shape=shape, axis=0)
