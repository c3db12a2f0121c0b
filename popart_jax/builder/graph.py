"""The graph being built: its tensors by name, and adding nodes to it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, cast

import onnx_ir as ir

from ..errors import noted, popart_exception
from ..model import attribute_names
from ..model.debug import DebugContext, path_of
from .infer import MANY, arity, infer, set_type
from .names import Names, fresh_graph_name
from .own_rules import check_own_rules
from .records import record_input, record_node
from .windows import check_window

DEFAULT_OPSET = 10
_NEWEST_OPSET_OF_IR_3 = 8


class GraphUnderConstruction:
    """One graph, with links to the graphs around it."""

    def __init__(self, parent: GraphUnderConstruction | None = None) -> None:
        self._parent = parent
        self._names = Names(parent._names if parent is not None else None)
        self._values: dict[str, ir.Value] = {}
        self._context: dict[str, list[ir.Attr]] = {}
        self._graph = ir.Graph([], [], nodes=[], name=fresh_graph_name())
        self._model = ir.Model(self._graph, ir_version=4) if parent is None else parent._model

    def _frozen(self) -> ir.Graph:
        """A copy of the graph as it is now, for the node that holds it; later changes do not reach it.

        Each node gets its own: a graph that held one copy in two nodes could not be copied in its turn.
        """
        return self._graph.clone(allow_outer_scope_values=True)

    # -- tensors

    def _find(self, name: str) -> ir.Value | None:
        """The tensor of this name here or in an enclosing graph."""
        scope: GraphUnderConstruction | None = self
        while scope is not None:
            if name in scope._values:
                return scope._values[name]
            scope = scope._parent
        return None

    def _value(self, name: str) -> ir.Value:
        found = self._find(name)
        if found is None:
            raise popart_exception(f"Unknown tensor '{name}' {self._valid_tensors()}.")
        return found

    def _valid_tensors(self) -> str:
        known: list[str] = []
        scope: GraphUnderConstruction | None = self
        while scope is not None:
            known += scope._values
            scope = scope._parent
        return f"(valid tensors are {', '.join(known)})" if known else "(there are no valid tensors yet)"

    def _new_value(self, name: str) -> ir.Value:
        value = ir.Value(name=name)
        self._values[name] = value
        return value

    def _add_input(self, base: str, kind: ir.DataType | None, shape: Sequence[int] | None) -> ir.Value:
        value = self._new_value(self._names.claim(base))
        set_type(value, kind, None if shape is None else tuple(shape))
        self._graph.inputs.append(value)
        return value

    def _note_input(self, context: DebugContext | str, value: ir.Value, api: str) -> str:
        number = record_input(context, value, api)
        self._model.metadata_props[attribute_names.debug_id("input", value.name or "")] = str(number)
        return value.name or ""

    # -- nodes

    def _add_node(
        self,
        op: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any],
        outputs: int,
        context: DebugContext | str,
        *,
        domain: str = "",
        version: int | None = None,
        inferred: bool = True,
        api: str = "",
    ) -> list[str]:
        """Add a node and return the names of its outputs.

        Raises popart_exception for an unknown tensor, a wrong number of inputs or outputs, window parameters that do
        not fit, or an operator of another opset than the domain has.
        """
        opset = self._use_opset(domain, version)
        if inferred:
            check_own_rules(op, inputs, attributes, self._graph.initializers, self._rank(inputs))
            self._check_arity(domain, op, opset, len(inputs), outputs)
        operands = [None if name == "" else self._value(name) for name in inputs]
        if inferred:
            check_window(op, domain, opset, operands, attributes)
        numbered = {**attributes, attribute_names.DEBUG_INFO: len(self._graph)}
        node_attributes = [*(to_attribute(k, v) for k, v in numbered.items()), *self._context_attributes(attributes)]
        node = ir.Node(domain, op, operands, node_attributes, num_outputs=outputs, name=self._node_name(op, context))
        if op == "Constant":
            node.metadata_props[attribute_names.CONSTANT] = "Builder"
        for i, value in enumerate(node.outputs):
            value.name = self._names.claim(op, i)
            self._values[value.name] = value
        self._graph.append(node)
        if inferred:
            self._infer(node, opset)
        names = [v.name or "" for v in node.outputs]
        record_node(node, context, inputs, names, attributes, api)
        return names

    def _rank(self, inputs: Sequence[str]) -> int | None:
        """Rank of the first input, where it is known."""
        first = self._find(inputs[0]) if inputs else None
        return None if first is None or first.shape is None else first.shape.rank()

    def _infer(self, node: ir.Node, opset: int) -> None:
        """Infer the types of a new node's outputs; one that is refused does not stay in the model."""
        try:
            infer(node, opset)
        except popart_exception:
            self._graph.remove(node)
            for value in node.outputs:
                del self._values[value.name or ""]
            raise

    def _check_arity(self, domain: str, op: str, version: int, inputs: int, outputs: int) -> None:
        low, high, most = arity(domain, op, version)
        if not low <= inputs <= high:
            bound = high if high < MANY else "inf"
            raise popart_exception(f"{op} has invalid number of inputs {inputs}. Must be between {low}..{bound}")
        if outputs > most:
            raise popart_exception(f"{op} has an invalid number of outputs {outputs}. Must be between 0..{most}")

    def _node_name(self, op: str, context: DebugContext | str) -> str:
        path, scope = path_of(context), self._names.scope()
        if path:
            return f"{scope}{path}"
        return f"{scope}{op}" if scope else ""

    def _context_attributes(self, own: Mapping[str, Any]) -> list[ir.Attr]:
        """Attributes of the active contexts that the node does not have itself."""
        return [stack[-1] for name, stack in self._context.items() if stack and name not in own]

    def _use_opset(self, domain: str, version: int | None) -> int:
        """The opset of a domain; the first operator decides it."""
        imports = self._model.opset_imports
        if domain not in imports:
            imports[domain] = version if version is not None else (DEFAULT_OPSET if domain == "" else 1)
            if domain == "":
                self._model.ir_version = 3 if imports[domain] <= _NEWEST_OPSET_OF_IR_3 else 4
        used = imports[domain]
        if version is not None and version != used:
            raise popart_exception(
                f"Invalid opset {version} used to add an operation. Opset for domain {domain or 'ai.onnx'} already "
                f"defined as {used}"
            )
        return used


