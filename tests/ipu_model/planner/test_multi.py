"""Convolutions side by side: the largest first, the others behind it."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_model import target
from ipu_model.planner import conv_memory, conv_search
from ipu_model.planner.conv_grid import Options
from ipu_model.planner.conv_multi import BACK_OFF, RESERVED, plan_parallel, steps
from ipu_model.planner.conv_params import ConvParams, matmul_params
from ipu_model.published.layers import conv_params
from ipu_model.published.octave import octave_form

MK1 = target.get("mk1").replace(units_float=8).machine
OPTIONS = Options("training_fwd")


def octave(field: int, ins: int, outs: int, stride: int = 1) -> tuple[ConvParams, ...]:
    row = {"batch-size": 4, "field": [field, field], "kernel-size": 1, "input-channels": ins, "output-channels": outs,
           "stride": stride}  # fmt: skip
    return octave_form(conv_params(row, "half"), 0.25, 0.25).parts


@pytest.mark.parametrize(("parts", "before", "after", "tiles"), [
    (octave(56, 256, 128, 2), 7_663, 9_795, 756),
    (octave(28, 512, 128), 10_572, 13_625, 744),
])  # fmt: skip
def test_the_largest_takes_the_fewest_tiles_within_thirty_percent(parts, before, after, tiles):
    """The two searches that the specification of the small families gives."""
    alone = conv_search.plan(parts[0], MK1, Options("training_fwd", tiles=MK1.tiles - 3 * RESERVED))
    found = plan_parallel(parts, MK1, OPTIONS)[0]
    assert (round(alone.cycles), round(found.cycles), found.tiles) == (before, after, tiles)
    assert found.cycles <= alone.cycles * (1 + 3 * BACK_OFF)


def test_the_others_stay_below_the_largest_on_the_tiles_that_are_left():
    parts = octave(28, 512, 128)
    found = plan_parallel(parts, MK1, OPTIONS)
    assert sum(split.tiles for split in found) <= MK1.tiles
    slowest = steps(found[0].terms)
    smallest = min(range(len(parts)), key=lambda i: parts[i].macs)
    assert np.maximum(0, steps(found[smallest].terms) - slowest).sum() < 0.05 * slowest.sum()


def test_one_convolution_alone_has_the_plan_of_one():
    [part] = octave(28, 512, 128)[:1]
    assert plan_parallel((part,), MK1, OPTIONS) == (conv_search.plan(part, MK1, OPTIONS),)


def test_too_many_for_the_tiles_run_in_turn():
    few = Options("training_fwd", tiles=60)
    parts = octave(28, 512, 128)
    assert plan_parallel(parts, MK1, few) == tuple(conv_search.plan(part, MK1, few) for part in parts)


def test_bytes_over_all_tiles_count_smaller_last_parts():
    """75 groups of 8 columns in 8 parts are 7 of 10 and one of 5, where the fullest tile has 10."""
    split = conv_search.plan(matmul_params(600, 512, 10000), MK1, Options("none_matmul"))
    whole = conv_memory.held(split)
    assert whole.tiles == split.tiles
    assert whole.weights == 512 * 600 * 2 * split.field[-1]
    assert whole.weights < split.tile["weights"] * 2 * split.tiles
    assert whole.partials == 600 * 10000 * 4 * split.in_parallel


def test_code_is_there_once_on_a_tile_that_several_passes_use():
    split = conv_search.plan(matmul_params(200, 256, 20000), MK1, Options("none_matmul"))
    once = conv_memory.code([[split]], MK1.tiles)
    assert once == conv_memory.code([[split], [split]], MK1.tiles)
    assert (
        once == (616 + 440 + 224 + 124 + 20) * split.tiles
    )  # pointwise kernel of halves with float partials, and a cast


def test_peaks_are_those_of_the_dearer_pass_on_each_tile():
    one, two = (conv_search.plan(matmul_params(200, k, 5000), MK1, Options("none_matmul")) for k in (64, 256))
    both = conv_memory.peaks([[one], [two]], MK1.tiles)
    assert (both == np.maximum(*(conv_memory.peaks([[s]], MK1.tiles) for s in (one, two)))).all()


def test_code_of_the_vertices_is_that_of_the_table():
    """Instructions of the assembly codelets, supervisor and workers, as the specification lists them."""
    depthwise = ConvParams(4, (28, 28), (3, 3), 1, 1, 256, pad_lower=(1, 1), pad_upper=(1, 1))
    window = conv_search.plan(depthwise, MK1, OPTIONS)
    assert conv_memory.codelets(window)["slic", "half", "float", "windowed"] == 328 + 552 + 128 + 28
    wide = ConvParams(4, (28, 28), (3, 3), 64, 64, pad_lower=(1, 1), pad_upper=(1, 1))
    found = conv_memory.codelets(conv_search.plan(wide, MK1, OPTIONS))
    assert found["amp", "half", "float", "windowed"] == 484 + 1084 + 72
    assert 532 in found.values() or 368 in found.values()
    dots = conv_search.plan(matmul_params(16, 16, 16, 1, "float", "float"), MK1, Options("none_matmul"))
    assert conv_memory.codelets(dots) == {("hmac", "float", "float", "pointwise"): 336 + 376}
