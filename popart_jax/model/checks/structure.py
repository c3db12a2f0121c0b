"""Checks that a model is well formed: known versions, each tensor defined once and before its readers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import onnx_ir as ir

from ...errors import noted, popart_exception
from ..origin import imported_as_popart

NEWEST_IR = 14
NEWEST_OPSETS = {"": 28, "ai.onnx.ml": 5}
_OPSETS_SINCE_IR = 3

Scope: TypeAlias = frozenset[ir.Value]


def check_structure(model: ir.Model) -> None:
    """Refuse a model whose meaning is unknown or undefined.

    Raises popart_exception for an IR version or opset newer than we know, no opset, or a reader of an undefined tensor.
    """
    check_versions(model.ir_version, model.opset_imports)
    _check_opset_is_there(model)
    _check_domains(model)
    _check_inputs(model.graph)
    _check_graph(model.graph, frozenset(), "the graph")


def _check_inputs(graph: ir.Graph) -> None:
    for value in graph.inputs:
        if value.type is not None and value.dtype is ir.DataType.UNDEFINED:
            raise popart_exception(
                f"Input '{value.name}' is declared without an element type.\n"
                "  fix: set elem_type, as onnx.helper.make_tensor_value_info does."
            )
        held = graph.initializers.get(value.name or "")
        if held is not None and held.const_value is not None:
            _check_alike(value, held.const_value)


def _check_alike(value: ir.Value, held: ir.TensorProtocol) -> None:
    """Check that an initializer that is also an input has the declared type and shape."""
    declared = list(value.shape) if value.shape is not None else None
    there = list(held.shape.numpy())
    fits = declared is None or (
        len(declared) == len(there)
        and all(d == n or not isinstance(d, int) or d < 0 for d, n in zip(declared, there, strict=True))
    )
    if not fits or value.dtype not in (None, held.dtype):
        raise popart_exception(
            f"Initializer '{value.name}' is of type {held.dtype} and shape {there}; the input of its name is declared "
            f"as {value.dtype}, {declared}.\n  fix: declare the input as the initializer is, or take one of them out."
        )


def _check_domains(model: ir.Model) -> None:
    imported = {"", "ai.onnx", *model.opset_imports}
    for node in every_node(model.graph):
        if node.domain not in imported and node.version is None:
            raise popart_exception(
                f"Node '{node.name or node.op_type}' is an operator of the domain '{node.domain}', which the model "
                f"does not import; it imports {sorted(d or 'ai.onnx' for d in model.opset_imports)}.\n"
                f"  fix: add an opset_import of '{node.domain}'."
            )


def check_versions(ir_version: int | None, imports: Mapping[str, int]) -> None:
    """Refuse a model's IR version, or opsets by domain, that are unknown, with popart_exception."""
    if ir_version is None or ir_version < 1:
        raise popart_exception(
            f"The model has IR version {ir_version or 0}; versions count from 1.\n"
            "  fix: set ir_version, as onnx.helper.make_model does."
        )
    if ir_version > NEWEST_IR:
        error = popart_exception(f"Expecting ONNX IR version 1 to {NEWEST_IR}, but got {ir_version}.")
        raise noted(error, "fix: export the model with an older onnx, or upgrade this package.")
    for domain, version in imports.items():
        newest = NEWEST_OPSETS.get("" if domain == "ai.onnx" else domain)
        if newest is not None and not 1 <= version <= newest:
            raise popart_exception(
                f"The model imports opset {version} of {domain or 'ai.onnx'}; known are 1 to {newest}.\n"
                f"  fix: convert it with onnx.version_converter.convert_version(model, {newest})."
            )


def _check_opset_is_there(model: ir.Model) -> None:
    opsets = {"" if domain == "ai.onnx" else domain: v for domain, v in model.opset_imports.items()}
    if "" not in opsets and model.ir_version >= _OPSETS_SINCE_IR:
        plain = next((n for n in model.graph if n.domain in ("", "ai.onnx") and n.version is None), None)
        if plain is not None:
            raise popart_exception(
                f"The model imports no opset of ai.onnx, so that the meaning of {plain.op_type} is unknown; it imports "
                f"{opsets or 'none'}.\n  fix: add an opset_import of the version it was exported for."
            )


def _check_graph(graph: ir.Graph, outer: Scope, where: str, around: tuple[ir.Graph, ...] = ()) -> None:
    """Check that each value that a node or graph output reads is an input, an initializer, or computed before."""
    known = {*graph.inputs, *graph.initializers.values()}
    for node in graph:
        for value in node.inputs:
            if value is not None and value not in known and value not in outer and value.const_value is None:
                raise _unknown(value, f"node {node.name or node.op_type!r}", graph, around)
        for name, body in bodies(node):
            _check_graph(body, outer | known, f"{name} of node {node.name or node.op_type!r}", (graph, *around))
        known.update(node.outputs)
    for value in graph.outputs:
        if value not in known and value not in outer and value.const_value is None:
            raise _unknown(value, f"an output of {where}", graph, around)


def sort_nodes(model: ir.Model) -> None:
    """Sort the nodes, in place, if some are read before they are made; ONNX Runtime's converters leave them so.

    A cycle stays, for `check_structure` to refuse, and so do all nodes of programs that import ``popart``.
    """
    if not imported_as_popart() and not all(_is_sorted(graph) for graph in model.graphs()):
        with contextlib.suppress(ValueError):
            model.graph.sort()


def _is_sorted(graph: ir.Graph) -> bool:
    """Whether nodes come before their readers, those inside of bodies too."""
    made = set[ir.Node]()
    for node in graph:
        for reader in every_node((node,)):
            for value in reader.inputs:
                producer = None if value is None else value.producer()
                if producer is not None and producer.graph is graph and producer not in made:
                    return False
        made.add(node)
    return True


def _unknown(value: ir.Value, reader: str, graph: ir.Graph, around: tuple[ir.Graph, ...]) -> popart_exception:
    producer = value.producer()
    if producer is None:
        return popart_exception(
            f"No value for tensor '{value.name}', read by {reader}: it is no input, no initializer, and no node makes "
            "it.\n  fix: add the initializer or the node, or take the reader out."
        )
    if producer.graph is graph or producer.graph in around:
        return popart_exception(
            f"No value for tensor '{value.name}' when it is read by {reader}: the node that makes it, "
            f"{producer.name or producer.op_type!r}, comes later or depends on it.\n"
            "  fix: sort the nodes topologically (onnx_ir: model.graph.sort()); a cycle can't be run."
        )
    return popart_exception(
        f"No value for tensor '{value.name}', read by {reader}: it belongs to another subgraph.\n"
        "  fix: make it an output of that subgraph."
    )


def constant_of(value: ir.Value) -> ir.TensorProtocol | None:
    """The tensor of an initializer or Constant; None for others, and for a malformed node: its translation tells."""
    try:
        return ir.convenience.get_const_tensor(value)
    except ValueError:
        return None


def every_node(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """The nodes of a graph or function and, after each, those of its subgraphs.

    The same as `onnx_ir.traversal.RecursiveGraphIterator`, in half the time.
    """
    for node in nodes:
        yield node
        for _, graph in bodies(node):
            yield from every_node(graph)


def bodies(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """Graphs among a node's attributes, with the names of those."""
    for name, attribute in node.attributes.data.items():  # views of a UserDict are slow
        if attribute.type is ir.AttributeType.GRAPH:
            yield name, attribute.value
        elif attribute.type is ir.AttributeType.GRAPHS:
            yield from ((name, graph) for graph in attribute.value)
