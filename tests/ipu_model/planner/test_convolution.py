"""The convolution planner against hand-worked terms, exhaustive search and the rules of the library."""

from __future__ import annotations

import itertools
import math
import time

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ipu_model import target
from ipu_model.planner import conv_reduce, conv_search
from ipu_model.planner.conv_grid import Grid, Options
from ipu_model.planner.conv_joint import PASSES, plan_joint
from ipu_model.planner.conv_params import ConvParams, cdiv, matmul_params
from ipu_model.planner.conv_transforms import swap_operands, transformed_problems
from ipu_model.planner.conv_vertices import Vertex, group_sizes, slowest_fastest
from ipu_model.planner.convolution import fully_connected_passes, plan_convolution, plan_matmul

MK1, MK2 = target.get("mk1"), target.get("mk2")
AMP = {
    "half8": Vertex("amp", 1, 16, 8, 8, "half", "float", 32),
    "half16": Vertex("amp", 1, 16, 16, 8, "half", "float", 32),
}


def terms_of(params, vertex, splits, pass_, machine=MK1.machine):
    """Terms of one given partition: ``{dimension index: split}`` of the swapped problem, the rest unsplit."""
    problem = next(
        q for q in transformed_problems(params, True) if q.swapped and not q.expanded and not q.out_flattened
    )
    p = problem.params
    sizes = (*p.out, p.batch, cdiv(p.out_channels, vertex.opg), cdiv(p.in_channels, vertex.ipg), p.groups, *p.kernel)
    lists = [np.array([[splits.get(i, 1)], [cdiv(n, splits.get(i, 1))]]) for i, n in enumerate(sizes)]
    grid = Grid(problem, vertex, machine, Options(pass_), 1, 1, lists, [np.zeros(1, int)] * len(lists))
    return {name: float(value[0]) for name, value in grid.terms().items()}


