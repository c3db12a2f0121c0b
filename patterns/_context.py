"""The context that rewrites get: queries about the graph, and construction of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from ._attributes import make_node
from .operators import GRAPHCORE, Mode, OperatorFacts, Operators, facts_of

Shape = tuple[int, ...]


_VIEWS = ("Reshape", "Transpose")


class Context:
    """Use counts, protection, constants and node construction for one sweep.

    Parameters
    ----------
    mode
        "inference" or "training".
    protected
        Names of tensors that must keep existing with their values: anchors, outputs, variables.
    operators
        Facts of operators by type.
    opset
        Version of ai.onnx that the model imports.
    graph
        The graph, whose names new tensors must not take.
    """

    def __init__(
        self,
        mode: Mode,
        protected: frozenset[str],
        operators: Operators,
        opset: int = 11,
        graph: ir.Graph | None = None,
    ) -> None:
        self.graph = graph
        self.mode: Mode = mode
        self.operators = operators
        self.opset = opset
        self.protected = protected
        self.created: list[ir.Node] = []
        self.stem = ""
        self._counts: dict[ir.Value, int] = {}
        self._next = 0  # number of the next name
        self._before = 0  # the same, when the rewrite began
        self._newest: ir.Value | None = None

    # -- questions

    def facts(self, node: ir.Node) -> OperatorFacts:
        """Facts of a node's operator."""
        return facts_of(node, self.operators)

    def use_count(self, value: ir.Value) -> int:
        """Number of inputs that read `value`; counted once, then kept up to date by the sweep."""
        if value not in self._counts:
            self._counts[value] = len(value.uses())
        return self._counts[value]

    def is_protected(self, value: ir.Value) -> bool:
        """Whether a tensor must keep its name and value: an anchor, an output of the graph, a variable."""
        return value.name in self.protected or value.is_graph_output()

    def only_used_once(self, value: ir.Value) -> bool:
        """Whether one input reads the tensor and nothing else needs it."""
        return self.use_count(value) == 1 and not self.is_protected(value)

    def constant(self, value: ir.Value | None) -> np.ndarray | None:
        """The value when nothing can change it: a Constant node, or an unprotected initializer in inference."""
        if value is None:
            return None
        node = value.producer()
        if node is not None:
            return _constant_node_value(node)
        if value.const_value is None or (value.is_graph_input() and value.name in self.protected):
            return None
        if self.mode == "training" or value.name in self.protected:
            return None
        return value.const_value.numpy()

    def static(self, value: ir.Value | None) -> np.ndarray | None:
        """Like `constant`, but integer initializers (shapes, axes) count in training sessions too."""
        known = self.constant(value)
        if known is None and value is not None and value.const_value is not None and value.name not in self.protected:
            array = value.const_value.numpy()
            known = array if np.issubdtype(array.dtype, np.integer) else None
        return known

    # -- construction

    def op(
        self,
        op_type: str,
        *inputs: ir.Value | None,
        domain: str = "",
        like: ir.Value | None = None,
        shape: Sequence[int] | None = None,
        dtype: ir.DataType | None = None,
        attrs: Mapping[str, Any] | None = None,
        **attributes: Any,
    ) -> ir.Value:
        """Create a node with one output, which is returned.

        Parameters
        ----------
        op_type, domain : str
            The operator.
        *inputs : onnx_ir.Value or None
            Its inputs; None leaves an optional one out.
        like : onnx_ir.Value, optional
            The output takes type and shape of this value, unless `shape` or `dtype` are given.
        shape, dtype : optional
            Shape and type of the output.
        attrs : mapping, optional
            Attributes whose names clash with a parameter (`shape`, `dtype`).
        **attributes
            All other attributes.
        """
        everything = {**(attrs or {}), **attributes}
        return self.ops(op_type, inputs, domain=domain, results=[_typed(like, shape, dtype)], **everything)[0]

    def graphcore(self, op_type: str, *inputs: ir.Value | None, **keywords: Any) -> ir.Value:
        """Create a one-output node of ai.graphcore, as `op` does."""
        return self.op(op_type, *inputs, domain=GRAPHCORE, **keywords)

    def ops(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        *,
        domain: str = "",
        results: Sequence[tuple[ir.DataType | None, Sequence[int] | None]],
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        """Create a node with several outputs, which are returned.

        Parameters
        ----------
        op_type, domain : str
            The operator.
        inputs : sequence of onnx_ir.Value or None
            Its inputs; None leaves an optional one out.
        results : sequence of (dtype, shape)
            Type and shape of each output; None where unknown.
        **attributes
            Attributes of the node.
        """
        viewed = inputs[0] if op_type in _VIEWS else None  # views are named after their input
        stem = self.stem if viewed is None else viewed.name or self.stem
        outputs = [self._value(stem, dtype, shape) for dtype, shape in results]
        node = make_node(op_type, inputs, outputs, attributes, domain)
        self.created.append(node)
        self._adjust(node, +1)
        return node.outputs

    def constant_op(self, array: np.ndarray) -> ir.Value:
        """A Constant node holding `array`."""
        tensor = ir.tensor(array)
        value = self.op("Constant", value=tensor, dtype=tensor.dtype, shape=array.shape)
        value.const_value = tensor
        return value

    @cached_property
    def _taken(self) -> set[str | None]:
        """Names of the graph's tensors, collected when the first new one is made."""
        if self.graph is None:
            return set()
        values = (v for node in self.graph.all_nodes() for v in (*node.inputs, *node.outputs) if v is not None)
        return {v.name for v in (*self.graph.inputs, *values)}

    def _value(self, stem: str, dtype: ir.DataType | None, shape: Sequence[int] | None) -> ir.Value:
        while (name := f"{stem}__t{self._next}") in self._taken:  # as PopART names such tensors
            self._next += 1
        self._next += 1
        self._newest = ir.Value(
            name=name,
            type=None if dtype is None else ir.TensorType(dtype),
            shape=None if shape is None else ir.Shape(list(shape)),
        )
        return self._newest

    def give_back_number(self, value: ir.Value) -> None:
        """The value gets another name: the number in its own is free again if it is the newest."""
        if value is self._newest:
            self._next -= 1
            self._newest = None

    # -- bookkeeping, called by the sweep

    def begin(self, node: ir.Node) -> None:
        """A rewrite of the node begins."""
        self.created, self._before = [], self._next
        self.stem = node.outputs[0].name or node.op_type if node.outputs else node.op_type

    def detach(self, node: ir.Node, moved: frozenset[int] = frozenset()) -> None:
        """Remove all uses by `node` and graphs inside it; graphs whose id is in `moved` belong to another node now."""
        self._adjust(node, -1)
        node.resize_inputs(0)
        for body in bodies(node):
            if id(body) not in moved:
                for inner in body.all_nodes():
                    self._adjust(inner, -1)
                    inner.resize_inputs(0)

    def discard(self) -> None:
        """Drop the nodes created by a rewrite that was declined afterwards."""
        for node in reversed(self.created):
            self.detach(node)
        self.created, self._next = [], self._before

    def _adjust(self, node: ir.Node, step: int) -> None:
        for value in node.inputs:
            if value in self._counts:
                self._counts[value] += step

    def move_uses(self, old: ir.Value, new: ir.Value) -> None:
        """Update the use counts: readers of `old` now read `new`."""
        moved = self._counts.pop(old, None)
        if new in self._counts:
            self._counts[new] += len(old.uses()) if moved is None else moved


def bodies(node: ir.Node) -> list[ir.Graph]:
    """Graphs among the node's attributes."""
    return [a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]


def _typed(
    like: ir.Value | None, shape: Sequence[int] | None, dtype: ir.DataType | None
) -> tuple[ir.DataType | None, Sequence[int] | None]:
    if like is not None:
        dtype = like.dtype if dtype is None else dtype
        shape = static_shape(like) if shape is None else shape
    return dtype, shape


def _constant_node_value(node: ir.Node) -> np.ndarray | None:
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.TENSOR:
            return attribute.as_tensor().numpy()
        if attribute.name in ("value_int", "value_ints"):
            return np.array(attribute.value, np.int64)
        if attribute.name in ("value_float", "value_floats"):
            return np.array(attribute.value, np.float32)
    return None


def static_shape(value: ir.Value | None) -> Shape | None:
    """The shape as ints, or None when it or one of its dimensions is unknown."""
    if value is None or value.shape is None:
        return None
    found = tuple(d for d in value.shape if isinstance(d, int))
    return found if len(found) == len(value.shape) else None


def dims(value: ir.Value | None) -> Shape:
    """The static shape of a value that is known to have one (empty otherwise)."""
    return static_shape(value) or ()
