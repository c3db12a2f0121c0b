"""The alias pattern InPlace: ops that write into the buffer of an input.

Values never change. A buffer may be overwritten when every tensor that lives in it has been read for the last time;
variables, constants, streamed inputs and protected tensors are never overwritten.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from .facts import same_type
from .operators import GRAPHCORE, OperatorFacts, Operators, facts_of

PREFERRED = frozenset({"Conv", "MatMul"})


def make_inplace(
    graph: ir.Graph,
    operators: Operators,
    protected: frozenset[str] = frozenset(),
    prefer_products: bool = False,
    repeated: Callable[[ir.Node], bool] = lambda node: False,
) -> int:
    """Turn ops of one graph into their in-place variants, in schedule order.

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
    repeated
        Whether an op runs again later, from the same operands (implicit recomputation): it may only become a view.

    Returns
    -------
    int
        Number of ops changed.
    """
    return _Buffers(graph, operators, protected, prefer_products, repeated).run()


class _Buffers:
    """Which values share a buffer, and when each was read for the last time."""

    def __init__(
        self,
        graph: ir.Graph,
        operators: Operators,
        protected: frozenset[str],
        prefer_products: bool,
        repeated: Callable[[ir.Node], bool],
    ) -> None:
        self.graph, self.operators = graph, operators
        self.protected, self.prefer_products, self.repeated = protected, prefer_products, repeated
        self.position = {node: i for i, node in enumerate(graph)}
        self.root: dict[ir.Value, ir.Value] = {}
        self.members: dict[ir.Value, list[ir.Value]] = {}

    def run(self) -> int:
        return sum(self._visit(node) for node in self.graph)

    def _visit(self, node: ir.Node) -> bool:
        facts = facts_of(node, self.operators)
        if facts.view and len(node.outputs) == 1:
            for value in node.inputs[: None if node.op_type == "Concat" else 1]:
                self._share(value, node.outputs[0])
            node.op_type, node.domain = facts.view, GRAPHCORE
            return True
        for position, form in () if self.repeated(node) else self._choices(node, facts):
            value = node.inputs[position] if position < len(node.inputs) else None
            if value is not None and same_type(value, node.outputs[0]) and self._free(value, node):
                self._share(value, node.outputs[0])
                node.op_type, node.domain = form, GRAPHCORE
                return True
        return False

    def _choices(self, node: ir.Node, facts: OperatorFacts) -> list[tuple[int, str]]:
        """(operand, in-place form that overwrites it), best first."""
        choices = list(facts.inplace.items())
        if self.prefer_products and len(choices) > 1:
            choices.sort(key=lambda choice: not self._is_product(node.inputs[choice[0]]))
        return choices

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
