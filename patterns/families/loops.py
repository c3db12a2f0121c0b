"""Scan, scan outputs of Loop and PackedDataBlock in terms of Loop and dynamic slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from .._context import Context, Shape, dims, static_shape
from .._core import Outcome, Refused, rewrites
from ..facts import attribute_ints, reshape, transpose

INT64, BOOL, UINT32 = ir.DataType.INT64, ir.DataType.BOOL, ir.DataType.UINT32


class Body:
    """A loop body under construction: a context of its own whose nodes go into the graph."""

    def __init__(self, context: Context, graph: ir.Graph) -> None:
        self.graph = graph
        self.make = Context(context.mode, context.protected, context.operators, context.opset)
        self.make.stem = f"{context.stem}__body"

    def flush(self, first: bool = False) -> None:
        """Put the nodes made so far before or after what is there."""
        made, self.make.created = self.make.created, []
        head = next(iter(self.graph), None) if first else None
        if head is None:
            self.graph.extend(made)
        else:
            self.graph.insert_before(head, made)

    def offset(self, iteration: ir.Value) -> ir.Value:
        """The iteration number as a UINT32 offset of one element."""
        number = self.make.op("Cast", iteration, shape=(), dtype=UINT32, to=int(UINT32))
        return reshape(self.make, number, (1,))


def _input(name: str, dtype: ir.DataType | None, shape: Sequence[int] | None) -> ir.Value:
    kind = None if dtype is None else ir.TensorType(dtype)
    return ir.Value(name=name, type=kind, shape=None if shape is None else ir.Shape(list(shape)))


def _insert_inputs(graph: ir.Graph, values: Sequence[ir.Value]) -> None:
    for position, value in enumerate(values):
        graph.inputs.insert(position, value)


@rewrites("ScanToLoop", "Scan")
def scan_to_loop(node: ir.Node, context: Context) -> Outcome:
    """A Loop whose body slices the scanned inputs; reversed directions count backwards.

    Outputs are stacked as ONNX has it, or, where they have the rank that they have in the body, concatenated as PopART
    does.
    """
    old = node.attributes["body"].as_graph()
    scanned = node.attributes["num_scan_inputs"].as_int()
    states = len(node.inputs) - scanned
    sources = [v for v in node.inputs[states:] if v is not None]
    shapes = [static_shape(v) for v in sources]
    outputs = [static_shape(o) for o in node.outputs[states:]]
    if len(old.inputs) != len(node.inputs):
        return Refused("the Scan of opset 8, with sequence lengths and a batch axis")
    if len(sources) < scanned or None in shapes or None in outputs:
        return Refused("shapes are not static")
    axes = _listed(node, "scan_input_axes", scanned)
    backwards = _listed(node, "scan_input_directions", scanned)
    out_axes = _listed(node, "scan_output_axes", len(outputs))
    out_backwards = _listed(node, "scan_output_directions", len(outputs))
    axes = tuple(a % len(s or ()) for a, s in zip(axes, shapes, strict=True))
    length = (shapes[0] or ())[axes[0]]
    body = Body(context, old.clone(allow_outer_scope_values=True))
    _slice_inputs(body, states, sources, axes, backwards, length)
    trips = scalar_int(context, length)
    joined = [_joins(o, s) for o, s in zip(node.outputs[states:], list(old.outputs)[states:], strict=True)]
    out_axes = tuple(a % (len(s or ()) or 1) for a, s in zip(out_axes, outputs, strict=True))
    loop = _loop_results(node, states, outputs, out_axes, joined, length)
    results = context.ops("Loop", [trips, _always(context), *node.inputs[:states]], results=loop, body=body.graph)
    tail = [
        _placed(context, v, axis, reverse, shape or ())
        for v, axis, reverse, shape in zip(results[states:], out_axes, out_backwards, outputs, strict=True)
    ]
    return [*results[:states], *tail]


def scalar_int(context: Context, number: int) -> ir.Value:
    """An INT64 constant of rank 0."""
    return context.constant_op(np.array(number, np.int64))


def _always(context: Context) -> ir.Value:
    return context.constant_op(np.array(True))


def _listed(node: ir.Node, name: str, count: int) -> Shape:
    return attribute_ints(node, name) or (0,) * count


def _slice_inputs(
    body: Body, states: int, sources: Sequence[ir.Value], axes: Shape, backwards: Shape, length: int
) -> None:
    graph, make = body.graph, body.make
    iteration, condition = _input(f"{make.stem}__i", INT64, ()), _input(f"{make.stem}__go", BOOL, ())
    elements = list(graph.inputs)[states:]
    for element in elements:
        graph.inputs.remove(element)
    for element, source, axis, reverse in zip(elements, sources, axes, backwards, strict=True):
        shape = dims(source)
        count = iteration
        if reverse:
            count = make.op("Sub", scalar_int(make, length - 1), iteration, dtype=INT64, shape=())
        one = tuple(1 if i == axis else d for i, d in enumerate(shape))
        cut = make.graphcore(
            "DynamicSlice", source, body.offset(count), like=source, shape=one, axes=(axis,), sizes=(1,)
        )
        row = [d for i, d in enumerate(shape) if i != axis]
        piece = reshape(make, cut, row or static_shape(element) or row)  # PopART keeps rows of vectors as [1]
        element.replace_all_uses_with(piece, replace_graph_outputs=True)
    body.flush(first=True)
    go = make.op("Identity", condition, like=condition)
    body.flush()
    _insert_inputs(graph, [iteration, condition])
    graph.outputs.insert(0, go)


def _loop_results(
    node: ir.Node, states: int, outputs: Sequence[Shape | None], axes: Shape, joined: Sequence[bool], length: int
) -> list[tuple[ir.DataType | None, Sequence[int] | None]]:
    results: list[tuple[ir.DataType | None, Sequence[int] | None]]
    results = [(o.dtype, static_shape(o)) for o in node.outputs[:states]]
    for output, shape, axis, concatenated in zip(node.outputs[states:], outputs, axes, joined, strict=True):
        sizes = list(shape or ())
        if concatenated:
            sizes[axis] //= max(length, 1)
        else:
            sizes.pop(axis)
        results.append((output.dtype, [length, *sizes]))
    return results


def _joins(output: ir.Value, result: ir.Value) -> bool:
    """Whether the results of all iterations are concatenated, not stacked."""
    whole, one = static_shape(output), static_shape(result)
    return whole is not None and one is not None and len(whole) == len(one)


def _placed(context: Context, value: ir.Value, axis: int, reverse: int, shape: Shape) -> ir.Value:
    """Turn a Loop's output, stacked along axis 0 in order of iterations, to the axis and direction of a Scan."""
    rank = len(dims(value))
    if reverse:
        value = context.graphcore("Reverse", value, like=value, dimensions=(0,))
    if axis != 0:
        order = list(range(1, rank))
        order.insert(axis, 0)
        value = transpose(context, value, order)
    return value if rank == len(shape) else reshape(context, value, shape)


