"""Checks of virtual graphs and pipeline stages, with PopART's error texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...enums import VirtualGraphMode
from ...model.number_text import number_text
from ...model.op_names import listed
from ..options.session_options import SessionOptions, local_replicas


@dataclass(frozen=True, slots=True)
class PlacedOp:
    """An operator of the forward graph as the checks see it."""

    description: str  # ``Op(<id>, inputs=[...], outputs=[...])``, as errors name it
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    virtual_graph: int | None = None
    stage: int | None = None
    phase: int | None = None
    short: str = ""  # ``<n> (<id>)``, as errors name it where they list many


def check_placement(options: SessionOptions, ops: Sequence[PlacedOp], ipus_per_replica: int) -> Iterator[str]:
    """Errors of the annotations, found when a session is made."""
    yield from _check_virtual_graphs(options, ops)
    yield from _check_phases(options, ops)
    if options.enablePipelining:
        yield from _check_pipelining(options, ops, ipus_per_replica)


def _check_virtual_graphs(options: SessionOptions, ops: Sequence[PlacedOp]) -> Iterator[str]:
    mode = options.virtualGraphMode
    without = [op for op in ops if op.virtual_graph is None]
    if mode is not VirtualGraphMode.Manual or not without:
        return
    if len(without) == len(ops):
        yield (
            f"SessionOptions flag virtualGraphMode is VirtualGraphMode::{mode.name}, but no Ops have been "
            "annotated with virtual graph information. This is an inconsistent combination. "
        )
        return
    counts = Counter(op.virtual_graph for op in ops if op.virtual_graph is not None)
    lines = [
        "Either all Ops must have their virtual graph ids set, or none must. Op count per virtual graph id",
        *(f"  {graph} : {count}" for graph, count in sorted(counts.items())),
        "Ops with no virtual graph id :  ",
        *(f"  {op.short}" for op in without),
    ]
    yield "\n".join(lines)


def _check_phases(options: SessionOptions, ops: Sequence[PlacedOp]) -> Iterator[str]:
    settings = options.executionPhaseSettings
    if options.virtualGraphMode is not VirtualGraphMode.ExecutionPhases or settings.phases <= 1:
        return
    for op in ops:
        if op.phase is not None and op.phase >= settings.phases:
            yield (
                f"[StreamingMemory] Maximum phase is {settings.phases - 1}, but op {op.description} has phase "
                f"{op.phase}."
            )
        elif op.phase is not None and op.virtual_graph not in (None, op.phase % max(settings.stages, 1)):
            yield (
                f"[StreamingMemory] Op {op.description} inconsistent execution phase {op.phase} and virtual graph ID "
                f"{op.virtual_graph}"
            )


def explicit_pipelining(options: SessionOptions) -> bool:
    """Whether the pipeline is written out in the IR."""
    return options.enablePipelining and options.enableExplicitMainLoops


def _check_pipelining(options: SessionOptions, ops: Sequence[PlacedOp], ipus: int) -> Iterator[str]:
    mode = options.virtualGraphMode
    if not explicit_pipelining(options) and (ipus < 2 or mode is VirtualGraphMode.Off):
        yield (
            f"Pipelining requires more than 1 IPU (currently {ipus}) and the 'virtualGraphMode' session option to "
            f"not be VirtualGraphMode::Off (currently VirtualGraphMode::{mode.name})."
        )
        return
    with_stage = [op for op in ops if op.stage is not None]
    if with_stage and len(with_stage) != len(ops):
        missing = "\n".join(f"  {op.description}" for op in ops if op.stage is None)
        yield f"Only some ops have had their pipeline stage set. Ops missing the pipeline stage:\n{missing}"
    else:
        wrong = [*_check_stage_graphs(with_stage)] or [*_check_stage_numbers(with_stage)]
        yield from wrong or _check_order(ops)


def _check_stage_graphs(ops: Sequence[PlacedOp]) -> Iterator[str]:
    for stage in sorted({op.stage for op in ops if op.stage is not None}):
        members = [op for op in ops if op.stage == stage]
        graphs = sorted({op.virtual_graph for op in members if op.virtual_graph is not None})
        if len(graphs) > 1:
            shown = listed(op.description for op in members)
            yield (
                f"Ops {shown} have the same pipeline stage {stage}, but different virtual graph ids {listed(graphs)}. "
                "All ops with the same pipeline stage must also have the same virtual graph id"
            )


def _check_stage_numbers(ops: Sequence[PlacedOp]) -> Iterator[str]:
    stages = sorted({op.stage for op in ops if op.stage is not None})
    if stages and stages[0] < 0:
        yield f"Op has bad pipeline stage {stages[0]}"
        return
    missing = next((i for i, stage in enumerate(stages) if i != stage), None)
    if missing is not None:
        yield f"The set of pipeline stages for all Ops contains {stages[-1] + 1} stages, but stage {missing} is missing"


def _check_order(ops: Sequence[PlacedOp]) -> Iterator[str]:
    made = {name: op for op in ops for name in op.outputs}
    for op in ops:
        for name in op.inputs:
            source = made.get(name)
            first, then = None if source is None else _stage(source), _stage(op)
            if source is not None and first is not None and then is not None and then < first:
                yield (
                    f"Tensor {name} is consumed in an earlier pipeline stage than it is produced\n"
                    f"Producer {source.description} has pipeline stage {first}\n"
                    f"Consumer {op.description} has pipeline stage {then}"
                )
                return


def _stage(op: PlacedOp) -> int | None:
    """The stage of an op: as annotated, else its virtual graph's number."""
    return op.virtual_graph if op.stage is None else op.stage


