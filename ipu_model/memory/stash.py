"""What a pipeline keeps of the micro-batches that follow: a stage reads what an earlier one made cycles before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ipu_model.memory.storage import Allocation, Storage
from ipu_model.pricing import Priced
from ipu_model.schedule.pipeline import last_stage, stage_of
from ipu_model.walk.scope import UPDATE

Reads = dict[int, dict[int, list[tuple[int, int]]]]  # by storage and IPU: steps that read or make it, and their stages


def stashed(priced: Priced, kept: Sequence[Storage], memory: Allocation) -> Iterator[Storage]:
    """A stash for each piece that a later stage of an IPU uses: one more copy for each stage between.

    In cycle k stage s works on micro-batch k - s, so that stage t reads what stage s made ``t - s`` cycles before.
    What an IPU computes again it need not stash, but what it was sent: of `kept` are the pieces that it makes, of
    all of the memory those that others send.
    """
    if not (priced.placement.pipelined and priced.placement.ipus > 1):
        return
    used, end = _uses(priced, memory.root), len(priced.program.steps)
    for piece, own in ((piece, own) for own, pieces in ((True, kept), (False, memory.pieces)) for piece in pieces):
        if piece.always or _outside(priced, piece):
            continue
        for ipu, uses in used.get(piece.value, {}).items():
            if own != (ipu == piece.ipu):
                continue
            stages = [stage for at, stage in uses if piece.first <= at <= piece.last]
            copies = max(stages, default=0) - next(iter(stages), 0)
            if copies > 0:
                yield Storage(piece.value, 0, end, True, ipu, copies)


def _uses(priced: Priced, root: Sequence[int]) -> Reads:
    last = last_stage(priced)
    found: Reads = defaultdict(lambda: defaultdict(list))
    for at, step in enumerate(priced.program.steps):
        if step.scope.phase == UPDATE or step.unit not in priced.placement.nodes:  # glue runs where it is read
            continue
        stage = stage_of(priced, at, last)
        for value in (*step.inputs, *step.outputs):
            if value >= 0:
                found[root[value]][priced.ipus[at]].append((at, stage))
    return found


def _outside(priced: Priced, piece: Storage) -> bool:
    """Whether a piece is none of one micro-batch: accumulated gradients live from one to the next."""
    frames, steps = priced.program.frames, priced.program.steps
    loops = [f for f in frames if f.kind == "repeat" and f.begin <= min(piece.first, len(steps) - 1) < f.end]
    inner = priced.program.values[piece.value].made_in
    while inner > 0 and not frames[inner].is_loop:
        inner = frames[inner].parent
    has_loop = any(f.is_loop for f in frames)
    return has_loop and (inner <= 0 or not loops or piece.last >= loops[0].end)