@rewrites("LoopScanOut", "Loop")
def explicit_scan_outputs(node: ir.Node, context: Context) -> Outcome:
    """Each scan output becomes a carried tensor, zero at first, that every iteration updates at its number."""
    carried = len(node.inputs) - 2
    scanned = node.outputs[carried:]
    if not scanned:
        return None
    shapes = [static_shape(o) for o in scanned]
    if None in shapes or any(o.dtype is None for o in scanned):
        return Refused("shapes are not static")
    body = Body(context, node.attributes["body"].as_graph().clone(allow_outer_scope_values=True))
    initial = [
        context.graphcore("Init", like=o, attrs={"shape": s, "data_type": int(o.dtype or 1), "init_type": 1})
        for o, s in zip(scanned, shapes, strict=True)
    ]
    _update_buffers(body, carried, list(scanned), [s or () for s in shapes])
    typed = [(o.dtype, static_shape(o)) for o in node.outputs]
    return list(context.ops("Loop", [*node.inputs, *initial], results=typed, body=body.graph))


def _update_buffers(body: Body, carried: int, scanned: list[ir.Value], shapes: list[Shape]) -> None:
    graph, make = body.graph, body.make
    pieces = list(graph.outputs)[1 + carried :]
    offset = body.offset(graph.inputs[0])
    for i, (piece, output, shape) in enumerate(zip(pieces, scanned, shapes, strict=True)):
        buffer = _input(f"{make.stem}__buffer{i}", output.dtype, shape)
        graph.inputs.append(buffer)
        row = reshape(make, piece, (1, *shape[1:]))
        updated = make.graphcore("DynamicUpdate", buffer, offset, row, like=buffer, axes=(0,), sizes=(1,), noOverlap=1)
        graph.outputs[1 + carried + i] = updated
    body.flush()


