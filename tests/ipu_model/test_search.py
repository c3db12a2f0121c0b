"""The search over sizes: against planning every size, within limits, and clear where nothing fits."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import pytest

import ipu_model


def product(batch: int, width: int):
    return jnp.matmul, jnp.ones((batch, width)), jnp.ones((width, 256))


def chip(memory: int) -> ipu_model.Target:
    return ipu_model.get_target("mk2").replace(tiles=64, tile_memory=memory, interleaved_start=memory // 2)


def test_the_best_of_a_small_grid_is_found_with_fewer_plans():
    widths, batches, small = range(64, 449, 64), range(16, 97, 16), chip(256 * 1024)

    def per_sample(batch: int, width: int) -> float:
        fn, *args = product(batch, width)
        return ipu_model.profile(fn, *args, target=small).total_cycles / (batch * width)

    bounds = {"batch": batches, "width": widths}
    every = {(b, w): per_sample(b, w) for b, w in itertools.product(batches, widths)}
    found = ipu_model.search(
        lambda batch, width: ipu_model.profile(*product(batch, width), target=small, samples_per_step=batch * width),
        bounds,
        objective="seconds_per_sample",
    )
    assert every[found.sizes["batch"], found.sizes["width"]] == min(every.values())
    assert len(found.tried) < len(every) * 3 / 4
    assert found.objective == min(t.objective for t in found.tried)


@pytest.mark.parametrize("start", [None, {"a": 1, "b": 1}, {"a": 16, "b": 1}, {"a": 1, "b": 16}])
@pytest.mark.parametrize(("slope", "most"), [(1, 20), (3, 28), (7, 40)])
def test_sizes_are_traded_along_a_limit(slope, most, start):
    base = ipu_model.profile(jnp.sin, jnp.ones(8))

    def sizes(report: ipu_model.Report) -> tuple[int, int]:
        a, b = map(int, report.name.split())
        return a, b

    def area(report: ipu_model.Report) -> float:
        a, b = sizes(report)
        return -a * b

    def rough(report: ipu_model.Report) -> float:  # as memory is: it grows, but not with every step
        a, b = sizes(report)
        return slope * a + b + (7 * a + 11 * b) % 5 / 2

    every = [dataclasses.replace(base, name=f"{a} {b}") for a in range(1, 17) for b in range(1, 17)]
    found = ipu_model.search(
        lambda a, b: dataclasses.replace(base, name=f"{a} {b}"),
        {"a": (1, 16), "b": (1, 16)},
        objective=area,
        limits={rough: most},
        start=start,
    )
    assert found.objective == min(area(r) for r in every if rough(r) <= most)


def test_cuts_that_are_better_only_together_are_found():
    def cut(first: int, second: int) -> ipu_model.Report:
        if first >= second:
            raise ValueError("cuts in order")

        def fn(x, w):
            for k, width in enumerate((64, 64, 64, 64, 256)):
                with jax.named_scope(f"layer{k}"):
                    x = x[:, :64] @ w[:, :width]
            return x

        nodes = {f"layer{k}": ipu_model.NodePlacement(i := (k >= first) + (k >= second), i) for k in range(5)}
        placement = ipu_model.Placement(nodes, 3, pipelined=True)
        x, w = jnp.ones((1024, 64)), jnp.ones((64, 256))
        return ipu_model.profile(fn, x, w, placement=placement, gradient_accumulation=4)

    best = min(cut(a, b).total_cycles for a, b in itertools.combinations(range(1, 5), 2))
    found = ipu_model.search(cut, {"first": range(1, 5), "second": range(1, 5)}, start={"first": 1, "second": 3})
    assert found.objective == best


def test_the_widest_layer_that_fits_is_the_widest():
    small = chip(80 * 1024)

    def fits(width: int) -> bool:
        fn, *args = product(64, width)
        return ipu_model.profile(fn, *args, target=small).fits

    found = ipu_model.search(
        lambda width: product(64, width),
        {"width": range(64, 4097, 64)},
        target=small,
        objective=lambda r: -r.cycles.flops,
    )
    assert found.report.fits
    assert not fits(found.sizes["width"] + 64)


def test_limits_by_name_and_by_function():
    bounds = {"width": range(64, 1025, 16)}

    def widest(limits):
        return ipu_model.search(lambda width: product(16, width), bounds, "mk2", lambda r: -r.cycles.flops, limits)

    few, many = widest({"cycles": 4_000}), widest({"cycles": 8_000})
    assert few.report.total_cycles <= 4_000 < many.report.total_cycles <= 8_000
    assert few.sizes["width"] < many.sizes["width"]
    assert widest({lambda r: r.total_cycles: 4_000}).sizes == few.sizes


def test_one_stage_may_be_any_choice():
    found = ipu_model.search(
        lambda proportion: ipu_model.profile(*product(256, 512), available_memory=proportion),
        {"proportion": [0.05, 0.1, 0.2, 0.4, 0.6, 0.9]},
        start={"proportion": 0.6},
    )
    assert found.tried[0].sizes == {"proportion": 0.6}
    assert found.objective == min(t.objective for t in found.tried)
    assert "proportion=" in str(found)


@pytest.mark.parametrize("start", [None, {"share": 0}, {"share": 40}, {"share": 63}])
@pytest.mark.parametrize(("low", "high"), [(3, 64), (50, 64), (-1, 7), (-1, 60)])
def test_what_lies_beyond_sizes_that_change_nothing_is_tried(start, low, high):
    base = ipu_model.profile(jnp.sin, jnp.ones(8))

    def held(report):  # the same for most sizes, as with proportions of memory that no plan reaches
        return 5 if low < int(report.name) < high else 3

    found = ipu_model.search(
        lambda share: dataclasses.replace(base, name=str(share)),
        {"share": (0, 63)},
        objective=lambda report: held(report) * 100 + int(report.name),
        limits={held: 4},
        start=start,
    )
    assert held(found.report) == 3
    assert len(found.tried) < 30


def test_a_proportion_of_memory_is_lowered_until_the_program_fits():
    found = ipu_model.search(
        lambda share: ipu_model.profile(*product(1024, 512), available_memory=share),
        {"share": [0.02, 0.05, 0.2, 0.4, 0.6, 0.9]},
        limits={"fullest_tile": 220_000},
    )
    every = {t.sizes["share"]: t for t in found.tried}
    assert every[0.6].rank == every[0.4].rank  # the plan is the same
    assert found.sizes["share"] == 0.02


def test_sizes_without_a_program_are_passed_over():
    def even(n: int):
        if n % 2:
            raise ValueError("only even sizes")
        return product(n, 64)

    assert ipu_model.search(even, {"n": (1, 9)}, start={"n": 4}).sizes["n"] % 2 == 0
    with pytest.raises(ValueError, match=r"no program at any of .*only even sizes"):
        ipu_model.search(even, {"n": [1, 3, 5]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bounds": {"width": (9, 3)}}, "size 'width' has no values"),
        ({"objective": "speed"}, "no figure 'speed'; figures are"),
        ({"objective": 5}, "no figure 5; figures are"),
        ({"limits": {"watts": 3}}, "no figure 'watts'"),
        ({"start": {"width": 7}}, "outside the bounds"),
        ({"limits": {"cycles": 1}}, "no program within the limits"),
        ({"bounds": {"width": {64, 65}}}, "neither values in order nor a pair"),
        ({"bounds": {}}, "bounds name no size"),
        ({"bounds": {"width": 64}}, "neither values in order nor a pair"),
        ({"limits": {"cycles": float("-inf")}}, "no program within the limits"),
        ({"objective": lambda r: float("nan")}, "its objective, or a figure with a limit, is not a number"),
    ],
)
def test_refusals(change, message):
    given = {"bounds": {"width": (64, 70)}, **change}
    with pytest.raises(ValueError, match=message):
        ipu_model.search(lambda width: product(8, width), **given)


def test_a_limit_without_end_is_none():
    free, bound = (
        ipu_model.search(lambda width: product(8, width), {"width": (64, 66)}, limits=limits)
        for limits in ({}, {"cycles": float("inf")})
    )
    assert free.sizes == bound.sizes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": 3}, "start is 3, expected a dictionary"),
        ({"limits": [5]}, r"limits is \[5\], expected a dictionary"),
        ({"objective": lambda r: None}, "an objective or a figure with a limit gave None, expected a number"),
    ],
)
def test_arguments_of_another_kind_are_refused(change, message):
    with pytest.raises(TypeError, match=message):
        ipu_model.search(lambda width: product(8, width), {"width": (64, 65)}, **change)


def test_what_is_no_program_is_named():
    with pytest.raises(TypeError, match=r"the function returned None, expected a report or \(fn, \*args\)"):
        ipu_model.search(lambda width: None, {"width": (64, 70)})


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"width": (-3, 1)}, r"search: there is no program of width=-1: .*nonnegative"),
        ({"width": ["wide"]}, r"search: there is no program of width='wide'"),
        ({"height": (1, 5)}, r"search: there is no program of height=3: .*height"),
    ],
)
def test_sizes_that_the_function_cannot_take_are_named(bounds, message):
    def program(width):
        return jnp.matmul, jnp.ones((16, width)), jnp.ones((width, width))

    with pytest.raises(TypeError, match=message):
        ipu_model.search(program, bounds)


def test_a_middle_without_a_program_is_left_for_the_smallest_sizes():
    def small(n: int):
        if n > 40:
            raise ValueError("too many")
        return product(n, 64)

    found = ipu_model.search(small, {"n": (1, 1000)}, objective=lambda r: -r.cycles.flops)
    assert found.sizes == {"n": 40}
    assert found.tried[0].why == "too many"


def test_pairs_of_truth_values_are_no_ranges():
    assert ipu_model.search(lambda wide: product(8, 64 << wide), {"wide": (False, True)}).sizes == {"wide": False}


def test_seconds_per_sample_need_a_number_of_samples():
    def program(width):
        return jnp.matmul, jnp.ones((16, width)), jnp.ones((width, 16))

    with pytest.raises(ValueError, match=r"how many samples.*profile\(fn, \*args, samples_per_step=...\)"):
        ipu_model.search(program, {"width": (64, 65)}, objective="seconds_per_sample")
