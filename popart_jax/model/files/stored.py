"""Names for all floating point tensors that a model file stores: in initializers, Constant nodes, subgraphs, functions.

The names are the same each time a file is read, so that trained values can be written back into the model (see
`saving`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...errors import popart_exception
from ..checks.structure import bodies, every_node


@dataclass(frozen=True, eq=False)
class Stored:
    """One stored floating point tensor."""

    # of the initializer or of the Constant node's output; with the owner's name before it where that is taken
    name: str
    tensor: Any  # its numbers
    value: ir.Value  # the value that readers see
    node: ir.Node | None = None  # the Constant node, None for an initializer
    metadata: dict[str, str] = field(default_factory=dict[str, str])  # what the exporter noted about it
    convert: Callable[[np.ndarray], np.ndarray] = np.asarray  # converts values passed to `write` to the stored ones

    def write(self, array: np.ndarray) -> None:
        """Put other numbers, in the type that is stored, in its place; popart_exception for another shape."""
        given, shape = np.shape(array), tuple(int(d) for d in self.tensor.shape)
        if given != shape:
            raise popart_exception(f"'{self.name}' has shape {list(given)}; the model stores {list(shape)}.")
        tensor = ir.Tensor(
            np.asarray(self.convert(array), self.tensor.dtype.numpy()), dtype=self.tensor.dtype, name=self.tensor.name
        )
        if self.node is None:
            self.value.const_value = tensor
        else:
            self.node.attributes["value"] = ir.AttrTensor("value", tensor)
            self.node.attributes.pop("value_floats", None)


def stored_floats(model: ir.Model) -> dict[str, Stored]:
    """All floating point tensors that a model stores, by name, before its functions are inlined.

    Constants of formulas, which are Constant nodes of rank 0, are not among them.
    """
    found: dict[str, Stored] = {}
    taken = {v.name for node in model.graph for v in node.outputs} | {v.name for v in model.graph.inputs}
    taken |= model.graph.initializers.keys()
    for owner, graph in _graphs(model):
        for one in (*_initializers(graph), *_constants(graph)):
            free = one.name and one.name not in found and (graph is model.graph or one.name not in taken)
            name = one.name if free else f"{owner}/{one.name}"
            while name in found:
                name += "_"
            found[name] = one if name == one.name else replace(one, name=name)
    return found


def _graphs(model: ir.Model) -> Iterator[tuple[str, Any]]:
    """Every graph with the name of what it belongs to: the main graph, those inside it, called functions and so on."""
    yield "", model.graph
    yield from _inner(model.graph)
    called = _called(model)
    for identifier, function in model.functions.items():
        if identifier in called:
            yield function.name, function
            yield from _inner(function)


def _called(model: ir.Model) -> set[ir.OperatorIdentifier]:
    """The functions that the main graph calls, or that those call: of others nothing is left after inlining."""
    found: set[ir.OperatorIdentifier] = set()
    pending: list[Iterable[ir.Node]] = [model.graph]
    while pending:
        names = {node.op_identifier() for node in every_node(pending.pop())}
        fresh = (names & model.functions.keys()) - found
        found |= fresh
        pending += [model.functions[name] for name in fresh]
    return found


def _inner(graph: Iterable[ir.Node]) -> Iterator[tuple[str, ir.Graph]]:
    for node in graph:
        for name, body in bodies(node):
            owner = f"{node.name or node.op_type}/{name}"
            yield owner, body
            yield from _inner(body)


def _initializers(graph: Any) -> Iterator[Stored]:
    for name, value in getattr(graph, "initializers", {}).items():
        if value.const_value is not None and _is_float(value.const_value.dtype):
            yield Stored(name, value.const_value, value, None, dict(value.metadata_props))


def _constants(graph: Iterable[ir.Node]) -> Iterator[Stored]:
    for node in graph:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and len(node.outputs) == 1:
            tensor = _constant_tensor(node)
            if tensor is not None and len(tensor.shape) and _is_float(tensor.dtype):
                (value,) = node.outputs
                notes = {**value.metadata_props, **node.metadata_props}
                yield Stored(value.name or node.name or "", tensor, value, node, notes)


def _constant_tensor(node: ir.Node) -> Any:
    held, listed = node.attributes.get("value"), node.attributes.get("value_floats")
    if held is not None:
        return held.value if held.type is ir.AttributeType.TENSOR else None
    if listed is None or listed.type is not ir.AttributeType.FLOATS:
        return None
    tensor = ir.Tensor(np.asarray(listed.as_floats(), np.float32))
    node.attributes.pop("value_floats")
    node.attributes["value"] = ir.AttrTensor("value", tensor)
    return tensor


def _is_float(dtype: ir.DataType) -> bool:
    return dtype.is_floating_point() or dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)


def lift(graph: ir.Graph, stored: Mapping[str, Stored]) -> None:
    """Make every stored tensor an initializer of the main graph under its name, in place.

    `graph` is the main graph after functions were inlined: the nodes of a function that is called twice share one
    initializer, as they share the tensor.
    """
    names = {id(one.tensor): name for name, one in stored.items() if name not in graph.initializers}
    if not names:
        return
    lifted: dict[str, ir.Value] = {}
    _free_names(graph, set(names.values()), names)
    for inner in (graph, *graph.subgraphs()):
        for value in list(inner.initializers.values()):
            if inner is not graph and id(value.const_value) in names:
                _replace(inner, value, _lifted(graph, names[id(value.const_value)], value.const_value, lifted))
                inner.initializers.pop(value.name or "")
        for node in list(inner):
            tensor = (
                node.attributes["value"].value if node.op_type == "Constant" and "value" in node.attributes else None
            )
            if tensor is not None and id(tensor) in names:
                _replace(inner, node.outputs[0], _lifted(graph, names[id(tensor)], tensor, lifted))
                inner.remove(node, safe=True)


def _free_names(graph: ir.Graph, wanted: set[str], lifted: Container[int]) -> None:
    """Rename what bears a wanted name: a value of another function may have kept it when functions were inlined."""
    fresh = (f"{name}/inner{number}" for number in itertools.count() for name in wanted)
    for inner in (graph, *graph.subgraphs()):
        own = inner.inputs if inner is not graph else ()
        for value in (*own, *inner.initializers.values(), *(v for node in inner for v in node.outputs)):
            if value.name in wanted and value not in graph.outputs:
                _rename(value, next(fresh), lifted)


def _rename(value: ir.Value, name: str, lifted: Container[int]) -> None:
    """Rename a value, but not its tensor, which may be the caller's: one that stays here becomes one of our own."""
    tensor, value.const_value = value.const_value, None
    value.name = name
    if tensor is not None and id(tensor) not in lifted:
        tensor = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=name)
    value.const_value = tensor