def pipeline_depth(ops: Sequence[PlacedOp], training: bool, forward_only_program: bool = False) -> int:
    """Number of stages, backward ones included; consecutive stages on one IPU count once."""
    graphs: dict[int, int | None] = {}
    for op in ops:
        stage = _stage(op)
        if stage is not None:
            graphs.setdefault(stage, op.virtual_graph)
    order = [graphs[s] for s in sorted(graphs)]
    merged = [g for i, g in enumerate(order) if i == 0 or g is None or g != order[i - 1]]
    forward = max(len(merged), 1)
    if not training:
        return forward
    return 2 * forward if forward_only_program else 2 * forward - 1


def check_depth(
    options: SessionOptions, ops: Sequence[PlacedOp], training: bool, batches_per_step: int
) -> Iterator[str]:
    """Whether enough micro-batches fill the pipeline."""
    stages = pipeline_depth(ops, training, options.createImplicitPipeliningFwdOnlyProgram)
    what, depth = (
        ("gradient accumulation factor", options.accumulationFactor)
        if options.enableGradientAccumulation
        else ("batchesPerStep", batches_per_step)
    )
    if depth < stages:
        yield f"For pipelining, depth ({what}) must equal at least the number of pipeline stages ({stages})"


def check_device_placement(options: SessionOptions, ipus: int) -> Iterator[str]:
    """Errors of the device's size, found by `prepareDevice`."""
    replicas = local_replicas(options)
    off = options.virtualGraphMode is VirtualGraphMode.Off
    if replicas > 1 and ipus > 1 and ipus % replicas:
        yield "For replicated graphs, the number of IPUs must be divisible by the replication factor."
    elif off and ipus // replicas > 1 and options.replicatedGraphCount != ipus:
        yield (
            f"If virtual graphs are disabled, the replicated graph count ({options.replicatedGraphCount}) "
            f"needs to be equal to the number of IPUs ({ipus})"
        )


def is_misplaced(options: SessionOptions, ops: Sequence[PlacedOp], ipus_per_replica: int) -> bool:
    """Whether an operator is annotated with an IPU that does not exist."""
    placed = [op.virtual_graph for op in ops if op.virtual_graph is not None]
    return options.virtualGraphMode is not VirtualGraphMode.Off and any(not 0 <= n < ipus_per_replica for n in placed)


def check_split_ratios(options: SessionOptions, ipus_per_replica: int) -> Iterator[str]:
    """Errors of the split ratios: one for each IPU, each a share between 0 and 1."""
    ratios = options.virtualGraphSplitRatios
    if not ratios:
        return
    if len(ratios) != ipus_per_replica:
        yield "The size of virtualGraphSplitRatios must be equal to num_ipus."
    if not all(0 < r < 1 for r in ratios):
        yield "virtualGraphSplitRatios[i] must be in the rage (0, 1)."
    if not math.isclose(sum(ratios), 1, rel_tol=1e-5):
        yield f"Sum of virtualGraphSplitRatios[i] must be equal to 1.0, but found {number_text(sum(ratios))}."
