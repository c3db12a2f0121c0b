"""Look-ups in a table and updates of it: splits, cycles and memory that the specification's page works out."""

from __future__ import annotations

import pytest

from ipu_model import target
from ipu_model.planner.embedding import memory, plan_embedding, slice_cycles, update_cycles

MK1, MK2 = target.get("mk1"), target.get("mk2")


@pytest.mark.parametrize(
    ("rows", "columns", "lookups", "first", "second"),
    [
        (100000, 200, 1440, (100, 12, 1), (100, 14, 1)), (100000, 200, 11520, (100, 12, 1), (100, 14, 1)),
        (1000, 200, 1440, (100, 3, 4), (100, 2, 7)), (100, 20, 100, (10, 7, 5), (10, 7, 5)),
        (10000, 200, 1440, (100, 12, 1), (100, 14, 1)), (50000, 1024, 384, (171, 7, 1), (64, 23, 1)),
        (30522, 1024, 512, (171, 7, 1), (86, 17, 1)), (1000, 100, 11520, (50, 1, 24), (50, 2, 14)),
    ],
)  # fmt: skip
def test_splits_of_the_page(rows, columns, lookups, first, second):
    for chip, expected in ((MK1, first), (MK2, second)):
        found = plan_embedding(rows, columns, lookups, chip).detail
        assert (found.columns, found.rows, found.lookups) == expected
        assert found.tiles <= chip.tiles


@pytest.mark.parametrize(
    ("chip", "lookups", "computed", "published"),
    [
        (MK1, 1440, 155_252, 154_767), (MK2, 1440, 155_366, 155_289),
        (MK1, 11520, 1_151_492, 1_154_069), (MK2, 11520, 1_148_966, 1_151_828),
    ],
)  # fmt: skip
def test_worked_rows(chip, lookups, computed, published):
    plan = plan_embedding(100000, 200, lookups, chip)
    assert plan.cycles(chip) == computed == pytest.approx(published, rel=4e-3)


@pytest.mark.parametrize(
    ("chip", "lookups", "second", "total", "highest"),
    [
        (MK1, 1440, 120, 57_547_254, 77_080), (MK2, 1440, 103, 60_339_282, 71_320),
        (MK1, 11520, 960, 164_355_622, 160_792), (MK2, 11520, 823, 183_632_850, 144_408),
    ],
)  # fmt: skip
def test_memory_of_the_rows(chip, lookups, second, total, highest):
    found = plan_embedding(100000, 200, lookups, chip).detail
    assert found.second == second
    bytes_, top = memory(found, 100000, 200, lookups, "half", chip.machine)
    assert bytes_ == pytest.approx(total, rel=1e-3)
    assert top == highest


def test_the_update_is_one_workers_work():
    assert update_cycles(2000, 2, MK1.machine, "half") - update_cycles(1000, 2, MK1.machine, "half") == 72 * 1000
    assert update_cycles(1440, 2, MK1.machine, "half") == 103_788
    assert slice_cycles(1440, 2, MK1.machine, "half") == 31_776
    # halves go in pairs: 23 look-ups on a worker take as long as 24
    assert slice_cycles(138, 2, MK1.machine, "half") == slice_cycles(144, 2, MK1.machine, "half")
    assert slice_cycles(138, 2, MK1.machine, "float") < slice_cycles(144, 2, MK1.machine, "float")


def test_reading_alone_is_cheaper():
    assert "update" not in plan_embedding(1000, 64, 100, MK2, update=False).quantities


def test_look_ups_shared_by_groups_of_tiles_pay_for_their_copies_of_the_table():
    one, several = plan_embedding(100000, 200, 1440, MK2), plan_embedding(1000, 200, 1440, MK2)
    assert "table" not in one.quantities
    copies = several.detail.lookups
    others = several.tile_bytes["table"] * (copies - 1) / copies
    assert several.quantities["table"] == pytest.approx(others / 4)
    assert several.quantities["added_copies"] > 2 * others / 4  # as floats
    assert several.cycles(MK2) < one.cycles(MK2)
    assert "added_copies" not in plan_embedding(1000, 200, 1440, MK2, update=False).quantities


def test_few_look_ups_pay_for_the_map_of_their_own_indices():
    # 36 turns of 300 bundles serve the 32 indices that each tile holds of many; four are one turn of each worker
    assert plan_embedding(100000, 200, 1440, MK2).quantities["index_map"] == 6 * 6 * 300
    assert plan_embedding(100000, 200, 4, MK2).quantities["index_map"] == 6 * 1 * 300
