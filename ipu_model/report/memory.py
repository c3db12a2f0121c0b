"""The memory part of the report: tiles by category, the peak explained, variables."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from ipu_model.memory import Liveness
from ipu_model.memory.code import CATEGORIES
from ipu_model.memory.liveness import NOTHING, need_of
from ipu_model.memory.storage import Storage
from ipu_model.pricing import Priced
from ipu_model.report.model import Memory, Variable

MOST_VARIABLES = 4000
GAP = "gaps around interleaved memory"
TEMPORARIES = "temporaries of the operation"
KIND_BY_ROLE = {"weight": "weights", "optimizer_state": "optimizer state", "input": "inputs", "constant": "constants"}


def memory_of(priced: Priced, live: Liveness, code: dict[str, Any]) -> Memory:
    """Bytes by tile and category, and the variables that make the peak."""
    m = priced.context.target.machine
    fixed = sum(code.values(), np.zeros_like(live.always))
    total = live.always + live.peak + fixed
    gaps = live.addresses(fixed, m)
    variables = _variables(priced, live)
    peak = _peak_parts(priced, live)
    at = live.peak_ipu, live.peak_tile
    peak["code, vertices and stack"] = int(fixed[at])
    if gaps[at] - total[at] >= 1:
        peak[GAP] = int(gaps[at] - total[at])
    step = live.peak_step if priced.program.steps else -1
    # averages of code sizes are no whole bytes: each category is rounded up, and totals are sums of what is shown
    categories = {"variables": _whole(live.always + live.peak), **{c: _whole(code[c]) for c in CATEGORIES[1:]}}
    sums = sum(categories.values(), np.zeros_like(_whole(total)))
    passing = _whole(live.peak)
    return Memory(
        bytes_per_tile=m.tile_memory,
        tiles_per_ipu=m.tiles,
        categories={name: tuple(by_tile.tolist()) for name, by_tile in categories.items()},
        always_by_tile=tuple((sums - passing).tolist()),
        not_always_by_tile=tuple(passing.tolist()),
        total_by_tile=tuple(sums.tolist()),
        including_gaps_by_tile=tuple(np.maximum(sums, _whole(gaps)).tolist()),
        peak_step=step,
        peak_tile=live.peak_ipu * m.tiles + live.peak_tile,
        peak_at=_where(priced, step),
        peak_parts=peak,
        variables=variables,
        variable_count=len(live.pieces),
    )


def _whole(by_tile: np.ndarray) -> np.ndarray:
    """Bytes of all IPUs in turn, rounded up."""
    return np.ceil(by_tile).astype(np.int64).ravel()


def _where(priced: Priced, step: int) -> str:
    if step < 0:
        return ""
    s = priced.program.steps[step]
    return f"{s.label} ({s.scope.phase})"


def kind_of(priced: Priced, piece: Storage) -> str:
    """What a variable is for: a role, or the phase that made it."""
    v = priced.program.values[piece.value]
    if v.role in KIND_BY_ROLE:
        return KIND_BY_ROLE[v.role]
    if piece.always:
        return "pipeline stash"
    maker = priced.makers.get(piece.value)
    if maker is None:
        return "loop state"
    phase = priced.program.steps[maker].scope.phase
    return {"forward": "activations", "backward": "gradients", "update": "update temporaries"}[phase]


def name_of(priced: Priced, value: int) -> str:
    """Name of a value: its own, or that of the step that made it."""
    v = priced.program.values[value]
    if v.name:
        return v.name
    at = priced.makers.get(value)
    if at is None:
        return f"loop value {value}"
    s = priced.program.steps[at]
    return s.path if s.path == s.op.primitive else f"{s.path}/{s.op.primitive}"


def _peak_parts(priced: Priced, live: Liveness) -> dict[str, int]:
    """Bytes on the fullest tile at the peak, by kind of variable: while it computes, or when it writes its results."""
    at = live.peak_step
    made = frozenset(priced.program.steps[at].outputs if priced.program.steps else ())
    need = need_of(priced, at, priced.prices[at]) if priced.program.steps else NOTHING
    before: dict[str, float] = defaultdict(float)
    after: dict[str, float] = defaultdict(float)
    for k, piece in enumerate(live.pieces):
        if piece.ipu == live.peak_ipu and (piece.always or piece.first <= at <= piece.last):
            size, kind = live.bytes_on(k, live.peak_tile), kind_of(priced, piece)
            after[kind] += size
            if not need.computing or piece.always or piece.first < at or piece.value not in made:
                before[kind] += size
    before[TEMPORARIES], after[TEMPORARIES] = need.computing, need.finishing
    parts = max(before, after, key=lambda p: sum(p.values()))
    return {k: int(v) for k, v in sorted(parts.items(), key=lambda kv: -kv[1]) if v >= 1}


def _variables(priced: Priced, live: Liveness) -> tuple[Variable, ...]:
    """The largest variables; those beyond the limit are left out, never those live at the peak's top."""
    order = sorted(range(len(live.pieces)), key=lambda k: -live.total_bytes(k))[:MOST_VARIABLES]
    rows: list[Variable] = []
    for k in order:
        piece = live.pieces[k]
        rows.append(
            Variable(
                name_of(priced, piece.value), kind_of(priced, piece),
                str(priced.program.values[piece.value].tensor), int(live.total_bytes(k)), int(live.bytes_on(k, 0)),
                piece.ipu, piece.always, piece.first, piece.last,
                min(live.spreads[k].tiles, priced.context.target.machine.tiles),
            )
        )  # fmt: skip
    return tuple(rows)
