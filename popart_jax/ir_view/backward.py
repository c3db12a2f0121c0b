"""Growing the gradient ops of a graph, from its losses back to its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx_ir as ir

from patterns import static_shape

from . import nodes
from .gradient_table import Gradient, gradients_of

GRADIENT = "Gradient___"
RESHAPING = frozenset({"ReshapeGrad", "SqueezeGrad", "UnsqueezeGrad"})
Gradients = dict[ir.Value, ir.Value]


def grow(graph: ir.Graph, seeds: Mapping[ir.Value, ir.Value], decompose_sum: bool = False) -> Gradients:
    """Append gradient ops to `graph`.

    Parameters
    ----------
    graph
        Graph in topological order; the new nodes follow the old ones.
    seeds
        Gradient of each final tensor.
    decompose_sum
        Sum gradients of several readers with a chain of Add instead of one Sum.

    Returns
    -------
    dict
        Total gradient (named `Gradient___<tensor>`) of every tensor that has one.
    """
    return _Backward(graph, seeds, decompose_sum).run()


class _Backward:
    def __init__(self, graph: ir.Graph, seeds: Mapping[ir.Value, ir.Value], decompose_sum: bool) -> None:
        self.graph, self.decompose_sum = graph, decompose_sum
        self.forward = list(graph)
        self.partials: dict[ir.Value, list[ir.Value]] = {v: [g] for v, g in seeds.items()}
        self.total: Gradients = {}
        self.wanted = _leading_to(self.forward, seeds)

    def run(self) -> Gradients:
        for number in range(len(self.forward) - 1, -1, -1):
            node = self.forward[number]
            gradients = [self._total_of(output, node) for output in node.outputs]
            if any(g is not None for g in gradients):
                self._visit(node, number, gradients)
        for value in list(self.partials):
            self._total_of(value, None)
        return self.total

    def _visit(self, node: ir.Node, number: int, gradients: list[ir.Value | None]) -> None:
        if node.op_type in ("Call", "If"):
            self._called(node, number, gradients)
            return
        for gradient in gradients_of(node.op_type):
            operands = range(len(node.inputs)) if gradient.operands is None else gradient.operands
            if gradient.operands is None:
                for i in operands:
                    self._emit(node, number, gradient, (i,), gradients)
            else:
                self._emit(node, number, gradient, tuple(operands), gradients)

    def _emit(
        self,
        node: ir.Node,
        number: int,
        gradient: Gradient,
        operands: tuple[int, ...],
        gradients: list[ir.Value | None],
    ) -> None:
        targets = [node.inputs[i] if i < len(node.inputs) else None for i in operands]
        if not any(t in self.wanted for t in targets if t is not None):
            return
        reads = _reads(node, gradient, operands[0], self._filled(node, gradients))
        outputs = [self._partial(t, number, i) for t, i in zip(targets, operands, strict=True)]
        made = nodes.make(
            gradient.op_type,
            reads,
            [o for o in outputs if o is not None],
            like=node,
            attributes=_attributes(node, gradient, targets[0]),
            meta={nodes.PASS: nodes.BACKWARD, nodes.ORIGIN: node.outputs[0].name},
        )
        made.meta["data"] = node.inputs[0] if node.inputs else None
        self.graph.append(made)
        self._collect(targets, outputs)

    def _partial(self, target: ir.Value | None, number: int, index: int) -> ir.Value | None:
        return (
            None
            if target is None or not nodes.is_float(target)
            else nodes.tensor(f"{GRADIENT}{number}_{index}", target)
        )

    def _collect(self, targets: Iterable[ir.Value | None], outputs: Iterable[ir.Value | None]) -> None:
        for target, output in zip(targets, outputs, strict=True):
            if target is not None and output is not None and target in self.wanted:
                self.partials.setdefault(target, []).append(output)

    def _filled(self, node: ir.Node, gradients: list[ir.Value | None]) -> list[ir.Value | None]:
        """Split needs a gradient for each of its outputs: zeros where nothing flows back."""
        if node.op_type != "Split":
            return gradients
        return [self._zeros(o, node) if g is None else g for o, g in zip(node.outputs, gradients, strict=True)]

    def _zeros(self, like: ir.Value, node: ir.Node) -> ir.Value:
        value = nodes.tensor(f"{GRADIENT}{like.name}__zeros", like)
        shape = static_shape(like)
        attributes = {"dtype": int(like.dtype or 1)} | ({} if shape is None else {"shape": shape})
        self.graph.append(
            nodes.make("Zeros", [], [value], like=node, attributes=attributes, meta={nodes.PASS: nodes.BACKWARD})
        )
        return value

    def _total_of(self, value: ir.Value, producer: ir.Node | None) -> ir.Value | None:
        """Sum of the partial gradients of a tensor; asked for once, when all its readers have been visited."""
        parts = self.partials.pop(value, None)
        if parts is None:
            return self.total.get(value)
        if len(parts) == 1:
            total = parts[0]
            if total.producer() is not None:
                total.name = f"{GRADIENT}{value.name}"
        else:
            total = self._sum(value, parts, producer)
        self.total[value] = total
        return total

    def _sum(self, value: ir.Value, parts: list[ir.Value], producer: ir.Node | None) -> ir.Value:
        like = producer or parts[0].producer()
        name = f"{GRADIENT}{value.name}"
        meta = {nodes.PASS: nodes.BACKWARD}
        if not self.decompose_sum:
            total = nodes.tensor(name, value)
            self.graph.append(nodes.make("Sum", parts, [total], domain="", like=like, meta=meta))
            return total
        total = parts[0]
        for i, part in enumerate(parts[1:], 1):
            last = i == len(parts) - 1
            result = nodes.tensor(name if last else f"{name}__{i}", value)
            self.graph.append(nodes.make("Add", [total, part], [result], domain="", like=like, meta=meta))
            total = result
        return total

    def _called(self, node: ir.Node, number: int, gradients: list[ir.Value | None]) -> None:
        """Call and If: the gradient op calls the gradient graphs of the bodies."""
        bodies = {name: a.as_graph() for name, a in node.attributes.items() if a.type == ir.AttributeType.GRAPH}
        explicit = [v for v in node.inputs[1 if node.op_type == "If" else 0 :] if v is not None]
        captured = list(dict.fromkeys(v for body in bodies.values() for v in captures(body)))
        targets = [v for v in [*explicit, *captured] if nodes.is_float(v) and v in self.wanted]
        if not targets:
            return
        graphs = {
            name: _gradient_graph(body, explicit, targets, gradients, self.decompose_sum)
            for name, body in bodies.items()
        }
        outputs = [nodes.tensor(f"{GRADIENT}{number}_{i}", t) for i, t in enumerate(targets)]
        attributes = {k: a for k, a in node.attributes.items() if k not in bodies and k not in nodes.PLACEMENT}
        inputs = [*node.inputs, *[g for g in gradients if g is not None]]
        made = nodes.make(
            node.op_type, inputs, outputs, domain=node.domain, like=node, attributes={**attributes, **graphs},
            meta={nodes.PASS: nodes.BACKWARD},
        )  # fmt: skip
        self.graph.append(made)
        self._collect(targets, outputs)


def _attributes(node: ir.Node, gradient: Gradient, target: ir.Value | None) -> dict[str, Any]:
    """Those of the forward op, turned round for ops that move data."""
    kept: dict[str, Any] = {k: a for k, a in node.attributes.items() if k not in nodes.PLACEMENT}
    if gradient.op_type in RESHAPING:
        shape = static_shape(target)
        return {k: a for k, a in kept.items() if k.startswith("__")} | ({} if shape is None else {"shape": shape})
    if gradient.op_type == "TransposeGrad" and target is not None and target.shape is not None:
        perm = nodes.attribute(node, "perm") or tuple(reversed(range(len(target.shape))))
        kept["perm"] = tuple(perm.index(i) for i in range(len(perm)))
    return kept


def _reads(node: ir.Node, gradient: Gradient, operand: int, gradients: list[ir.Value | None]) -> list[ir.Value | None]:
    present: list[ir.Value | None] = [g for g in gradients if g is not None]
    many = {"g": gradients if node.op_type == "LSTM" else present, "x*": list(node.inputs), "y*": list(node.outputs)}
    reads: list[ir.Value | None] = []
    for token in gradient.reads:
        if token in many:
            reads.extend(many[token])
            continue
        pool = node.inputs if token[0] == "x" else node.outputs
        position = operand if token[1:] == "i" else int(token[1:])
        reads.append(pool[position] if position < len(pool) else None)
    while reads and reads[-1] is None:
        reads.pop()
    return reads


def _leading_to(forward: list[ir.Node], seeds: Mapping[ir.Value, ir.Value]) -> set[ir.Value]:
    """Float tensors with a differentiable path to a seeded one."""
    wanted = set(seeds)
    for node in reversed(forward):
        if not any(o in wanted for o in node.outputs):
            continue
        if node.op_type in ("Call", "If"):
            wanted.update(v for v in node.inputs if nodes.is_float(v) and v is not None)
            wanted.update(v for body in nodes.subgraphs(node) for v in captures(body) if nodes.is_float(v))
        for gradient in gradients_of(node.op_type) if node.op_type not in ("Call", "If") else ():
            operands = range(len(node.inputs)) if gradient.operands is None else gradient.operands
            targets = (node.inputs[i] for i in operands if i < len(node.inputs))
            wanted.update(v for v in targets if v is not None and nodes.is_float(v))
    return wanted


def captures(body: ir.Graph) -> list[ir.Value]:
    """Tensors of enclosing graphs that a body reads."""
    own = {*body.inputs, *body.initializers.values()}
    own.update(o for n in body.all_nodes() for o in n.outputs)
    for node in body.all_nodes():
        for inner in nodes.subgraphs(node):
            own.update(inner.inputs)
    found = (v for n in body.all_nodes() for v in n.inputs if v is not None and v not in own)
    return list(dict.fromkeys(found))


def _gradient_graph(
    body: ir.Graph,
    explicit: list[ir.Value],
    targets: list[ir.Value],
    gradients: list[ir.Value | None],
    decompose_sum: bool,
) -> ir.Graph:
    """The forward body computed again, then its gradient ops; outputs are the gradients of `targets`."""
    graph = body.clone(allow_outer_scope_values=True)
    graph.name = f"{body.name}_bwd"
    inner = dict(zip(explicit, graph.inputs, strict=False))
    seeds = {}
    for output, gradient in zip(list(graph.outputs), gradients, strict=True):
        if gradient is not None:
            seeds[output] = nodes.tensor(f"{GRADIENT}{output.name}", output)
            graph.inputs.append(seeds[output])
    totals = grow(graph, seeds, decompose_sum)
    graph.outputs.clear()
    for target in targets:
        found = totals.get(inner.get(target, target))
        if found is None:
            found = nodes.tensor(f"{GRADIENT}{target.name}__zeros", target)
            graph.append(nodes.make("Zeros", [], [found], meta={nodes.PASS: nodes.BACKWARD}))
        graph.outputs.append(found)
    return graph
