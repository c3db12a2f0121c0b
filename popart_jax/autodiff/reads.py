"""The forward tensors that a gradient operator reads, according to the operator table."""

from __future__ import annotations

import onnx_ir as ir

from ..ops import Gradient, resolve_node


def tokens(node: ir.Node, gradient: Gradient) -> tuple[str, ...]:
    """The tensors that a gradient operator of a node reads, in the notation of `Gradient.reads`."""
    reduction = node.attributes.get("reduction")
    return gradient.reads if reduction is None else gradient.reads_by.get(str(reduction.value), gradient.reads)


def forward_reads(node: ir.Node, gradient: Gradient, operand: int) -> list[ir.Value | None]:
    """Inputs and outputs of a node that the gradient operator of its input `operand` reads, in order.

    None stands for tensors that the node does not have.
    """
    found: list[ir.Value | None] = []
    for of_result, position in forward_places(node, gradient, operand):
        pool = node.outputs if of_result else node.inputs
        found.append(pool[position] if 0 <= position < len(pool) else None)
    return found


def forward_places(node: ir.Node, gradient: Gradient, operand: int) -> list[tuple[bool, int]]:
    """Where `forward_reads` finds them: whether among the results, and at which position."""
    found: list[tuple[bool, int]] = []
    for token in tokens(node, gradient):
        if token == "g":
            continue
        of_result = token[0] == "y"
        if token[1:] == "*":
            found.extend((of_result, i) for i in range(len(node.outputs if of_result else node.inputs)))
            continue
        position = operand if token == "xi" else _seed(node) if token == "seed" else int(token[1:])
        found.append((of_result, position))
    return found


def _seed(node: ir.Node) -> int:
    """Index of the operand that is the random seed; -1 if the translation has none."""
    translation = resolve_node(node, {})
    return translation.inputs.index("seed") if translation and "seed" in translation.inputs else -1
