"""Layout and kernel passes on a program's own copy of the graph, between patterns and lowering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from ..lowering.kernels.onednn import usable
from ..lowering.passes import compiler_options, in_pieces, rewrite_for_kernels, untranspose_weights
from ..timings import phase
from .micro import GRADIENT
from .program import Program, Training, Type


@dataclass(frozen=True)
class LaidOut:
    """A program with layouts chosen, and the compiler options for its graph."""

    program: Program
    options: Mapping[str, str]


@phase("layout")
def lay_out(program: Program, platform: str, training: Training | None, *, single: bool = True) -> LaidOut:
    """Choose layouts for a platform; the given program and its graph are not changed.

    In a session that trains, `training` says which weights change. Those that the graph reads through a transpose alone
    (and their optimizer state) are resident in transposed order. A program that is not `single` is cut between devices.
    """
    graph = program.graph.clone(allow_outer_scope_values=True)
    _enter_shapes(graph, program.types)
    protected = _protected(program)
    in_parts = program.batch is not None  # with channels last tensors have other names, of which no part is known
    rewrite_for_kernels(graph, protected, without=("turned weights", *(("channels last",) if in_parts else ())))
    if training is None and single and not in_parts:
        in_pieces(graph, protected, usable)  # XLA's own convolutions are slower in a loop
    for one in (graph, *graph.subgraphs()) if training is not None else ():
        untranspose_weights(one)
    trains, at_random = program.training is not None, program.options.rounds_stochastically
    options = compiler_options(program.graph, training=trains, platform=platform, rounds_at_random=at_random)
    variables = dict(program.variables)
    for name, order in _orders(graph, program, training).items():
        if name in variables:
            variables[name] = replace(variables[name], order=order)
    return LaidOut(replace(program, graph=graph, variables=variables), options)


def _enter_shapes(graph: ir.Graph, types: Mapping[str, Type]) -> None:
    """Write the traced types on values whose shape the file leaves open, as exporters do for inner tensors."""
    for value, found in _traced(graph, types):
        if value.shape is None or not value.shape.is_static():
            value.shape = ir.Shape(found.shape)
            value.type = value.type or ir.TensorType(ir.DataType.from_numpy(found.dtype))


def correct_shapes(graph: ir.Graph, types: Mapping[str, Type]) -> None:
    """Put the traced shape where ONNX's inference states another one: PopART's rules differ from it in places."""
    for value, found in _traced(graph, types):
        if value.shape is not None and value.shape.is_static():
            value.shape = ir.Shape(found.shape)


def _traced(graph: ir.Graph, types: Mapping[str, Type]) -> Iterator[tuple[ir.Value, Type]]:
    for value in (*graph.inputs, *(v for node in graph for v in node.outputs)):
        if (found := types.get(value.name or "")) is not None:
            yield value, found


def _orders(graph: ir.Graph, program: Program, training: Training | None) -> dict[str, tuple[int, ...]]:
    """For each trained weight with a Transpose as its only reader, that order of dimensions; the same for its slots."""
    orders: dict[str, tuple[int, ...]] = {}
    for weight, rule in () if training is None else training.rules.items():
        value = graph.initializers.get(weight)
        order = None if value is None or weight in program.copies else _wanted_order(value)
        if order is None:
            continue
        names = (weight, *(s.name for s in rule.slots if not s.is_scalar))
        orders |= dict.fromkeys(names, order)
    return orders


def _wanted_order(value: ir.Value) -> tuple[int, ...] | None:
    readers = list(value.consumers())
    if len(readers) != 1 or readers[0].op_type != "Transpose" or value.is_graph_output():
        return None
    perm = readers[0].attributes.get_ints("perm")
    return None if perm is None else tuple(perm)


def _protected(program: Program) -> frozenset[str]:
    shown = {a.source for a in program.anchors}
    keep = shown | {s.removeprefix(GRADIENT) for s in shown} | set(program.copies.values())
    if program.training is not None:
        keep.add(program.training.loss)
        if program.training.scaling is not None:
            keep |= set(program.training.scaling.tracked)
    return frozenset(keep)
