"""CTC loss and gradient: two loops over time on tiles that share the label, then a reduction of the gradient."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from ipu_model.checks import check_choice, check_sizes
from ipu_model.planner.conv_params import cdiv
from ipu_model.planner.conv_splits import in_order, useful_splits
from ipu_model.planner.plan import Plan
from ipu_model.planner.reduction.plan import meet
from ipu_model.planner.reduction.stages import Partials, Stage
from ipu_model.planner.reduction.vertices import SIZES, Kind
from ipu_model.planner.steps import loop_turn
from ipu_model.target import Machine, Target

ALPHA, GRADIENT = 44, 84  # worker bundles per label position and time step
BLANK_ALPHA, BLANK_GRADIENT = 17, 34  # the same for a last blank, as the planner counts it
EXCHANGE, SYNC = 100, 90  # the planner's estimates of an exchange and a sync
SHARE = 0.6  # of tile memory that a plan may take
PARTIALS = 4  # bytes of an alpha, a beta or a gradient of a label part
AROUND = 3000.0  # launch, log-softmax, fills and the last elementwise step; few classes


@dataclass(frozen=True)
class CtcPlan:
    """How sequences, time and label are split."""

    # parts of each
    batch: int
    time: int
    label: int
    blank: bool  # whether the last blank has a tile of its own
    # largest share of each that a tile has
    sequences: int
    steps: int
    positions: int
    stages: tuple[Stage, ...] = ()  # the reduction of the gradient over the parts of the label

    @property
    def parts(self) -> int:
        """Tiles that share a label."""
        return self.label + self.blank

    @property
    def tiles(self) -> int:
        """Tiles in use: the parts of batch, time and label multiplied."""
        return self.batch * self.time * self.parts

    @property
    def turns(self) -> int:
        """Iterations of each loop: alpha runs forward over half of the time while beta runs backward over the other."""
        return self.steps * cdiv(self.time, 2)


def plan_ctc(batch: int, time: int, label: int, classes: int, target: Target, data: str = "float") -> Plan:
    """Plan the loss and gradient of `batch` sequences of `time` steps against labels of at most `label` symbols."""
    check_sizes("CTC loss", batch=batch, time=time, label=label, classes=classes)
    check_choice("CTC loss", "data", data)
    return _plan(batch, time, label, classes, target.machine, data)


@functools.lru_cache(maxsize=256)
def _plan(batch: int, time: int, label: int, classes: int, machine: Machine, data: str) -> Plan:
    found = split(batch, time, label, classes, machine, data)
    stages = tuple(_gradient(found, batch, time, classes, machine, data))
    found = replace(found, stages=stages)
    rounds = cdiv(found.sequences, machine.workers)
    size = SIZES[data]
    quantities = {
        "loops": float(found.turns * machine.workers * (ALPHA + GRADIENT) * found.positions * rounds),
        "turns": 2 * found.turns * loop_turn(machine),
        "reduction": sum(sum(s.sets) for s in stages),  # loss and gradient share compute sets, and wait for each other
        "received": sum(s.received for s in stages) / machine.exchange_bytes,
        # the logits go to all parts of the label, and a copy of them beside it
        "logits": found.steps * classes * size / 2 * found.sequences,
        "around": AROUND,
    }
    tile = _tile_bytes(found, classes, size, 2 * found.positions)
    return Plan(
        "ctc", quantities, frozenset({"received"}), exact=frozenset(quantities), method="ctc", tiles=found.tiles,
        temporary_bytes=float(max([tile, *(s.held.max() for s in stages)])),
        tile_bytes={"inputs": float(found.steps * classes * size * found.sequences)}, detail=found,
    )  # fmt: skip


def split(batch: int, time: int, label: int, classes: int, machine: Machine, data: str) -> CtcPlan:
    """The split with the fewest planned cycles, then temporary bytes, then tiles."""
    sizes = (batch, time, label)
    lists = [useful_splits(n, machine.tiles) for n in sizes]
    (b, bb), (t, tp), (k, lp) = (np.repeat(a, 2, axis=1) for a in in_order(lists, sizes, machine.tiles))
    blank = np.tile([0, 1], len(b) // 2)
    fits = b * t * (k + blank) <= machine.tiles
    b, bb, t, tp, k, lp, blank = (x[fits] for x in (b, bb, t, tp, k, lp, blank))
    exact = label == lp * k
    cycles = _cycles(bb, t, tp, k, lp, exact & (blank == 0), machine)
    temporary = bb * (tp * classes * (SIZES[data] + PARTIALS) + 2 * lp + 4 * (2 * lp + exact) * PARTIALS)
    used = b * t * (k + blank)
    small = temporary <= SHARE * machine.tile_memory
    order = np.lexsort((used, temporary, cycles, ~small))  # where nothing fits the fastest is taken
    i = int(order[0])
    return CtcPlan(int(b[i]), int(t[i]), int(k[i]), bool(blank[i]), int(bb[i]), int(tp[i]), int(lp[i]))


def _cycles(
    bb: np.ndarray, t: np.ndarray, tp: np.ndarray, k: np.ndarray, lp: np.ndarray, last: np.ndarray, machine: Machine
) -> np.ndarray:
    """Cycles that the planner believes both loops to take."""
    steps, serial = tp * (t + t % 2) // 2, -(-bb // machine.workers)
    many, long = k > 1, t > 2
    sent = (lp * long + 2 * many + 2 * (many & long)) * PARTIALS // 4
    alpha = machine.workers * (ALPHA * lp + BLANK_ALPHA * last) + EXCHANGE + sent + SYNC
    gradient = (
        machine.workers * (GRADIENT * lp + BLANK_GRADIENT * last) + EXCHANGE + (2 + 4 * lp) * PARTIALS // 4 + SYNC
    )
    return steps * serial * (alpha + gradient)


def _gradient(found: CtcPlan, batch: int, time: int, classes: int, machine: Machine, data: str) -> list[Stage]:
    """Stages that add the gradients of the label parts, as logarithms, on the tiles of the logits."""
    intervals: list[list[tuple[int, int]]] = []
    for first in range(0, batch, found.sequences):
        for part in range(found.time):
            a, b = part * found.steps, min(time, (part + 1) * found.steps)
            mine = [
                ((seq * time + a) * classes, (seq * time + b) * classes)
                for seq in range(first, min(batch, first + found.sequences))
                if b > a
            ]
            intervals += [mine] * found.parts
    columns = batch * time * classes
    if found.parts < 2 or not intervals:
        return []
    rows = cdiv(time, min(found.time * found.parts, time))
    while rows * classes * SIZES[data] % 4:
        rows += 1
    width = rows * found.sequences * classes
    places = [*range(0, columns, width), columns]
    kind = Kind("LOG_ADD", "float", "float")
    return meet(Partials.of(intervals, columns), kind, machine.tiles, 0, data, places)


def _tile_bytes(found: CtcPlan, classes: int, size: int, ex: int) -> int:
    """Bytes of a tile: logits and gradient, alphas or betas, temporaries, labels and counters."""
    rows = found.steps
    kept = rows * classes * (size + PARTIALS) + rows * ex * PARTIALS + 5 * ex * PARTIALS
    return found.sequences * (kept + 36 + 4 * (found.positions + 2) + 16)


CODE = 830.0  # bytes of exchange and control code on every tile; 788 to 864 in the table
MESSAGE = 9


def memory(plan: CtcPlan, batch: int, time: int, classes: int, data: str, machine: Machine) -> tuple[float, float]:
    """Total bytes, and the highest address used on a tile; this benchmark compiles no vertices."""
    size = SIZES[data]
    label, blank = (_tile_bytes(plan, classes, size, ex) for ex in (2 * plan.positions, 1))
    tiles = np.zeros(machine.tiles)
    tile = np.array(([label] * plan.label + [blank] * plan.blank) * (plan.batch * plan.time))
    tiles[: len(tile)] = tile
    gradient = np.zeros(machine.tiles)
    gradient[: len(tile)] = plan.steps * classes * PARTIALS * plan.sequences
    for stage in plan.stages:
        tiles = np.maximum(tiles, gradient + stage.held)
    total = float(tiles.sum()) + 3.0 * time * classes * size * batch + CODE * machine.tiles
    return total + MESSAGE * sum(s.messages for s in plan.stages), float(tiles.max()) + CODE
