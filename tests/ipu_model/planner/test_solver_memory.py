"""Memory of the solvers: products and bytes that the specification's page works out."""

from __future__ import annotations

import pytest

from ipu_model import target
from ipu_model.planner.conv_grid import Options
from ipu_model.planner.convolution import plan_matmul
from ipu_model.planner.solver_memory import cholesky_memory, solve_memory

MK1, MK2 = target.get("mk1"), target.get("mk2")
PRODUCTS = [(16, 16, 16), (48, 16, 16), (48, 16, 48), (32, 16, 16), (32, 16, 32)]


@pytest.mark.parametrize(("data", "tiles"), [("float", (256, 768, 1152, 512, 1024)), ("half", (32, 96, 288, 64, 128))])
def test_tiles_of_the_products_between_blocks(data, tiles):
    for chip in (MK1, MK2):
        plans = [plan_matmul(*sizes, chip, data=data, options=Options("none_matmul")) for sizes in PRODUCTS]
        assert tuple(p.tiles for p in plans) == tiles
        assert {p.method for p in plans} == {"hmac" if data == "float" else "amp"}


@pytest.mark.parametrize(
    ("chip", "groups", "dots", "units"),
    [(MK1, 1, 9_984, 0), (MK1, 8, 40_900, 0), (MK2, 1, 1_408, 7_854), (MK2, 8, 11_264, 41_328)],
)
def test_tiles_of_the_rows_of_a_leaf(chip, groups, dots, units):
    plans = [plan_matmul(1, i, 64, chip, groups, "float", options=Options("none_matmul")) for i in range(1, 64)]
    assert sum(p.tiles for p in plans if p.method != "amp") == pytest.approx(dots, rel=2e-3)
    assert sum(p.tiles for p in plans if p.method == "amp") == units


@pytest.mark.parametrize(("data", "highest"), [("float", 33_816), ("half", 33_304)])
def test_one_block_lies_in_elements_of_its_own(data, highest):
    total, top = cholesky_memory(16, 16, 1, True, data, MK1)
    assert top == 32_768 + 16 * 16 * {"float": 4, "half": 2}[data] + 24 == highest
    assert total == pytest.approx({"float": 17_644, "half": 17_380}[data], rel=2e-3)


@pytest.mark.parametrize(
    ("chip", "rank", "lower", "data", "highest"),
    [
        (MK1, 32, True, "float", 33_816), (MK1, 32, False, "float", 49_240), (MK2, 64, True, "float", 49_240),
        (MK1, 64, True, "half", 131_112), (MK2, 64, False, "half", 213_032),
    ],
)  # fmt: skip
def test_highest_addresses_of_several_blocks(chip, rank, lower, data, highest):
    assert cholesky_memory(rank, 16, 1, lower, data, chip)[1] == highest


@pytest.mark.parametrize(("lower", "published"), [(True, 6_978_624), (False, 6_711_504)])
def test_two_matrices_share_the_convolution_units_for_their_largest_product(lower, published):
    # with the eight units for fp32 of the table's library: cheaper than four dot products on a tile, dearer than two
    total, highest = cholesky_memory(64, 16, 2, lower, "float", MK2.replace(units_float=8))
    assert highest == pytest.approx(213_080, abs=32)  # 64 bytes of partial results beyond the interleaved start, or 32
    assert total == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(
    ("chip", "rank", "columns", "batches", "published"),
    [
        (MK1, 256, 256, 1, 12_089_814), (MK2, 256, 256, 1, 13_024_853), (MK1, 256, 256, 8, 38_525_580),
        (MK2, 256, 256, 8, 47_930_999), (MK1, 64, 64, 8, 19_798_019), (MK2, 64, 64, 8, 30_290_238),
    ],
)  # fmt: skip
def test_rows_of_several_columns(chip, rank, columns, batches, published):
    total, _ = solve_memory(rank, columns, 64, batches, "float", chip)
    assert total == pytest.approx(published, rel=0.04)


def test_most_of_a_solves_memory_is_the_code_of_its_rows():
    small, large = (solve_memory(n, n, 64, 1, "float", MK1)[0] for n in (64, 128))
    assert large < 1.6 * small
    assert solve_memory(64, 64, 64, 1, "float", MK1)[0] > solve_memory(64, 64, 32, 1, "float", MK1)[0]