def to_attribute(name: str, value: Any) -> ir.Attr:
    """A Python value as ONNX attribute; an empty list counts as a list of int."""
    if isinstance(value, (ir.Graph, ir.TensorProtocol)):
        kind = ir.AttributeType.GRAPH if isinstance(value, ir.Graph) else ir.AttributeType.TENSOR
        return ir.Attr(name, kind, value)
    if isinstance(value, (list, tuple)):
        each = (cast("Sequence[Any]", v) if isinstance(v, (list, tuple)) else [v] for v in cast("Sequence[Any]", value))
        value = [n for one in each for n in one]  # lists of lists are flattened
        if not value:
            return ir.Attr(name, ir.AttributeType.INTS, ())
        kinds = {_LISTS_OF.get(_scalar_type(v)) for v in value}
        kind = kinds.pop() if len(kinds) == 1 else None
        if kind is None:
            error = popart_exception(f"Invalid or mismatched python list type provided in custom op attribute '{name}'")
            raise noted(error, f"got {list(value)!r}")
        return ir.Attr(name, kind, tuple(map(_stored, value)))
    kind = _scalar_type(value)
    if kind is None:
        raise noted(popart_exception(f"Invalid type provided in custom op attribute '{name}'"), f"got {value!r}")
    return ir.Attr(name, kind, _stored(value))


_LISTS_OF: dict[ir.AttributeType | None, ir.AttributeType] = {
    ir.AttributeType.INT: ir.AttributeType.INTS,
    ir.AttributeType.FLOAT: ir.AttributeType.FLOATS,
    ir.AttributeType.STRING: ir.AttributeType.STRINGS,
}
"""The type of a list by that of its elements."""


def _stored(value: Any) -> Any:
    """A number as a model holds it: floats in single precision, bools as whole numbers."""
    if isinstance(value, float):
        return ctypes.c_float(value).value
    return int(value) if isinstance(value, bool) else value


def _scalar_type(value: Any) -> ir.AttributeType | None:
    if isinstance(value, (bool, int)):
        return ir.AttributeType.INT
    if isinstance(value, float):
        return ir.AttributeType.FLOAT
    return ir.AttributeType.STRING if isinstance(value, str) else None