def test_hand_worked_matrix_product():
    # 200 x 256 x 20000 on 1216 tiles, field over 86 and output channels over 14 tiles
    t = terms_of(matmul_params(200, 256, 20000), AMP["half8"], {1: 86, 3: 14}, "none_matmul")
    expected = {
        "compute": 35763,
        "input_exchange": 13847,
        "weight_exchange": 2025,
        "partial_exchange": 3728,
        "cast": 2022,
        "copy": 1039,
    }
    assert {name: t[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("shape", "pass_", "splits", "expected"),
    [
        ((128, 1024, 4096), PASSES[0], {1: 19, 3: 8, 4: 8}, (16843, 6048, 971, 3456)),
        ((128, 4096, 1024), PASSES[1], {1: 7, 3: 4, 4: 43}, (18361, 2646, 1317, 5376)),
        ((1024, 128, 4096), PASSES[2], {1: 19, 3: 64}, (16843, 6804, 971, 3456)),
    ],
)
def test_hand_worked_dense_layer(shape, pass_, splits, expected):
    t = terms_of(matmul_params(*shape), AMP["half16"], splits, pass_)
    names = ("compute", "input_exchange", "weight_exchange", "partial_exchange")
    assert tuple(t[name] for name in names) == pytest.approx(expected, abs=1)


def test_backward_dense_layer_pays_for_the_transposed_weights():
    t = terms_of(matmul_params(128, 4096, 1024), AMP["half16"], {1: 7, 3: 4, 4: 43}, PASSES[1])
    assert t["copy"] + t["copy_exchange"] == pytest.approx(6097, abs=2)


def test_depthwise_forward_uses_the_window_kernel():
    params = ConvParams(4, (14, 14), (3, 3), 1, 1, 512, pad_lower=(1, 1), pad_upper=(1, 1))
    plan = plan_convolution(params, MK2, Options("training_fwd"))
    assert plan.method == "slic"
    assert plan.detail.terms["compute"] == 1779


def test_shapes_of_backward_and_update():
    forward = ConvParams(4, (56, 56), (1, 1), 256, 128, stride=(2, 2))
    assert forward.out == (28, 28)
    assert forward.backward().out == (56, 56)
    assert forward.weight_update().out == (1, 1)
    padded = ConvParams(2, (11, 9), (3, 5), 8, 16, stride=(2, 1), pad_lower=(1, 2), pad_upper=(1, 2))
    assert padded.backward().out == padded.field
    assert padded.weight_update().out == padded.kernel
    assert (padded.backward().in_channels, padded.backward().out_channels) == (16, 8)


@pytest.mark.parametrize("params", [
    ConvParams(3, (9, 7), (3, 2), 4, 5, pad_lower=(1, 0), pad_upper=(2, 1)),
    ConvParams(3, (9, 7), (3, 2), 4, 5, stride=(2, 1)).backward(),
])  # fmt: skip
def test_swapping_operands_keeps_the_output(params):
    swapped = swap_operands(params)
    assert swapped.out == params.out
    assert (swapped.batch, swapped.out_channels) == (params.out_channels, params.batch)


def test_every_transform_keeps_the_multiplies():
    params = ConvParams(3, (9, 7), (3, 2), 4, 5)
    for problem in transformed_problems(params, False):
        assert problem.params.macs >= params.macs
        outputs = np.prod(problem.params.out) * problem.params.batch * problem.params.out_channels
        assert outputs == np.prod(params.out) * params.batch * params.out_channels


def test_a_batch_that_becomes_part_of_the_field_is_counted_once():
    params = ConvParams(1_536_000, (1, 1), (1, 1), 1024, 4096)  # its square would be refused as too large to count
    assert params.macs in {problem.params.macs for problem in transformed_problems(params, False)}


def test_a_convolution_without_output_is_refused():
    with pytest.raises(ValueError, match="no output"):
        ConvParams(1, (2, 2), (3, 3), 1, 1)


@pytest.mark.parametrize(("rows", "width"), [(1, 3), (1, 40), (4, 7), (13, 1), (5, 5)])
def test_workers_share_rows_as_contiguous_runs(rows, width):
    cost = lambda n: np.where(n == 0, 1, 10 + n * n)  # noqa: E731
    slow, fast = slowest_fastest(np.array([rows]), np.array([width]), cost)
    workers = []
    for i in range(6):
        run = range(i * rows * width // 6, (i + 1) * rows * width // 6)
        pieces = [len(list(group)) for _, group in itertools.groupby(run, key=lambda e: e // width)]
        workers.append(sum(int(cost(np.array(n))) for n in pieces) if pieces else 1)
    assert (int(slow[0]), int(fast[0])) == (max(workers), min(workers))


def test_the_search_is_as_good_as_trying_every_split():
    machine = MK1.replace(tiles=12).machine
    params = matmul_params(24, 64, 40)
    best = conv_search.plan(params, machine, Options("none_matmul"))
    cheapest = min(
        sum(terms_of(params, AMP[name], {1: f, 3: o, 4: i}, "none_matmul", machine).values())
        for name in AMP
        for f, o, i in itertools.product(range(1, 13), repeat=3)
        if f * o * i <= 12 and o <= 3 and i <= 4
    )
    assert best.cycles <= cheapest


@pytest.mark.parametrize("chip", [MK1, MK2])
def test_plans_keep_to_tiles_and_memory(chip):
    for params in (ConvParams(4, (28, 28), (3, 3), 64, 96), matmul_params(200, 300, 5000)):
        split = conv_search.plan(params, chip.machine, Options("training_fwd"))
        assert split.tiles <= chip.tiles
        assert split.temp <= 0.6 * chip.tile_memory


def test_less_memory_never_makes_a_plan_faster():
    params = matmul_params(1000, 256, 10000)
    cycles = [
        conv_search.plan(params, MK2.machine, Options("none_matmul", available_memory=share)).cycles
        for share in (0.6, 0.3, 0.15)
    ]
    assert cycles == sorted(cycles)


@pytest.mark.parametrize("sizes", [(1024, 4096, 4096), (2048, 2048, 2048), (64, 4096, 4096)])
def test_a_bound_that_no_plan_keeps_is_doubled_with_serial_steps_at_each(sizes):
    least, small, roomy = (
        conv_search.plan(matmul_params(*sizes), MK2.machine, Options("none_matmul", available_memory=share))
        for share in (0.0, 0.01, 0.1)
    )
    assert max(least.temp, small.temp) < 0.5 * roomy.temp
    assert min(least.cycles, small.cycles) > roomy.cycles


def test_serial_splits_when_nothing_else_fits():
    split = conv_search.plan(matmul_params(600, 512, 10000), MK1.machine, Options("none_matmul", available_memory=0.25))
    assert split.in_serial * split.out_serial > 1
    assert split.terms["serial"] > 0


def test_fewer_tiles_take_longer():
    params = ConvParams(4, (28, 28), (1, 1), 128, 128)
    all_tiles = conv_search.plan(params, MK1.machine, Options("training_fwd"))
    few = conv_search.plan(params, MK1.machine, Options("training_fwd", tiles=100))
    assert few.tiles <= 100
    assert few.cycles > 3 * all_tiles.cycles


@pytest.mark.parametrize(("depth", "stages"), [(2, 1), (15, 1), (16, 2), (124, 2), (125, 3), (1000, 3)])
def test_reduction_stages(depth, stages):
    added = conv_reduce.stages(np.array([depth]))
    assert sum(int(each[0]) > 1 for each in added) == stages
    assert math.prod(int(each[0]) for each in added) >= depth


def test_reduction_exchange_of_the_worked_example():
    assert conv_reduce.exchanged(np.array([4704]), conv_reduce.stages(np.array([43]))).tolist() == [672]


def test_joint_plan_moves_no_operand_and_exchanges_splits():
    data = "float"
    shapes = [matmul_params(*s, 1, data, data) for s in ((8, 1000, 1000), (8, 1000, 1000), (1000, 8, 1000))]
    joint = plan_joint(*shapes, MK2.machine, Options(PASSES[0]))
    assert joint is not None
    forward, backward, update = joint
    assert (forward.field[-1], forward.in_parallel) == (backward.in_parallel, backward.field[-1])
    assert (forward.out_parallel, forward.in_parallel) == (update.in_parallel, update.out_parallel)
    assert forward.terms["copy"] == backward.terms["copy"] == 0


def test_a_dense_layer_takes_the_cheaper_of_joint_and_separate():
    passes = fully_connected_passes(8, 1000, 1000, 1, "float", MK2.machine)
    separate = [
        conv_search.plan(matmul_params(*s, 1, "float", "float"), MK2.machine, Options(o))
        for s, o in zip(((8, 1000, 1000), (8, 1000, 1000), (1000, 8, 1000)), PASSES, strict=True)
    ]
    assert sum(p.detail.cycles for p in passes) <= sum(s.cycles for s in separate)


def test_cycles_are_differentiable_in_the_constants():
    plan = plan_matmul(128, 512, 1024, MK2)
    grads = jax.grad(lambda t: plan.cycles(t))(MK2)
    for name in ("compute", "passes", "input_exchange"):
        key = f"conv.{name}"
        step = 1e-3 * MK2.fitted[key]
        difference = plan.cycles(MK2.with_fitted({key: MK2.fitted[key] + step})) - plan.cycles(MK2)
        assert float(grads.fitted[key]) == pytest.approx(difference / step, rel=1e-3)
    assert float(grads.exchange_bytes_per_cycle) < 0


def test_half_partials_are_faster_on_the_second_generation():
    single = plan_matmul(1024, 1024, 1024, MK2, options=Options("none_matmul", "float"))
    half = plan_matmul(1024, 1024, 1024, MK2, options=Options("none_matmul", "half"))
    assert half.detail.terms["compute"] < 0.7 * single.detail.terms["compute"]


def test_planning_a_residual_network_is_quick():
    start = time.process_time()
    for field, width in ((56, 64), (28, 128), (14, 256), (7, 512)):
        for kernel, ins, outs in ((1, 4 * width, width), (3, width, width), (1, width, 4 * width)):
            pads = ((kernel - 1) // 2,) * 2
            params = ConvParams(4, (field,) * 2, (kernel,) * 2, ins, outs, pad_lower=pads, pad_upper=pads)
            for q, pass_ in zip(
                (params, params.backward(), params.weight_update()),
                ("training_fwd", "training_bwd", "training_wu"),
                strict=True,
            ):
                plan_convolution(q, MK2, Options(pass_))
    assert time.process_time() - start < 30  # about 3 s on an idle core


@given(
    st.integers(1, 3), st.integers(3, 10), st.sampled_from([1, 3]), st.integers(1, 40), st.integers(1, 40),
    st.integers(1, 2), st.sampled_from(["half", "float"]),
)  # fmt: skip
@settings(max_examples=4, deadline=None)
def test_no_plan_needs_less_memory_than_the_bound_that_drops_problems(batch, field, kernel, ins, outs, stride, data):
    pad = (kernel // 2,) * 2
    params = ConvParams(
        batch, (field, field), (kernel, kernel), ins, outs, stride=(stride, stride), pad_lower=pad, pad_upper=pad,
        data=data, output=data,
    )  # fmt: skip
    for each in (params, params.backward(), params.weight_update()):
        split = plan_convolution(each, MK2).detail
        p, v = split.problem.params, split.vertex
        padded = math.prod(
            -(-n // g) * g for n, g in ((p.groups, v.gpg), (p.in_channels, v.ipg), (p.out_channels, v.opg))
        )
        work = padded * p.batch * math.prod(p.out) * math.prod(p.kernel) / MK2.tiles
        assert split.in_serial * split.out_serial == 1
        assert conv_search._least_memory(p, v, work) <= split.temp * 1.0001


@given(
    st.integers(1, 3), st.integers(4, 12), st.sampled_from([1, 3]), st.sampled_from([3, 16, 40]),
    st.sampled_from([4, 16, 48]), st.sampled_from([1, 2]), st.sampled_from(["half", "float"]), st.integers(1, 2),
    st.sampled_from(["half", "float"]),
)  # fmt: skip
@example(1, 64, 8, 4, 4, 1, "half", 8, "half")  # four chains of the window vertex
@example(1, 40, 1, 3, 300, 1, "float", 1, "half")  # results narrower than the operands
@settings(max_examples=6, deadline=None)
def test_no_split_is_cheaper_than_the_bounds_that_drop_it(batch, field, kernel, ins, outs, stride, data, groups, out):
    pad = (kernel // 2,) * 2
    machine = MK2.replace(tiles=24).machine
    params = ConvParams(
        batch, (field, field), (kernel, kernel), ins, outs, groups, (stride, stride), pad_lower=pad, pad_upper=pad,
        data=data, output=out,
    )  # fmt: skip
    options = Options(partials=out)
    for each in (params, params.backward(), params.weight_update()):
        for job in conv_search.jobs_of(each, machine, options):
            grid, lower = conv_search._within(job, machine, options, math.inf, (1, 1))
            if grid is not None:
                cycles = np.sum(list(grid.terms().values()), axis=0)
                assert (lower <= cycles * 1.0001).all(), job
                assert job.lower <= cycles.min() * 1.0001, job


def test_jobs_come_in_order_of_their_bounds_which_are_made_as_they_are_asked_for(monkeypatch):
    made, bounded = [], conv_search._bounded
    monkeypatch.setattr(conv_search, "_bounded", lambda *args: made.append(0) or bounded(*args))
    jobs = conv_search.jobs_of(ConvParams(4, (14, 14), (3, 3), 256, 256), MK1.machine, Options("training_fwd"))
    first = next(iter(jobs))
    few = len(made)
    found = list(jobs)
    assert found[0] is first
    assert found == sorted(found, key=lambda job: job.lower)
    assert 10 * few < len(found) == len(made) == len(set(found))


def test_half_channels_that_are_no_whole_groups_are_padded_at_a_price():
    whole, parts = (plan_matmul(16, k, 1024, MK2, options=Options("fc_training_fwd")) for k in (1024, 1000))
    assert whole.quantities["paddings"] == 0
    assert parts.quantities["paddings"] == 1


def test_joint_passes_need_no_transpose_of_the_weights():
    machine = MK2.replace(units_float=8).machine
    joint = fully_connected_passes(8, 1000, 1000, 1, "float", machine)
    separate = fully_connected_passes(128, 1024, 4096, 1, "half", machine)
    assert sum(p.quantities["weight_transposes"] for p in joint) == 0
    assert [p.quantities["weight_transposes"] for p in separate] == [0, 1, 0]


def test_serial_splits_are_taken_where_memory_allows_only_poor_plans():
    # a weight update whose inputs fill the tile: one pass fits with dot products alone, a hundred times slower
    layer = ConvParams(4, (70, 70), (3, 3), 288, 384, stride=(2, 2)).weight_update()
    plan = plan_convolution(layer, MK1, Options("training_wu")).detail
    roomy = plan_convolution(layer, MK1, Options("training_wu", available_memory=8.0)).detail
    assert plan.in_serial * plan.out_serial > 1
    assert plan.temp <= 0.6 * MK1.tile_memory
    assert roomy.cycles < plan.cycles < 3 * roomy.cycles


def test_weights_of_dot_products_are_transposed_by_the_slow_vertex():
    # 40 x 40 floats on a tile: five and two bundles an element and column, as the library's estimator has it
    _, backward, _ = fully_connected_passes(1, 1000, 1000, 1, "float", MK1.replace(units_float=8).machine)
    assert backward.quantities["scattered"] == pytest.approx(6 * 40 * (5 + 2 * 40), rel=0.1)
    _, none, _ = fully_connected_passes(64, 1024, 1024, 1, "half", MK1.machine)
    assert none.quantities["scattered"] == 0


def test_large_products_take_as_many_serial_steps_as_memory_demands():
    plan = plan_matmul(4096, 4096, 4096, MK1, data="float").detail
    assert plan.temp <= 0.6 * MK1.tile_memory
    assert plan.in_serial * plan.out_serial >= 16


def test_where_little_fits_plans_of_any_length_are_not_looked_for(monkeypatch):
    """Dot products have thousands of splits that would fit and take a hundred times the cycles."""
    limits, search = [], conv_search._search

    def watched(job, machine, options, bound, limit, *serial):
        limits.append(limit)
        return search(job, machine, options, bound, limit, *serial)

    monkeypatch.setattr(conv_search, "_search", watched)
    update = ConvParams(1, (28, 28), (3, 3), 128, 128, pad_lower=(1, 1), pad_upper=(1, 1)).weight_update()
    conv_search.plan(update, MK2.machine, Options("training_wu", available_memory=0.003))
    assert len(limits) > 100
    assert sum(map(math.isinf, limits)) < 10


def test_among_plans_of_equal_cycles_the_one_with_least_temporary_memory_is_taken():
    """Depthwise weight update, 28 x 28, 256 channels: many splits of the kernel tie."""
    forward = ConvParams(4, (28, 28), (3, 3), 1, 1, 256, pad_lower=(1, 1), pad_upper=(1, 1))
    params, options = forward.weight_update(), Options("training_wu")
    best = conv_search.plan(params, MK1.machine, options)
    bound = options.available_memory * MK1.machine.tile_memory
    ties = []
    for job in conv_search.jobs_of(params, MK1.machine, options):
        grid = conv_search.fitting(job, MK1.machine, options, bound, best.cycles)
        if grid is not None:
            total = np.sum(list(grid.terms().values()), axis=0)
            ties += grid.temporary()[total == best.cycles].tolist()
    assert len(set(ties)) > 1
    assert best.temp == min(ties)


@given(st.integers(1, 3000), st.sampled_from([1, 2]))
def test_group_sizes_are_those_that_lower_the_number_of_groups(channels, step):
    expected, fewest = [], math.inf
    for size in range(step, cdiv(channels, step) * step + 1, step):
        if cdiv(channels, size) < fewest:
            fewest = cdiv(channels, size)
            expected.append(size)
    assert list(group_sizes(channels, step)) == expected