@rewrites("PackedDataBlock", "PackedDataBlock")
def packed_data_to_loop(node: ir.Node, context: Context) -> Outcome:
    """A Loop over groups of sequences: unpack each input, call the callback, pack its result."""
    callback = node.attributes["callback"].as_graph()
    lengths = attribute_ints(node, "maxSequenceLengths") or ()
    group = node.attributes["callbackBatchSize"].as_int()
    output, result = node.outputs[0], callback.outputs[0]
    count, block = static_shape(node.inputs[-1]), static_shape(result)
    if count is None or block is None or static_shape(output) is None or output.dtype is None:
        return Refused("shapes are not static")
    body = Body(context, ir.Graph([], [], nodes=[], name=f"{context.stem}__loop"))
    _packing_body(body, node, callback, lengths, group)
    attributes = {"shape": dims(output), "data_type": int(output.dtype), "init_type": 1}
    initial = context.graphcore("Init", like=output, attrs=attributes)
    trips = scalar_int(context, count[0] // group)
    return context.op("Loop", trips, _always(context), initial, like=output, body=body.graph)


def _packing_body(body: Body, node: ir.Node, callback: ir.Graph, lengths: Shape, group: int) -> None:
    graph, make = body.graph, body.make
    output = node.outputs[0]
    iteration, condition = _input(f"{make.stem}__i", INT64, ()), _input(f"{make.stem}__go", BOOL, ())
    buffer = _input(f"{make.stem}__packed", output.dtype, static_shape(output))
    graph.inputs.extend([iteration, condition, buffer])
    first = make.op("Mul", iteration, scalar_int(make, group), dtype=INT64, shape=())
    at = reshape(make, make.op("Cast", first, shape=(), dtype=UINT32, to=int(UINT32)), (1,))
    arguments: list[ir.Value] = []
    for i, length in enumerate(lengths):
        data, offsets, sizes = node.inputs[3 * i : 3 * i + 3]
        rest = dims(data)[1:]
        arguments.append(_unpacked(make, data, offsets, sizes, at, (group, length, *rest)))
    block = callback.outputs[0]
    called = make.graphcore("Call", *arguments, dtype=output.dtype, shape=static_shape(block), callee=callback)
    rows = _packed(make, called, node.inputs[-2], node.inputs[-1], at, buffer, group)
    go = make.op("Identity", condition, like=condition)
    body.flush()
    graph.outputs.extend([go, rows])


def _group_of(make: Context, values: ir.Value | None, at: ir.Value, group: int) -> ir.Value:
    return make.graphcore("DynamicSlice", values, at, dtype=UINT32, shape=(group,), axes=(0,), sizes=(group,))


def _row_starts(make: Context, group: int, length: int) -> ir.Value:
    return make.constant_op((np.arange(group) * length).astype(np.uint32))


def _unpacked(
    make: Context, data: ir.Value | None, offsets: ir.Value | None, sizes: ir.Value | None, at: ir.Value, shape: Shape
) -> ir.Value:
    """The sequences of one group, each padded with zeros to the longest."""
    group, length, *rest = shape
    flat = (group * length, *rest)
    attributes = {"shape": flat, "data_type": int((data and data.dtype) or 1), "init_type": 1}
    empty = make.graphcore("Init", dtype=data.dtype if data else None, shape=flat, attrs=attributes)
    parts = [_group_of(make, sizes, at, group), _group_of(make, offsets, at, group), _row_starts(make, group, length)]
    rows = make.graphcore("SequenceSlice", data, empty, *parts, like=empty, zeroUnused=1)
    return reshape(make, rows, shape)


def _packed(
    make: Context,
    block: ir.Value,
    offsets: ir.Value | None,
    sizes: ir.Value | None,
    at: ir.Value,
    buffer: ir.Value,
    group: int,
) -> ir.Value:
    shape = dims(block)
    rows = reshape(make, block, (shape[0] * shape[1], *shape[2:]))
    parts = [_group_of(make, sizes, at, group), _row_starts(make, group, shape[1]), _group_of(make, offsets, at, group)]
    return make.graphcore("SequenceSlice", rows, buffer, *parts, like=buffer, zeroUnused=0)
