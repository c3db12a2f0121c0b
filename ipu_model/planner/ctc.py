"""CTC loss and gradient: loops over time on tiles that share the label."""

from __future__ import annotations

from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.plan import Plan
from ipu_model.target import Target

READ_WRITE, ARITHMETIC, CONTROL = 8, 34, 2  # worker cycles per label position
ALPHA = READ_WRITE + ARITHMETIC + CONTROL
GRADIENT = ALPHA + 6 + ARITHMETIC
EXCHANGE, SYNC = 100, 90


def plan_ctc(batch: int, time: int, label: int, classes: int, target: Target) -> Plan:
    """Plan the loss and gradient of `batch` sequences of `time` steps against labels of at most `label`.

    Time is halved (alpha runs forward while beta runs backward), the label is split as far as tiles reach; sequences
    that share a tile run on its workers.
    """
    best = None
    for batch_split in range(1, batch + 1):
        for time_split in (1, 2):
            parts = min(label, max(1, target.tiles // (batch_split * time_split)))
            share = cdiv(label, parts)
            turns = cdiv(cdiv(batch, batch_split), target.workers)
            steps = cdiv(time, time_split) * (time_split + time_split % 2) // 2
            alpha = 6 * ALPHA * share * turns + EXCHANGE + 2 * (parts > 1) + SYNC
            gradient = 6 * GRADIENT * share * turns + EXCHANGE + 2 + 4 * share + SYNC
            tiles = batch_split * time_split * cdiv(label, share)
            option = (steps * (alpha + gradient), share * turns, tiles, steps, parts)
            best = option if best is None or option[:3] < best[:3] else best
    assert best is not None
    loops, _, tiles, steps, parts = best
    quantities = {"loops": float(loops), "steps": 2.0 * steps, "class_steps": float(time * classes * batch)}
    per_tile = float(cdiv(time, 2) * classes * 4)
    return Plan(
        "ctc",
        quantities,
        exact=frozenset({"loops"}),
        method="ctc",
        tiles=tiles,
        temporary_bytes=3 * per_tile,
        tile_bytes={"inputs": per_tile},
        detail={"parts": parts, "steps": steps},
    )
