"""Preparation of an Ir for compilation, when a session is constructed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from ...errors import popart_exception
from ...ops import Trait, facts
from .ambiguity import check_graph
from .cleanup import remove_isolated_tensors, remove_unreachable_graphs
from .patterns import Patterns, PatternsLevel, apply
from .recursion import refuse_recursion

if TYPE_CHECKING:
    from ..ir import Ir
    from .op import Op


def prepare(owner: Ir) -> None:
    """Clean up, apply the mandatory patterns, check order and executability; the Ir is frozen afterwards.

    In-place updates that are not ordered, graphs that call themselves, operators without executable form, and those
    for another number of replicas, raise popart_exception.
    """
    _check_replicas(owner)
    refuse_recursion(owner.main_graph)
    remove_unreachable_graphs(owner)
    for graph in list(owner._graphs.values()):
        apply(graph, Patterns(PatternsLevel.Minimal))
        if graph is not owner.main_graph:
            remove_isolated_tensors(graph)
    if getattr(owner._options, "enableInplaceAmbiguityChecking", True):
        for graph in owner._graphs.values():
            check_graph(graph)
    for graph in owner._graphs.values():
        for op in graph._ops.values():
            reason = op._options.get("unexecutable") or _computes_with_float8(op)
            if reason:
                refused = popart_exception(reason)
                refused.add_note(f"{op.debugName()} can't be run")
                raise refused
    owner._prepared = True


def _check_replicas(owner: Ir) -> None:
    """Operators and variables are for the replicas that the Ir has; what all replicas share follows their number.

    Of the operators only reductions can follow: the shapes of slices and gathered tensors depend on the number.
    """
    replicas = owner.replication_factor
    for t in owner.main_graph.variables:
        made = len(t.replica_grouping.assignment)
        if made != replicas and t.replica_grouping.num_groups > 1:
            raise _too_late(repr(t), made, replicas)
        if made != replicas:
            t._grouping = owner.replica_grouping()
    for graph in owner._graphs.values():
        for op in graph._ops.values():
            groups = op._node.attributes.get("groups")
            if groups is None or groups.value[0] == replicas:
                continue
            made, _, members = groups.value
            if made != members or not op._node.op_type.startswith("ReplicatedAllReduce"):
                raise _too_late(op.debugName(), made, replicas)
            everyone = owner.replica_grouping()
            op._node.attributes["groups"] = ir.AttrInt64s("groups", [replicas, everyone.stride, everyone.group_size])
            if "group" in op._options:
                op._options["group"] = everyone


def _too_late(what: str, made: int, replicas: int) -> popart_exception:
    return popart_exception(
        f"{what} was made for {made} replicas, but the Ir has {replicas}: set the replication factor before."
    )


def _computes_with_float8(op: Op) -> str:
    """Why an operator of PopXL can't take its float8 operand; '' when it can."""
    eight = next((t for t in op._inputs().values() if t.dtype._is_float8), None)
    row = op._facts
    if eight is None or row.popxl is None or facts(row.forward or row.op_type).has(Trait.MOVES_DATA):
        return ""
    if facts(op._translation[1]).has(Trait.SCALED_FLOAT8):
        return ""
    return f"{eight!r} holds float8 numbers, which can be moved, cast and multiplied with a scale, nothing else"
