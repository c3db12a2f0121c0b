"""The alias pattern InPlace: ops that write into the buffer of an input.

Values never change. A buffer may be overwritten when every tensor that lives in it has been read for the last time;
variables, constants, streamed inputs and protected tensors are never overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import onnx_ir as ir

from ._attributes import excluded_patterns
from .facts import same_type
from .operators import GRAPHCORE, Operators, facts_of

PREFERRED = frozenset({"Conv", "MatMul"})
NAMES, PRIORITIES = "__inplace_op_names", "__inplace_op_priorities"
"""Attributes with the priorities that a program gives in-place forms of a node."""
DEFAULT_PRIORITY = 10.0
Extent = Literal["all", "views", "nothing"]
"""What may become in-place: any operator, only those whose result is a view, or none."""


def make_inplace(
    graph: ir.Graph,
    operators: Operators,
    protected: frozenset[str] = frozenset(),
    prefer_products: bool = False,
    extent: Callable[[ir.Node], Extent] = lambda node: "all",
) -> int:
    """Turn ops of one graph into their in-place variants: views, then the others, highest priority first.

    Among equal priorities the order is the schedule's. Forms without a positive priority are not chosen.

    Parameters
    ----------
    graph
        Graph in schedule order. Only op types change.
    operators
        Facts of operators by type.
    protected
        Tensors whose value must survive: anchors.
    prefer_products
        Overwrite the operand of Add that a convolution or matmul made (UpdateInplacePrioritiesForIpu).
    extent
        Which in-place forms an op may take.

    Returns
    -------
    int
        Number of ops changed.
    """
    return _Buffers(graph, operators, protected, prefer_products, extent).run()


class _Buffers:
    """Which values share a buffer, and when each was read for the last time."""

    def __init__(
        self,
        graph: ir.Graph,
        operators: Operators,
        protected: frozenset[str],
        prefer_products: bool,
        extent: Callable[[ir.Node], Extent],
    ) -> None:
        self.graph, self.operators = graph, operators
        self.protected, self.prefer_products, self.extent = protected, prefer_products, extent
        self.position = {node: i for i, node in enumerate(graph)}
        self.root: dict[ir.Value, ir.Value] = {}
        self.members: dict[ir.Value, list[ir.Value]] = {}

    def run(self) -> int:
        """Views first: what is written later must know all that share its buffer."""
        views = [self._become_view(node) for node in self.graph]
        writers = [(node, self._choices(node)) for node, is_view in zip(self.graph, views, strict=True) if not is_view]
        writers = [(node, choices) for node, choices in writers if choices]
        writers.sort(key=lambda writer: -writer[1][0][0])
        return sum(views) + sum(self._overwrite(node, choices) for node, choices in writers)

    def _become_view(self, node: ir.Node) -> bool:
        form = facts_of(node, self.operators).view
        if not form or len(node.outputs) != 1 or self.extent(node) == "nothing" or self._priority(node, form) <= 0:
            return False
        for value in node.inputs[: None if node.op_type == "Concat" else 1]:
            self._share(value, node.outputs[0])
        node.op_type, node.domain = form, GRAPHCORE
        return True

    def _overwrite(self, node: ir.Node, choices: Sequence[tuple[float, int, str]]) -> bool:
        for _, position, form in choices:
            value = node.inputs[position] if position < len(node.inputs) else None
            if value is not None and same_type(value, node.outputs[0]) and self._free(value, node):
                self._share(value, node.outputs[0])
                node.op_type, node.domain = form, GRAPHCORE
                return True
        return False

    def _choices(self, node: ir.Node) -> list[tuple[float, int, str]]:
        """(priority, operand, in-place form that overwrites it), best first."""
        forms = facts_of(node, self.operators).inplace
        if not forms or self.extent(node) != "all":
            return []
        choices = [(self._priority(node, form), position, form) for position, form in forms.items()]
        if self.prefer_products and len(choices) > 1:
            choices.sort(key=lambda choice: not self._is_product(node.inputs[choice[1]]))
        return sorted((c for c in choices if c[0] > 0), key=lambda choice: -choice[0])

    def _priority(self, node: ir.Node, form: str) -> float:
        if "InPlace" in excluded_patterns(node):
            return 0.0
        names, priorities = (node.attributes.get(key) for key in (NAMES, PRIORITIES))
        if names is None or priorities is None:
            return DEFAULT_PRIORITY
        given = dict(zip(names.as_strings(), priorities.as_floats(), strict=True))
        return given.get(form, DEFAULT_PRIORITY)

    def _is_product(self, value: ir.Value | None) -> bool:
        producer = None if value is None else value.producer()
        return producer is not None and producer.op_type in PREFERRED

    def _find(self, value: ir.Value) -> ir.Value:
        while self.root.get(value, value) is not value:
            value = self.root[value]
        return value

    def _share(self, source: ir.Value | None, result: ir.Value) -> None:
        if source is None:
            return
        a, b = self._find(source), self._find(result)
        if a is not b:
            small, large = sorted((a, b), key=lambda v: len(self.members.get(v, (v,))))
            self.root[small] = large
            self.members[large] = [*self.members.get(large, [large]), *self.members.pop(small, [small])]

    def _free(self, value: ir.Value, writer: ir.Node) -> bool:
        """Whether nothing in the buffer of `value` is needed after `writer`, which reads it once."""
        buffer = self._find(value)
        return all(self._dead_after(member, writer) for member in self.members.get(buffer, [buffer])) and (
            sum(v is not None and self._find(v) is buffer for v in writer.inputs) == 1
        )

    def _dead_after(self, value: ir.Value, writer: ir.Node) -> bool:
        if value.producer() is None or value.name in self.protected or value.is_graph_output():
            return False
        when = self.position[writer]
        return all(self._when(reader) <= when for reader in value.consumers())

    def _when(self, reader: ir.Node) -> float:
        """Schedule position; a reader inside a subgraph counts as unknown, hence late."""
        return self.position.get(reader, float("inf"))
