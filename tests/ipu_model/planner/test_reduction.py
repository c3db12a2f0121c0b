"""Reductions as the library runs them: worked rows of the specification's page, estimators, stages, placement."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_model import target
from ipu_model.planner.reduction import plan_reduction
from ipu_model.planner.reduction.held import View, common_order, groups, linear_starts
from ipu_model.planner.reduction.vertices import Kind, Work, continuous, form, single, strided
from ipu_model.planner.reduction.workers import on_workers
from ipu_model.published.reductions import memory

MK1, MK2 = target.get("mk1"), target.get("mk2")
HALF, FLOAT = Kind("ADD", "half", "float"), Kind("ADD", "float", "float")
BERT_1, BERT_4 = ((16, 4, 16, 32, 8), (1, 3)), ((128, 16, 8, 16), (0, 2))
L0A0, L0, CNV = (((4, n, 8), (1,)) for n in (3136, 12544, 25088))


# Section 2.8: tile cycles of the local sets and of each later set, bytes received, cycles left over for launch,
# exchange starts and the copy on a tile, and whether that copy happens.
WORKED = [
    (MK1.replace(tiles=1024), BERT_1, "ADD", (720,), (264,), (128,), 866, False),
    (MK1, BERT_4, "ADD", (498,), (420, 360), (272, 384), 1004, False),
    (MK2, BERT_4, "ADD", (504,), (432, 372), (288, 416), 1103, False),
    (MK1, L0A0, "ADD", (336,), (420, 432), (272, 576), 1211, True),
    (MK2, L0A0, "ADD", (324,), (420, 468), (272, 672), 1088, False),
    (MK1, L0, "ADD", (732,), (420, 432), (272, 576), 1329, True),
    (MK2, L0, "ADD", (720,), (420, 480), (272, 704), 1493, True),
    (MK1, CNV, "SQUARE_ADD", (816,), (420, 432), (272, 576), 1352, True),
    (MK2, CNV, "SQUARE_ADD", (792,), (420, 480), (272, 704), 1104, False),
]


@pytest.mark.parametrize(("chip", "row", "operation", "local", "later", "received", "left", "rotated"), WORKED)
def test_worked_rows(chip, row, operation, local, later, received, left, rotated):
    plan = plan_reduction(*row, chip, "half", operation, as_table=True)
    first, *rest = plan.detail.stages
    assert plan.detail.rotated == rotated
    assert first.compute - 330 * rotated == sum(local)
    assert tuple(s.compute for s in rest) == later
    assert tuple(s.received for s in rest) == received
    published = sum(local) + sum(later) + sum(received) / 4 + left
    # a rotated tile need not be the slowest, and its copy took between 207 and 393
    assert plan.cycles(chip) == pytest.approx(published, abs=130 if rotated else 15)


def test_a_block_of_seventeen_sources_by_hand():
    block = Work(4, 17)
    assert strided(block, FLOAT) == 70
    assert on_workers([block], FLOAT).cycles == 420


def test_tiles_that_intermediate_results_start_at():
    starts = [
        (MK1.replace(tiles=1024), BERT_1, "ADD", 673), (MK1, BERT_4, "ADD", 1014), (MK2, BERT_4, "ADD", 54),
        (MK1, L0A0, "ADD", 1110), (MK2, L0A0, "ADD", 1238), (MK1, L0, "ADD", 217), (MK2, L0, "ADD", 665),
        (MK1, CNV, "SQUARE_ADD", 835), (MK2, CNV, "SQUARE_ADD", 707),
    ]  # fmt: skip
    for chip, row, operation, start in starts:
        assert plan_reduction(*row, chip, "half", operation).detail.start == start


def test_rows_of_one_reduction_go_to_six_workers_and_meet_again():
    sets = on_workers([Work(8, 32)], HALF)
    assert sets.first == [48, 48, 46, 46, 46, 46]
    assert sets.second == [72]
    assert sets.parts == 48


@pytest.mark.parametrize(("rows", "split"), [(5, False), (17, True)])
def test_a_block_of_five_rows_is_not_split(rows, split):
    logs = Kind("LOG_ADD", "float", "float")
    sets = on_workers([Work(144, rows)], logs)
    assert bool(sets.second) == split
    if not split:
        assert sets.cycles == 6 * (24 + 6 * 72 + 23 * 5 * 144 // 2) == 52_416
    else:
        assert 6 * max(sets.first) == 32_544
        assert 6 * sets.second[0] == 62_352


def test_the_continuous_estimator_of_the_table_receives_one_output_less():
    columns = [Work(1, 100)] * 4
    assert form(columns, FLOAT) == "continuous"
    assert continuous(columns, FLOAT) - continuous(columns, Kind("ADD", "float", "float", as_table=True)) == 12 + 50
    assert continuous([Work(1, 99)] * 2, FLOAT) == 17 + 2 * (12 + 49) + 2


def test_the_strided_estimator_looks_at_the_stride_of_the_buffer():
    assert strided(Work(4, 10, stride=4), HALF) == 24 + 6 + 10
    assert strided(Work(4, 10, stride=6), Kind("ADD", "float", "float")) == 24 + 12 + 20


def test_a_short_column_costs_a_fixed_loop():
    assert single(Work(1, 3), FLOAT) == 32
    assert single(Work(1, 21), Kind("ADD", "float", "half")) == 26 + 10 + 1 + 5


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 15), st.integers(1, 60), st.data())
@settings(max_examples=150, deadline=None)
def test_boxes_hold_the_columns_of_each_element(shape, mask, size, data):
    view = View.of(shape, [d for d in range(len(shape)) if mask >> d & 1])
    start = data.draw(st.integers(0, view.elements - 1))
    end = min(view.elements, start + size)
    found = np.zeros(view.columns, dtype=int)
    for column, count, values in view.boxes(start, end):
        found[column : column + count] += values
    # what NumPy says: reduce a tensor of ones that is zero outside the stretch
    ones = np.zeros(view.elements, dtype=int)
    ones[start:end] = 1
    reduced = tuple(d for d in range(len(shape)) if mask >> d & 1)
    if view.elements > 1:
        assert found.tolist() == ones.reshape(shape).sum(axis=reduced).ravel().tolist()
        counts = np.bincount(view.columns_at(np.arange(start, end)), minlength=view.columns)
        assert counts.tolist() == found.tolist()


def test_groups_are_columns_that_lie_alike():
    [[whole]] = groups(np.array([4, 5, 6, 7, 0, 1, 2, 3] * 3), [24])
    assert whole.columns.tolist() == [4, 5, 6, 7, 0, 1, 2, 3]
    assert (whole.work.out, whole.work.rows, whole.work.stride) == (8, 3, 8)
    [[late, early]] = groups(np.array([2, 3, 0, 1, 2, 3]), [6])
    assert (late.work.rows, early.work.rows) == (2, 1)
    [[runs]] = groups(np.array([0, 0, 0, 1, 1, 1]), [6])
    assert (runs.work.out, runs.work.inner, runs.work.rows) == (2, 3, 1)


def test_stretches_that_lie_one_after_another_are_grouped_each_for_itself():
    together = groups(np.array([0, 1, 2, 3, 2, 3, 0, 1, 2, 3, 1, 1]), [2, 4, 4, 2])
    apart = [[0, 1], [2, 3, 2, 3], [0, 1, 2, 3], [1, 1]]
    alone = [groups(np.array(columns), [len(columns)])[0] for columns in apart]
    assert [[(g.columns.tolist(), g.work) for g in own] for own in together] == [
        [(g.columns.tolist(), g.work) for g in own] for own in alone
    ]
    assert [g.columns.tolist() for own in together for g in own] == [[0, 1], [2, 3], [0, 1, 2, 3], [1]]


def test_tiles_agree_on_an_order_without_circles():
    natural, turned = np.arange(8), np.array([4, 5, 6, 7, 0, 1, 2, 3])
    assert _order_of(natural, turned) == {i: i + 1 for i in range(7)}
    assert _order_of(turned, natural) == {4: 5, 5: 6, 6: 7, 7: 0, 0: 1, 1: 2, 2: 3}


def _order_of(*groups_of_columns):
    return common_order(*(np.concatenate([g[part] for g in groups_of_columns]) for part in (slice(-1), slice(1, None))))


def test_a_tensor_that_lies_whole_on_a_tile_needs_no_exchange():
    plan = plan_reduction((8, 64), (1,), MK1)
    assert [s.name for s in plan.detail.stages] == ["Local"]
    assert plan.quantities["received"] == 0


@pytest.mark.parametrize("shape", [(1,), (5,), (1, 7, 1), (3, 1024), (1001, 103)])
@pytest.mark.parametrize("operation", ["ADD", "MAX", "MUL", "AND", "LOG_ADD"])
def test_odd_shapes_and_all_operations_have_a_price(shape, operation):
    for dims in itertools.chain.from_iterable(itertools.combinations(range(len(shape)), n + 1) for n in range(2)):
        if max(dims) < len(shape):
            cycles = plan_reduction(shape, dims, MK2, "float", operation).cycles(MK2)
            assert 728 < cycles < 60_000


def test_more_rows_cost_more_and_more_columns_too():
    cost = [plan_reduction((n, 64), (0,), MK2).cycles(MK2) for n in (10**4, 10**5, 10**6)]
    assert cost == sorted(cost)
    assert cost[2] > 5 * cost[1] / 2


def test_memory_of_a_rotated_reduction_starts_a_second_element():
    plan = plan_reduction(*L0A0, MK1, as_table=True)
    assert memory(plan.detail, 4 * 3136 * 8, "half", MK1)[1] == 16_440
    straight = plan_reduction(*L0A0, MK2, as_table=True)
    total, highest = memory(straight.detail, 4 * 3136 * 8, "half", MK2)
    assert total == pytest.approx(336_424, rel=0.03)
    assert highest == pytest.approx(1008, rel=0.05)


def test_linear_shares_are_whole_vectors_of_128_bytes_at_least():
    starts = linear_starts(4 * 3136 * 8, "half", 1472)
    sizes = np.diff(starts)
    assert set(sizes.tolist()) == {68, 72}
    assert (
        linear_starts(100, "float", 1472) == [0, 32, 64, 100] or np.diff(linear_starts(100, "float", 1472)).min() >= 32
    )