def _lifted(graph: ir.Graph, name: str, tensor: Any, lifted: dict[str, ir.Value]) -> ir.Value:
    if name not in lifted:
        shape = ir.Shape([int(d) for d in tensor.shape])
        value = ir.Value(name=name, shape=shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
        lifted[name] = value
        graph.register_initializer(value)
    return lifted[name]


def _replace(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    if old.is_graph_output():  # a value can be an output of one graph only, under one name
        copy = ir.Node("", "Identity", [new], name=f"{old.name}/lifted")
        copy.outputs[0].name, copy.outputs[0].shape, copy.outputs[0].type = old.name, old.shape, old.type
        graph.append(copy)
        for i, output in enumerate(graph.outputs):
            if output is old:
                graph.outputs[i] = copy.outputs[0]
    ir.convenience.replace_all_uses_with(old, new)  # nodes before the copy read it, too


def write_numbers(stored: Mapping[str, Stored], numbers: Mapping[str, Any]) -> None:
    """Put other numbers into the model of `stored_floats`, by the names given there.

    Raises popart_exception where the model stores no tensor of a name, or one of another shape.
    """
    unknown = [n for n in numbers if n not in stored]
    if unknown:
        raise popart_exception(
            f"The model stores no float tensors {unknown[:10]}; it stores {sorted(stored)[:20]}.\n"
            "  fix: save what to_jax returned, under the same names."
        )
    for name, x in numbers.items():
        stored[name].write(np.asarray(x))
