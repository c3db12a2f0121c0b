"""CTC: the split, the loops and the reduction of the gradient that the specification's page works out."""

from __future__ import annotations

import itertools

import pytest

from ipu_model import target
from ipu_model.planner.ctc import memory, plan_ctc, split
from ipu_model.planner.reduction.stages import blocks

MK1, MK2 = target.get("mk1"), target.get("mk2")
LONG, WIDE = (1, 1200, 480, 5), (1, 375, 200, 36)


@pytest.mark.parametrize("chip", [MK1, MK2])
@pytest.mark.parametrize("row", [LONG, WIDE])
def test_one_sequence_is_halved_in_time_and_has_a_tile_for_each_symbol_and_the_last_blank(chip, row):
    plan = plan_ctc(*row, chip).detail
    assert (plan.time, plan.label, plan.positions, plan.blank) == (2, row[2], 1, True)
    assert plan.tiles == 2 * (row[2] + 1)


@pytest.mark.parametrize(
    ("chip", "row", "first", "second", "last"),
    [
        (MK1, LONG, 52_416, 62_352, 4_182), (MK2, LONG, 52_416, 52_416, 5_010),
        (MK1, WIDE, 175_836, 7_920, 23_064), (MK2, WIDE, 168_576, 7_920, 28_584),
    ],
)  # fmt: skip
def test_the_gradient_meets_in_blocks_that_few_workers_share(chip, row, first, second, last):
    middle, output = plan_ctc(*row, chip).detail.stages
    assert middle.sets == (first, second)
    assert output.sets == (last, 0)


def test_blocks_of_the_long_rows_gradient():
    assert blocks(481, 142, 2373) == [18] * 26 + [13]
    assert blocks(481, 144, 2373) == [17] * 28 + [5]
    middle, output = plan_ctc(*LONG, MK1).detail.stages
    assert (middle.tiles, middle.received, output.tiles) == (1170, 18 * 142 * 4, 600)
    middle = plan_ctc(*WIDE, MK1).detail.stages[0]
    assert (middle.tiles, middle.received) == (1149, 14_472)


@pytest.mark.parametrize(
    ("chip", "row", "computed"),
    [(MK1, LONG, 861_596), (MK2, LONG, 864_122), (MK1, WIDE, 457_434), (MK2, WIDE, 459_814)],
)
def test_worked_rows(chip, row, computed):
    assert plan_ctc(*row, chip).cycles(chip) == pytest.approx(computed, rel=2e-3)


@pytest.mark.parametrize(("chip", "row", "highest"), [(MK1, LONG, 29_692), (MK1, WIDE, 56_568), (MK2, WIDE, 56_616)])
def test_memory_of_the_fullest_tile(chip, row, highest):
    batch, time, _, classes = row
    total, top = memory(plan_ctc(*row, chip).detail, batch, time, classes, "float", chip.machine)
    assert top == pytest.approx(highest, rel=2e-3)
    assert top * chip.tiles > total > top * chip.tiles / 4


def test_the_split_is_the_best_of_all_by_brute_force():
    """The search tries useful splits only; none of the others is better."""
    batch, time, label, classes = 3, 7, 5, 4
    chip = MK1.replace(tiles=40)
    best = None
    for b, t, k, s in itertools.product(range(1, 4), range(1, 8), range(1, 6), (0, 1)):
        bb, tp, lp = -(-batch // b), -(-time // t), -(-label // k)
        if b * t * (k + s) > 40:
            continue
        x = int(lp * k == label and not s)
        e1 = (lp if t > 2 else 0) + (2 if k > 1 else 0) + (2 if k > 1 and t > 2 else 0)
        step = 6 * (44 * lp + 17 * x) + 190 + e1 + 6 * (84 * lp + 34 * x) + 190 + 2 + 4 * lp
        cycles = tp * (t + t % 2) // 2 * -(-bb // 6) * step
        temporary = bb * (tp * classes * 8 + 2 * lp + 4 * (2 * lp + (lp * k == label)) * 4)
        best = min(best or (cycles, temporary, 999), (cycles, temporary, b * t * (k + s)))
    found = split(batch, time, label, classes, chip.machine, "float")
    assert best is not None
    assert found.tiles == best[2]


def test_ctc_needs_more_time_when_tiles_run_out():
    assert plan_ctc(1, 100, 4000, 5, MK1).cycles(MK1) > plan_ctc(1, 100, 400, 5, MK1).cycles(MK1)
    assert plan_ctc(64, 100, 40, 5, MK1).cycles(MK1) > plan_ctc(1, 100, 40, 5, MK1).cycles(MK1)
