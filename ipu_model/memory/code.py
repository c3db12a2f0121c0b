"""Memory of a tile that is not tensor data: code, vertex state, stacks. Sizes per item, from measured executables."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_model.costs.rule import Superstep
from ipu_model.pricing import Priced

STACK_BYTES = 6 * 0xC0 + 0x80  # six workers and the supervisor; more leaves no room in published totals of one layer
VERTEX_CODE_BYTES = {"ConvPartial": 1400, "Reduce": 600, "default": 350}
VERTEX_STATE_BYTES = 28
WORKLIST_BYTES = 36  # six entries
MESSAGE_BYTES = 4
CONTROL_BYTES = 24  # of the program itself
CONTROL_BYTES_PER_STEP = 16
CONTROL_BYTES_PER_CALL = 8
HOST_EXCHANGE_BYTES = 120
GLOBAL_EXCHANGE_BYTES = 160
BYTES_PER_MESSAGE = 512
BASE_MESSAGES = 16

CATEGORIES = (
    "variables", "vertexCode", "vertexInstanceState", "vertexFieldData", "controlCode", "internalExchangeCode",
    "hostExchangeCode", "globalExchangeCode", "stack",
)  # fmt: skip


@dataclass(frozen=True)
class VertexType:
    """A codelet in the program: how many instances, on how many tiles, and its bytes over all tiles."""

    name: str
    instances: int
    tiles: int
    code_bytes: int
    state_bytes: int
    field_bytes: int


def code_size(vertex: str) -> int:
    """Bytes of the machine code of a kind of vertex; each tile that runs it holds the code once."""
    return next((n for key, n in VERTEX_CODE_BYTES.items() if key in vertex), VERTEX_CODE_BYTES["default"])


def code_by_tile(priced: Priced, tiles: int) -> tuple[dict[str, np.ndarray], list[VertexType]]:
    """Bytes per category, IPU and tile, and the codelets; equal operations count once when outlined."""
    ipus = max(1, priced.placement.ipus)
    by = {c: np.zeros((ipus, tiles)) for c in CATEGORIES[1:]}
    by["stack"] += STACK_BYTES
    by["controlCode"] += CONTROL_BYTES
    types: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for step, ipu, outlined, control in _distinct(priced):
        by["controlCode"][ipu] += control
        if not outlined:
            _add(step, by, types, ipu, tiles)
    for (ipu, name), (_, most, _, _) in types.items():
        by["vertexCode"][ipu, :most] += code_size(name)
    return by, _types(types)


def _distinct(priced: Priced):
    """Each superstep of the program with its IPU, whether an equal one came before, and its control code."""
    seen: set[tuple[Any, ...]] = set()
    outline = priced.context.options.outlining
    for at, step in enumerate(priced.program.steps):
        if priced.into[at] >= 0:
            continue
        ipu = priced.ipus[at]
        for k, s in enumerate((*priced.extras.get(at, ()), *priced.prices[at].supersteps)):
            key = (id(step.op), ipu, k)
            again = outline and key in seen
            seen.add(key)
            yield s, ipu, again, CONTROL_BYTES_PER_CALL if again else CONTROL_BYTES_PER_STEP


def _add(
    s: Superstep, by: dict[str, np.ndarray], types: dict[tuple[int, str], list[int]], ipu: int, tiles: int
) -> None:
    used = min(max(1, int(s.tiles)), tiles)
    if s.vertex:
        instances = max(int(s.vertices), used)
        state = instances / used * VERTEX_STATE_BYTES
        by["vertexInstanceState"][ipu, :used] += state
        fields = WORKLIST_BYTES if "Conv" in s.vertex else 0
        by["vertexFieldData"][ipu, :used] += fields
        row = types[ipu, s.vertex]
        row[0] += instances
        row[1] = max(row[1], used)
        row[2] += int(state * used)
        row[3] += fields * used
    if s.received:
        kind = "hostExchangeCode" if not _zero(s.host) else "globalExchangeCode" if not _zero(s.inter_ipu) else ""
        if kind:
            by[kind][ipu] += HOST_EXCHANGE_BYTES if kind.startswith("host") else GLOBAL_EXCHANGE_BYTES
        else:
            by["internalExchangeCode"][ipu, :used] += exchange_code(float(s.received), used)


def exchange_code(received: float, tiles: int) -> float:
    """Bytes on each tile of the code of one exchange that brings `received` bytes to `tiles` tiles."""
    return MESSAGE_BYTES * (BASE_MESSAGES + min(256, received / tiles / BYTES_PER_MESSAGE))


def _zero(x: Any) -> bool:
    return isinstance(x, (int, float)) and x == 0


def _types(types: dict[tuple[int, str], list[int]]) -> list[VertexType]:
    merged: dict[str, list[int]] = {}
    for (_, name), (instances, most, state, fields) in types.items():
        row = merged.setdefault(name, [0, 0, 0, 0, 0])
        row[0] += instances
        row[1] = max(row[1], most)
        row[2] += code_size(name) * most
        row[3] += state
        row[4] += fields
    rows = [VertexType(n, *r) for n, r in merged.items()]
    return sorted(rows, key=lambda v: (-v.code_bytes - v.state_bytes, v.name))
