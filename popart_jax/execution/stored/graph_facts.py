"""Hash of everything that tracing reads of a graph: graphs with equal hashes are the same program."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import onnx_ir as ir

from .described import Undescribed

_PLAIN = frozenset({ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING})
_LISTS = frozenset({ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS})


def refuse_notes(node: ir.Node) -> Any:
    """Raise Undescribed for a node with front-end notes (`meta`), in graphs that should have none."""
    if node.meta:
        raise Undescribed(f"node '{node.name}' has notes of this process")


def graph_facts(
    graph: ir.Graph,
    opsets: Mapping[str, int],
    arguments: Container[str],
    notes: Callable[[ir.Node], Any] = refuse_notes,
) -> bytes:
    """A hash of a graph and its opsets, without the values of initializers that are `arguments` of the program.

    `notes` describes what tracing reads of a node besides its ONNX parts. Raises Undescribed where a part has no
    description: an attribute of a type that is not one of ONNX's plain ones, or a node whose computation only this
    process knows.
    """
    writer = _Writer(arguments, notes)
    writer.put(sorted(opsets.items()))
    writer.graph(graph)
    return writer.digest.digest()


class _Writer:
    """Writes facts into a hash; values are identified by number, since names need not be unique."""

    def __init__(self, arguments: Container[str], notes: Callable[[ir.Node], Any]) -> None:
        self.digest = hashlib.sha256()
        self._arguments, self._notes = arguments, notes
        self._numbers: dict[ir.Value, int] = {}
        self._graphs: dict[ir.Graph, int] = {}

    def put(self, *facts: Any) -> None:
        """Add facts whose `repr` describes them fully."""
        self.digest.update(repr(facts).encode("utf-8", "surrogateescape"))

    def graph(self, graph: ir.Graph) -> None:
        """Add a graph: inputs, initializers, nodes, outputs; a graph seen before is added by its number."""
        if graph in self._graphs:
            self.put("graph again", self._graphs[graph])
            return
        self._graphs[graph] = len(self._graphs)
        self.put("graph", *map(self._declared, graph.inputs))
        for value in graph.initializers.values():
            self.put("initializer", *self._declared(value))
            if value.const_value is not None and (value.name or "") not in self._arguments:
                self._tensor(value.const_value)
        for node in graph:
            self._node(node)
        self.put("outputs", *map(self._declared, graph.outputs))

    def _node(self, node: ir.Node) -> None:
        notes = self._notes(node)
        if notes is not None:
            self.put(notes)
        operands = [None if v is None else self._number(v) for v in node.inputs]
        self.put(node.domain, node.op_type, node.version, node.name, operands, [*map(self._declared, node.outputs)])
        for value in filter(None, node.inputs):
            if value.const_value is not None and value.producer() is None and not value.is_initializer():
                self._tensor(value.const_value)
        for name, attribute in sorted(node.attributes.items()):
            self._attribute(name, attribute)

    def _attribute(self, name: str, attribute: ir.Attr) -> None:
        kind, value = attribute.type, attribute.value
        self.put(name, kind.name, attribute.ref_attr_name)
        if kind in _PLAIN:
            self.put(value)
        elif kind in _LISTS:
            self.put(tuple(value))
        elif kind is ir.AttributeType.TENSOR:
            self._tensor(value)
        elif kind is ir.AttributeType.GRAPH:
            self.graph(value)
        elif kind in (ir.AttributeType.TENSORS, ir.AttributeType.GRAPHS):
            self._several(value)
        else:
            raise Undescribed(f"attribute {name!r} is of type {kind.name}")

    def _several(self, found: Iterable[Any]) -> None:
        for one in found:
            self.put("one of several")
            self.graph(one) if isinstance(one, ir.Graph) else self._tensor(one)

    def _tensor(self, tensor: ir.TensorProtocol) -> None:
        self.put(tensor.dtype.name, tuple(tensor.shape.numpy()))
        if tensor.dtype is ir.DataType.STRING:
            self.put(tensor.numpy().tolist())
        else:
            self.digest.update(tensor.tobytes())

    def _declared(self, value: ir.Value) -> tuple[Any, ...]:
        return self._number(value), value.name, str(value.type), str(value.shape)

    def _number(self, value: ir.Value) -> int:
        return self._numbers.setdefault(value, len(self._numbers))
