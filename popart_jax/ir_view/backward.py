"""The gradient ops of a session's graph, from its losses back to its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from patterns import static_shape

from ..autodiff import Gradients, Step, grow, is_float, plan, steps_of
from ..model.checks.structure import bodies
from ..ops import Gradient
from . import nodes

RESHAPING = frozenset({"ReshapeGrad", "SqueezeGrad", "UnsqueezeGrad"})
_BACKWARD = {nodes.PASS: nodes.BACKWARD}


def gradients(
    graph: ir.Graph, seeds: Mapping[ir.Value, ir.Value], decompose_sum: bool = False
) -> dict[ir.Value, ir.Value]:
    """Append gradient ops to a graph in topological order, from the gradient of each final tensor.

    Returns the total gradient (named `Gradient___<tensor>`) of every tensor that has one. With `decompose_sum`
    gradients of several readers are added by a chain of Add instead of one Sum.
    """
    forward = list(graph)
    steps, reached = plan(forward, seeds, _steps)
    return grow(steps, seeds.items(), _Maker(graph, forward, reached, decompose_sum)).all()


def _steps(node: ir.Node, needed: list[int]) -> list[Step]:
    if node.op_type in ("Call", "If"):
        return [Step(node, None, tuple(needed), captured=_captured_floats(node))]
    return steps_of(node, nodes.row(node).gradient_operators, needed)


def _captured_floats(node: ir.Node) -> list[ir.Value]:
    """Float tensors of the enclosing graphs that the bodies of a node read."""
    return list(dict.fromkeys(v for body in nodes.subgraphs(node) for v in captures(body) if is_float(v)))


class _Maker:
    """Makes gradient ops at the end of the graph that they differentiate."""

    def __init__(
        self, graph: ir.Graph, forward: Sequence[ir.Node], reached: set[ir.Value], decompose_sum: bool
    ) -> None:
        self.graph, self.decompose_sum, self.reached = graph, decompose_sum, reached
        self.numbers = {node: number for number, node in enumerate(forward)}

    def make(self, step: Step, gradients: Gradients) -> Iterator[tuple[ir.Value, ir.Value]]:
        """See `autodiff.Maker`."""
        given = [gradients.of(output) for output in step.node.outputs]
        made = self._called(step, given) if step.gradient is None else self._gradient_op(step, step.gradient, given)
        if made is not None:
            self.graph.append(made)
            yield from zip(step.targets, made.outputs, strict=True)

    def _gradient_op(self, step: Step, gradient: Gradient, given: list[ir.Value | None]) -> ir.Node:
        node, number = step.node, self.numbers[step.node]
        outputs = [nodes.tensor(f"{nodes.GRADIENT}{number}_{i}", node.inputs[i]) for i in step.of]
        made = nodes.make(
            gradient.op_type,
            self._operands(step, given),
            outputs,
            like=node,
            attributes=_attributes(node, gradient, step.targets[0]),
            meta={**_BACKWARD, nodes.ORIGIN: node.outputs[0].name},
        )
        made.meta["data"] = node.inputs[0] if node.inputs else None
        return made

    def _operands(self, step: Step, given: list[ir.Value | None]) -> list[ir.Value | None]:
        """Gradients of the outputs, then the forward tensors.

        Split needs a gradient for each of its outputs: zeros where none exists. PopART's LSTM has an optional input for
        each.
        """
        node = step.node
        if node.op_type == "Split":
            given = [self._zeros(o, node) if g is None else g for o, g in zip(node.outputs, given, strict=True)]
        elif node.op_type != "LSTM":
            given = [g for g in given if g is not None]
        operands = [*given, *step.reads]
        while operands and operands[-1] is None:
            operands.pop()
        return operands

    def _zeros(self, like: ir.Value, node: ir.Node) -> ir.Value:
        value = nodes.tensor(f"{nodes.GRADIENT}{like.name}__zeros", like)
        shape = static_shape(like)
        attributes = {"dtype": int(like.dtype or 1)} | ({} if shape is None else {"shape": shape})
        self.graph.append(nodes.make("Zeros", [], [value], like=node, attributes=attributes, meta=_BACKWARD))
        return value

    def total(self, value: ir.Value, parts: Sequence[ir.Value]) -> ir.Value:
        """See `autodiff.Maker`."""
        name = f"{nodes.GRADIENT}{value.name}"
        if len(parts) == 1:
            if parts[0].producer() is not None:
                parts[0].name = name
            return parts[0]
        like = value.producer() or parts[0].producer()
        if not self.decompose_sum:
            return self._append("Sum", parts, nodes.tensor(name, value), like)
        total = parts[0]
        for i, part in enumerate(parts[1:], 1):
            last = i == len(parts) - 1
            total = self._append("Add", [total, part], nodes.tensor(name if last else f"{name}__{i}", value), like)
        return total

    def _append(self, kind: str, operands: Sequence[ir.Value], result: ir.Value, like: ir.Node | None) -> ir.Value:
        self.graph.append(nodes.make(kind, operands, [result], domain="", like=like, meta=_BACKWARD))
        return result

    def _called(self, step: Step, given: list[ir.Value | None]) -> ir.Node | None:
        """Call and If: the gradient op calls the gradient graphs of the bodies."""
        node, targets = step.node, step.targets
        if not targets:
            return None
        inside = dict(bodies(node))
        explicit = [v for v in node.inputs[1 if node.op_type == "If" else 0 :] if v is not None]
        graphs = {
            name: _gradient_graph(body, explicit, targets, given, self.decompose_sum) for name, body in inside.items()
        }
        outputs = [nodes.tensor(f"{nodes.GRADIENT}{self.numbers[node]}_{i}", t) for i, t in enumerate(targets)]
        attributes = {k: a for k, a in node.attributes.items() if k not in inside and k not in nodes.PLACEMENT}
        return nodes.make(
            node.op_type, [*node.inputs, *(g for g in given if g is not None)], outputs, domain=node.domain, like=node,
            attributes={**attributes, **graphs}, meta=_BACKWARD,
        )  # fmt: skip


def _attributes(node: ir.Node, gradient: Gradient, target: ir.Value | None) -> dict[str, Any]:
    """Attributes of the gradient op: those of the forward op, inverted for ops that move data."""
    kept: dict[str, Any] = {k: a for k, a in node.attributes.items() if k not in nodes.PLACEMENT}
    if gradient.op_type in RESHAPING:
        shape = static_shape(target)
        return {k: a for k, a in kept.items() if k.startswith("__")} | ({} if shape is None else {"shape": shape})
    if gradient.op_type == "TransposeGrad" and target is not None and target.shape is not None:
        perm = nodes.attribute(node, "perm") or tuple(reversed(range(len(target.shape))))
        kept["perm"] = tuple(perm.index(i) for i in range(len(perm)))
    return kept


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
    given: list[ir.Value | None],
    decompose_sum: bool,
) -> ir.Graph:
    """The forward body computed again, then its gradient ops; outputs are the gradients of `targets`."""
    graph = body.clone(allow_outer_scope_values=True)
    graph.name = f"{body.name}_bwd"
    inner = dict(zip(explicit, graph.inputs, strict=False))
    seeds: dict[ir.Value, ir.Value] = {}
    for output, gradient in zip(list(graph.outputs), given, strict=True):
        if gradient is not None:
            seeds[output] = nodes.tensor(f"{nodes.GRADIENT}{output.name}", output)
            graph.inputs.append(seeds[output])
    totals = gradients(graph, seeds, decompose_sum)
    graph.outputs.clear()
    for target in targets:
        found = totals.get(inner.get(target, target))
        if found is None:
            found = nodes.tensor(f"{nodes.GRADIENT}{target.name}__zeros", target)
            graph.append(nodes.make("Zeros", [], [found], meta={nodes.PASS: nodes.BACKWARD}))
        graph.outputs.append(found)
    return graph
