"""Pipeline stages of all ops, and the stashes of activations that a later stage of the same IPU reads."""

from __future__ import annotations

import onnx_ir as ir

from ..errors import popart_exception
from . import nodes
from .facts import IrFacts
from .placement import IPU, STAGE, number
from .recompute import RECOMPUTE

STASH = ("Stash", "Restore")
EXPLICIT_STASH = ("DynamicUpdate", "DynamicSlice")


def add_stages(graph: ir.Graph, facts: IrFacts) -> int:
    """Forward stages are annotations or IPU numbers; with the loss on stage L a backward op of s is on 2L - s.

    Stage L then runs forward and backward. With a forward-only program it can't, so the backward stages are one later.
    Returns L; 0 without a pipeline.
    """
    if not facts.options.pipelining:
        return 0
    annotated = any(number(n, STAGE) is not None for n in graph)
    for node in graph:
        if not annotated and number(node, IPU) is not None:
            node.attributes[STAGE] = ir.AttrInt64(STAGE, number(node, IPU) or 0)
    last = max((number(n, STAGE) or 0 for n in graph), default=0)  # also if the loss itself was pruned
    end = 2 * last + facts.options.forward_only_program
    for node in graph:
        stage = number(node, STAGE)
        if stage is not None and node.meta.get(nodes.PASS) != nodes.FORWARD:
            node.attributes[STAGE] = ir.AttrInt64(STAGE, end - stage)
    return last


def add_stashes(graph: ir.Graph, facts: IrFacts) -> None:
    """Stash each tensor that a later stage of its IPU needs, and restore it once per such stage."""
    if not facts.options.pipelining:
        return
    types = EXPLICIT_STASH if facts.options.explicit_ir else STASH
    explicit = facts.options.explicit_recomputation
    for value in _candidates(graph, explicit):
        stage = _stage_of(value)
        if stage is None:
            continue
        later: dict[int, list[tuple[ir.Node, int]]] = {}
        for needed in [value] if explicit else _recomputed_from(value, stage):
            for use in needed.uses():
                at = number(use.node, STAGE)
                if at is not None and at > stage and use.node.op_type != "IpuCopy":
                    later.setdefault(at, []).append((use.node, use.idx))
        if facts.options.recomputation == "Pipeline" and not facts.options.explicit_ir:
            _check_restores(value, later)
        if later:
            _stash(graph, value, stage, later, types)


def _check_restores(value: ir.Value, later: dict[int, list[tuple[ir.Node, int]]]) -> None:
    """Raise popart_exception where two of the stages that restore a tensor need it only for recomputation."""
    direct = set(value.consumers())
    if sum(uses[0][0] not in direct for uses in later.values()) > 1:
        raise popart_exception(
            "SessionOptions::autoRecomputation == RecomputationType::Pipeline is not compatible with the partitioning "
            f"of operations over pipeline stages. To-stash Tensor '{value.name}' must be restored for recomputation of "
            "a descendent that is not a direct consumer on more than 1 PipelineStage, but this is currently not "
            "supported"
        )


def _recomputed_from(value: ir.Value, stage: int) -> list[ir.Value]:
    """The tensor and all tensors that the stage recomputes from it."""
    found = {value: None}
    pending = [value]
    while pending:
        for node in pending.pop().consumers():
            if number(node, STAGE) == stage and node.meta.get(nodes.RECOMPUTE_TYPE) == RECOMPUTE:
                fresh = [o for o in node.outputs if o not in found]
                found.update(dict.fromkeys(fresh))
                pending.extend(fresh)
    return list(found)


def _candidates(graph: ir.Graph, explicit: bool) -> list[ir.Value]:
    """Streamed inputs, copies from other IPUs, and the activations that are not recomputed.

    With explicit recomputation the recomputing ops are copies, so that all activations are candidates.
    """
    forward = [n for n in graph if n.meta.get(nodes.PASS) == nodes.FORWARD]
    return [
        *nodes.sources_read(graph, "stream"),
        *(o for n in forward if explicit or n.meta.get(nodes.RECOMPUTE_TYPE) != RECOMPUTE for o in n.outputs),
    ]


def _stage_of(value: ir.Value) -> int | None:
    """Stage from which a tensor exists: its producer's, or for copies and streams that of its first reader."""
    producer = value.producer()
    if producer is not None and producer.op_type != "IpuCopy":
        return number(producer, STAGE)
    stages = [s for n in value.consumers() if (s := number(n, STAGE)) is not None]
    return min(stages, default=None)


def _stash(
    graph: ir.Graph, value: ir.Value, stage: int, later: dict[int, list[tuple[ir.Node, int]]], types: tuple[str, str]
) -> None:
    stashed = nodes.tensor(f"Stashed___{value.name}", value)
    like = value.producer()
    readers = [n for uses in later.values() for n, _ in uses]
    place = number(readers[0], IPU)
    stash = nodes.make(types[0], [value], [stashed], like=like, attributes=_at(stage, place))
    first = next((n for n in value.consumers() if number(n, STAGE) == stage), None)
    if like is not None and like.graph is graph:
        graph.insert_after(like, stash)
    else:
        graph.insert_before(first or readers[0], stash)
    for i, at in enumerate(sorted(later)):
        restored = nodes.tensor(f"Restored___{value.name}" + (f"__stage{at}" if i else ""), value)
        meta = {nodes.PASS: nodes.BACKWARD}
        before = later[at][0][0]
        # recomputed ops read the tensor itself, so it is overwritten
        in_place = types is STASH and before not in value.consumers()
        kind = types[1] + ("Inplace" if in_place else "")
        restore = nodes.make(kind, [value, stashed], [restored], like=readers[0], attributes=_at(at, place), meta=meta)
        graph.insert_before(before, restore)
        for node, index in later[at]:
            if node.inputs[index] is value:
                node.replace_input_with(index, restored)


def _at(stage: int, place: int | None) -> dict[str, int]:
    return {STAGE: stage} | ({} if place is None else {IPU: place})
