"""Batch serialisation: ops that treat the elements of the batch independently are repeated on slices of it.

Slices go from op to op. They are joined before a reader of the whole tensor (a loss, a batch norm in training, an
anchor), or where the placement changes and the settings say so. What runs is cut along the same dimensions
(`execution/batch_parts.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import onnx_ir as ir

from patterns import static_shape

from ..errors import popart_exception
from . import batch_axes, nodes
from .facts import BatchSerialisation
from .main_loops import LOOP

DYNAMIC, LOOPED = "UnrollDynamic", "Loop"
LOAD, COMPUTE, STORE = "load", "compute", "store"
_TURNS = {
    "Isomorphic": {LOAD: (0, 0), COMPUTE: (0, 0), STORE: (0, 0)},
    "OverlapOnIo": {LOAD: (-1, 1), COMPUTE: (0, 0), STORE: (0, 2)},
    "OverlapOnCompute": {LOAD: (-1, -1), COMPUTE: (0, 0), STORE: (0, 2)},
}
"""By schedule: in which slice's turn an op runs (offset from its own slice), and its position within that turn.

Isomorphic: slice after slice. The others load the next slice early, after or before the ops on the present one. With
`Scheduler` each op runs on all its slices in a row.
"""


def check(graph: ir.Graph, factor: int) -> None:
    """Raise popart_exception unless `factor` divides the batch of every streamed input."""
    for value, axis in batch_axes.of_streams(graph).items():
        size = (static_shape(value) or (0,))[axis]
        if all(batch_axes.results(n, {value: axis}) is None for n in value.consumers()):
            continue
        if size < factor:
            raise popart_exception(
                f"Batch axis: {size} is smaller than the batch serialization factor: {factor} for tensor {value.name}"
            )
        if size % factor:
            raise popart_exception(
                f"Batch serialization: the batch size {size} of tensor '{value.name}' is not divisible by the batch "
                f"serialization factor {factor}.\n  fix: choose a factor that divides it."
            )


def serialise(graph: ir.Graph, settings: BatchSerialisation, keep: Collection[str], numbers: Iterator[int]) -> None:
    """Serialise the ops; tensors named in `keep` exist as wholes afterwards."""
    check(graph, settings.factor)
    axes, split = split_of(graph, settings.factor)
    if settings.method == LOOPED:
        for run in _runs(graph, split, settings.joined_at):
            _Loop(graph, run, axes, settings.factor, next(numbers)).replace(keep, split)
    else:
        _Unrolled(graph, list(split), axes, settings).replace(keep)


def split_of(graph: ir.Graph, factor: int) -> tuple[batch_axes.Axes, dict[ir.Node, None]]:
    """The batch dimension of tensors, and the ops, in order, that compute one part of `factor` after the other."""
    axes = batch_axes.of_streams(graph)
    split: dict[ir.Node, None] = {}
    for node in graph:
        found = batch_axes.results(node, axes)
        if found is not None and all(_divides(factor, o, a) for o, a in zip(node.outputs, found, strict=True)):
            axes.update(zip(node.outputs, found, strict=True))
            split[node] = None
    return axes, split


def _divides(factor: int, value: ir.Value, axis: int) -> bool:
    size = (static_shape(value) or ())[axis]
    return size >= factor and size % factor == 0


def _piece(value: ir.Value, axis: int, factor: int, name: str) -> ir.Value:
    shape = [d // factor if i == axis else d for i, d in enumerate(static_shape(value) or ())]
    return nodes.tensor(name, value, shape=shape)


def _copy(node: ir.Node, inputs: Sequence[ir.Value | None], outputs: Sequence[ir.Value]) -> ir.Node:
    attributes = dict(node.attributes)
    if "shape" in attributes:
        attributes["shape"] = ir.AttrInt64s("shape", list(static_shape(outputs[0]) or ()))
    return nodes.make(node.op_type, inputs, outputs, domain=node.domain, like=node, attributes=attributes)


def _places(node: ir.Node, names: Collection[str]) -> tuple[object, ...]:
    return tuple(nodes.attribute(node, name) for name in names)


def _drop(graph: ir.Graph, members: Sequence[ir.Node]) -> None:
    for node in reversed(members):
        graph.remove(node, safe=True)


class _Unrolled:
    """Repeats every op `factor` times: on static slices, or on dynamic ones whose results are written into a buffer."""

    def __init__(
        self, graph: ir.Graph, split: list[ir.Node], axes: batch_axes.Axes, settings: BatchSerialisation
    ) -> None:
        self.graph, self.split, self.axes, self.settings = graph, split, axes, settings
        self.pieces: dict[ir.Value, list[ir.Value]] = {}
        self.indices: dict[int, ir.Value] = {}
        self.turns: dict[ir.Node, tuple[int, int]] = {}

    def replace(self, keep: Collection[str]) -> None:
        """Replace the ops by those on slices."""
        members = set(self.split)
        for node in self.split:
            self._split_node(node)
        for node in self.split:
            for output in node.outputs:
                if output.name in keep or any(reader not in members for reader in output.consumers()):
                    self._join(node, output)
        _drop(self.graph, self.split)
        self._sort_by_turn()

    def _insert(self, before: ir.Node, node: ir.Node, piece: int, kind: str) -> None:
        self.graph.insert_before(before, node)
        if self.settings.schedule in _TURNS:
            later, place = _TURNS[self.settings.schedule][kind]
            self.turns[node] = (piece + later, place)

    def _sort_by_turn(self) -> None:
        """Sort neighbouring ops on slices in the order of the schedule."""
        turn = self.turns
        ordered: list[ir.Node] = []
        for tagged, run in itertools.groupby(self.graph, lambda node: node in turn):
            side_by_side = list(run)
            ordered += sorted(side_by_side, key=turn.__getitem__) if tagged else side_by_side
        self.graph.remove(ordered)
        self.graph.extend(ordered)

    def _split_node(self, node: ir.Node) -> None:
        factor = self.settings.factor
        operands = [None if v is None else self._operands(v, node) for v in node.inputs]
        for output in node.outputs:
            axis = self.axes[output]
            self.pieces[output] = [_piece(output, axis, factor, f"{output.name}__bs{i}") for i in range(factor)]
        for i in range(factor):
            inputs = [None if o is None else o[i] for o in operands]
            self._insert(node, _copy(node, inputs, [self.pieces[o][i] for o in node.outputs]), i, COMPUTE)

    def _operands(self, value: ir.Value, reader: ir.Node) -> list[ir.Value]:
        """The slices of `value` that the repeated ops read."""
        producer, factor, names = value.producer(), self.settings.factor, self.settings.joined_at
        if value not in self.axes:
            return [value] * factor
        if value in self.pieces and producer is not None and _places(producer, names) == _places(reader, names):
            return self.pieces[value]
        name, axis = f"{value.name}__{reader.outputs[0].name}", self.axes[value]
        parts = [_piece(value, axis, factor, f"{name}__slice{i}") for i in range(factor)]
        for i, part in enumerate(parts):
            self._insert(reader, self._slice(value, part, axis, i, reader), i, LOAD)
        return parts

    def _slice(self, value: ir.Value, part: ir.Value, axis: int, i: int, like: ir.Node) -> ir.Node:
        size = (static_shape(part) or ())[axis]
        if self.settings.method == DYNAMIC:
            where = {"axes": (axis,), "sizes": (size,)}
            return nodes.make("DynamicSlice", [value, self._index(i * size)], [part], like=like, attributes=where)
        bounds = {"axes": (axis,), "starts": (i * size,), "ends": ((i + 1) * size,)}
        return nodes.make("Slice", [value], [part], like=like, attributes=bounds)

    def _index(self, start: int) -> ir.Value:
        return self.indices.setdefault(start, nodes.constant(f"ConstValue___batchSerial_{start}", [start], np.uint32))

    def _join(self, node: ir.Node, output: ir.Value) -> None:
        name, axis, parts = output.name or "", self.axes[output], self.pieces[output]
        output.name = f"{name}__whole"
        whole = nodes.tensor(name, output)
        if self.settings.method != DYNAMIC:
            joined = nodes.make("Concat", parts, [whole], domain="", like=node, attributes={"axis": axis})
            self._insert(node, joined, len(parts), COMPUTE)
        else:
            self._write(node, name, parts, axis, whole)
        output.replace_all_uses_with(whole)

    def _write(self, node: ir.Node, name: str, parts: Sequence[ir.Value], axis: int, whole: ir.Value) -> None:
        buffer = nodes.tensor(f"{name}__bsInit", whole)
        self._insert(node, nodes.make("Init", [], [buffer], like=node), -1, COMPUTE)
        size = (static_shape(parts[0]) or ())[axis]
        for i, part in enumerate(parts):
            written = whole if i == len(parts) - 1 else nodes.tensor(f"{name}__bsUpdate{i}", whole)
            where = {"axes": (axis,), "sizes": (size,)}
            inputs = [buffer, self._index(i * size), part]
            update = nodes.make("DynamicUpdate", inputs, [written], like=node, attributes=where)
            self._insert(node, update, i, STORE)
            buffer = written


def _runs(graph: ir.Graph, split: Collection[ir.Node], names: Collection[str]) -> list[list[ir.Node]]:
    """Neighbouring ops of one pass that can be serialised together."""
    runs: list[list[ir.Node]] = [[]]
    for node in graph:
        last = runs[-1][-1] if runs[-1] else None
        if node not in split:
            runs.append([])
        elif last is not None and _kind(last, names) != _kind(node, names):
            runs.append([node])
        else:
            runs[-1].append(node)
    return [run for run in runs if run]


def _kind(node: ir.Node, names: Collection[str]) -> tuple[object, ...]:
    return (nodes.note(node, nodes.PASS), *_places(node, names))


class _Loop:
    """Makes a run of ops the body of one Loop over the slices."""

    def __init__(self, graph: ir.Graph, run: list[ir.Node], axes: batch_axes.Axes, factor: int, number: int) -> None:
        self.graph, self.run, self.axes, self.factor, self.number = graph, run, axes, factor, number

    def replace(self, keep: Collection[str], split: Collection[ir.Node]) -> None:
        """Replace the run by the Loop."""
        inside, first = set(self.run), self.run[0]
        captured = dict.fromkeys(v for n in self.run for v in n.inputs if v is not None and v.producer() not in inside)
        results = [
            o for n in self.run for o in n.outputs
            if o.name in keep or any(reader not in inside for reader in o.consumers())
        ]  # fmt: skip
        iteration = nodes.tensor(f"Iterator___bs{self.number}", dtype=ir.DataType.INT32, shape=())
        going = nodes.tensor(f"LoopCond___bs{self.number}", dtype=ir.DataType.BOOL, shape=())
        buffers = [nodes.tensor(f"{o.name}__bsInit", o) for o in results]
        made = [nodes.make("Init", [], [buffer], like=first) for buffer in buffers]
        carried = [nodes.tensor(f"{o.name}__bsBuffer", o) for o in results]
        given = {v: nodes.tensor(v.name or "", v) for v in captured}
        for old, new in given.items():
            new.meta.update(old.meta)
        body, written = self._body(given, results, carried, iteration)
        graph = ir.Graph(
            [iteration, going, *carried, *given.values()], [going, *written], nodes=body, name=f"{LOOP}({self.number})"
        )
        wholes = [nodes.tensor(o.name or "", o) for o in results]
        counts = [
            nodes.constant(f"ConstValue___tripCount_bs{self.number}", self.factor, np.int32),
            nodes.constant(f"ConstValue___always_bs{self.number}", True),
        ]
        attributes = {"body": graph, "tripCountValue": self.factor}
        inputs = [*counts, *buffers, *captured]
        self.graph.insert_before(
            first, [*made, nodes.make("Loop", inputs, wholes, domain="", like=first, attributes=attributes)]
        )
        for old, new in zip(results, wholes, strict=True):
            self.axes[new] = self.axes[old]
            old.replace_all_uses_with(new)
        _drop(self.graph, self.run)

    def _body(
        self,
        given: dict[ir.Value, ir.Value],
        results: Sequence[ir.Value],
        carried: Sequence[ir.Value],
        iteration: ir.Value,
    ) -> tuple[list[ir.Node], list[ir.Value]]:
        """The body: slices of the run's inputs, the run's ops, and buffer updates for results read elsewhere."""
        here: dict[ir.Value, ir.Value] = {}
        body: list[ir.Node] = []
        for outer, inner in given.items():
            here[outer] = inner
            if outer in self.axes:
                here[outer] = _piece(outer, self.axes[outer], self.factor, f"{outer.name}__bs")
                body.append(self._at("DynamicSlice", [inner, iteration], here[outer], outer))
        for node in self.run:
            here |= {o: _piece(o, self.axes[o], self.factor, f"{o.name}__bs") for o in node.outputs}
            body.append(
                _copy(node, [None if v is None else here[v] for v in node.inputs], [here[o] for o in node.outputs])
            )
        written = [nodes.tensor(f"{o.name}__bsUpdate", o) for o in results]
        for output, buffer, update in zip(results, carried, written, strict=True):
            body.append(self._at("DynamicUpdate", [buffer, iteration, here[output]], update, output))
        return body, written

    def _at(self, op_type: str, inputs: Sequence[ir.Value], output: ir.Value, whole: ir.Value) -> ir.Node:
        axis = self.axes[whole]
        where = {"axes": (axis,), "sizes": ((static_shape(whole) or ())[axis] // self.factor,)}
        return nodes.make(op_type, inputs, [output], like=self.run[0], attributes=where)
