"""Sizes, types and options that make no sense are refused by name; zero-sized and enormous ones have a price."""

from __future__ import annotations

import json
import math

import jax
import jax.numpy as jnp
import pytest

import ipu_model
from ipu_model.planner.conv_grid import Options
from ipu_model.planner.conv_params import ConvParams
from ipu_model.planner.convolution import plan_convolution, plan_matmul
from ipu_model.planner.ctc import plan_ctc
from ipu_model.planner.embedding import plan_embedding
from ipu_model.planner.pooling.params import PoolParams
from ipu_model.planner.reduction import plan_reduction
from ipu_model.planner.rnn import plan_gru, plan_lstm
from ipu_model.planner.solver import plan_cholesky, plan_triangular_solve
from ipu_model.planner.surface import matmul_surface
from ipu_model.roofline import Roofline
from ipu_model.scaling.interconnect import Level
from ipu_model.target import from_constants, to_json

MK2 = ipu_model.get_target("mk2")
PROGRAM = ipu_model.trace(jax.make_jaxpr(jnp.sin)(1.0))
REFUSED = [
    (lambda n: plan_matmul(8, n, 8, MK2), "in_channels"),
    (lambda n: plan_embedding(n, 20, 10, MK2), "rows"),
    (lambda n: plan_ctc(1, 5, n, 5, MK2), "label"),
    (lambda n: plan_cholesky(n, 16, MK2), "rank"),
    (lambda n: plan_triangular_solve(64, n, 16, MK2), "columns"),
    (lambda n: plan_lstm(1, n, 8, 8, MK2), "steps"),
    (lambda n: plan_gru(1, 1, n, 8, MK2), "inputs"),
    (lambda n: plan_reduction((4, n), (0,), MK2), r"shape\[1\]"),
    (lambda n: PoolParams(1, 4, (8, 8), (n, 2), (1, 1), (0, 0), (0, 0)), r"kernel\[0\]"),
    (lambda n: ConvParams(1, (6, 6), (3, 3), 4, 4, stride=(1, 1), groups=n), "groups"),
]


@pytest.mark.parametrize("size", [0, -3, 2.5, math.nan, "8", None, True])
@pytest.mark.parametrize(("plan", "name"), REFUSED)
def test_sizes_that_are_no_whole_numbers_from_one_are_refused(plan, name, size):
    with pytest.raises(ValueError, match=f"{name} is {size!r}, expected a whole number of at least 1"):
        plan(size)


@pytest.mark.parametrize("data", ["int", "float8", "double", ""])
def test_types_without_a_plan_are_refused(data):
    for plan in (
        lambda: plan_matmul(8, 8, 8, MK2, 1, data),
        lambda: plan_reduction((64, 64), (0,), MK2, data),
        lambda: plan_embedding(100, 20, 10, MK2, data),
        lambda: plan_ctc(1, 5, 5, 5, MK2, data),
        lambda: plan_cholesky(64, 16, MK2, data=data),
    ):
        with pytest.raises(ValueError, match=f"data is {data!r}, expected one of half, float"):
            plan()


def test_reductions_over_what_is_not_there_are_refused():
    with pytest.raises(ValueError, match=r"dims are \(3,\), expected some of 0 to 1"):
        plan_reduction((4, 4), (3,), MK2)
    with pytest.raises(ValueError, match="operation is 'MEAN', expected one of ADD"):
        plan_reduction((4, 4), (0,), MK2, operation="MEAN")


@pytest.mark.parametrize("size", [math.inf, math.nan, 0.5, -1])
def test_surfaces_have_no_price_where_there_are_no_sizes(size):
    with pytest.raises(ValueError, match=r"size m is .*; sizes begin at 1 and are finite"):
        matmul_surface(128, 64, 64, MK2).cycles(MK2, m=size, k=64, n=64)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": 0}, "replicas is 0"), ({"replicas": 1.5}, "replicas is 1.5"),
        ({"io_tiles": -5}, "io_tiles is -5"),
        ({"available_memory": 2}, "available_memory is 2, expected a number between 0 and 1"),
        ({"available_memory": math.nan}, "available_memory is nan"), ({"partials": "double"}, "partials is 'double'"),
        ({"all_reduce": "star"}, "all_reduce is 'star', expected one of ring, tree"), ({"smooth": -1}, "smooth is -1"),
        ({"trip_counts": {"*": -1}}, "trip_counts"), ({"axis_sizes": {"x": 0}}, "axis_sizes"),
        ({"gradient_accumulation": 0}, "gradient_accumulation is 0"), ({"smooth": math.inf}, "smooth is inf"),
        ({"merge_collectives": ("all-reduce",)}, r"merge_collectives is \('all-reduce',\), .* some of all_reduce, "),
        ({"merge_collectives": "all_reduce"}, "merge_collectives is 'all_reduce', expected a collection"),
        ({"merge_collectives": None}, "merge_collectives is None, expected a collection"),
        ({"half_arithmetic": "no"}, "half_arithmetic is 'no', expected True or False"),
        ({"outlining": None}, "outlining is None, expected True or False"),
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ipu_model.ModelOptions(**options)


RATES = ("clock_hz", "exchange_bytes_per_cycle", "link_bytes_per_second", "host_in_bytes_per_second", "links_per_ipu")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 0, "fast", None, True])
@pytest.mark.parametrize("name", RATES)
def test_rates_of_a_chip_are_finite_and_positive(name, value):
    with pytest.raises(ValueError, match=f"target 'mk2': {name} is {value!r}, expected a finite number above 0"):
        MK2.replace(**{name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_overheads_and_fitted_constants_of_a_chip_are_finite_and_not_negative(value):
    assert MK2.replace(sync_cycles=0.0).with_fitted({"conv.cast": 0.0}).sync_cycles == 0.0
    with pytest.raises(ValueError, match=f"sync_cycles is {value!r}, expected a finite number of at least 0"):
        MK2.replace(sync_cycles=value)
    with pytest.raises(ValueError, match=rf"fitted\['conv.cast'\] is {value!r}, expected a finite number"):
        MK2.with_fitted({"conv.cast": value})


@pytest.mark.parametrize("name", ["workers", "tile_memory", "units_half_half", "exchange_bytes", "memory_element"])
def test_sizes_of_a_chip_are_whole_numbers(name):
    rows = json.loads(to_json(MK2))["constants"]
    for value in (0, -1, 1.5, math.nan):
        with pytest.raises(ValueError, match=f"target: {name} is {value!r}, expected a whole number of at least 1"):
            MK2.replace(**{name: value})
        with pytest.raises(ValueError, match=f"target: {name} is {value!r}"):  # from a data file too
            from_constants("mine", "ipu2", {**rows, name: {"value": value}})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ipu_model.Placement(ipus=0), "Placement: ipus is 0, expected a whole number of at least 1"),
        (lambda: ipu_model.Placement({"a": ipu_model.NodePlacement(ipu=2)}, ipus=2), "node 'a' is on IPU 2"),
        (lambda: ipu_model.NodePlacement(ipu=-1), "NodePlacement: ipu is -1"),
        (lambda: ipu_model.NodePlacement(stage=0.5), "stage is 0.5"),
        (lambda: ipu_model.NodePlacement(partials="fp16"), "partials is 'fp16', expected one of half, float"),
        (lambda: ipu_model.NodePlacement(available_memory=math.nan), "available_memory is nan"),
        (lambda: ipu_model.Argument("w", "wieght"), "Argument 'w': role is 'wieght', expected one of weight, "),
        (lambda: ipu_model.Argument("w", donated_to=-1), "donated_to is -1"),
        (lambda: Options(available_memory=-0.1), "Options: available_memory is -0.1"),
        (lambda: Options(tiles=-4), "Options: tiles is -4"),
        (lambda: Roofline("x", 1e12, math.nan, 0.0, 2**30), "roofline 'x': bytes_per_second is nan"),
        (lambda: Roofline("x", {"half": -1.0}, 1e9, 0.0, 2**30), r"flops_per_second\['half'\] is -1.0"),
        (lambda: Roofline("x", 1e12, 1e9, 0.0, 0), "memory_bytes is 0"),
        (lambda: Level("near", 0, 1e9), "Level 'near': chips is 0"),
        (lambda: Level("near", 4, math.inf), "bytes_per_second is inf"),
        (lambda: ipu_model.search(lambda n: None, {"n": (1, 2)}, limits={"cycles": math.nan}), "'cycles'.* is nan"),
        (lambda: ipu_model.search(lambda n: None, {"n": (1, 2)}, most=0), "search: most is 0"),
        (lambda: plan_matmul(16, 5 * 10**11, 5 * 10**11, MK2), r"4e\+24 multiplies, more than can be counted"),
        (lambda: ipu_model.profile(abs, 1.0).explain(-1), "explain: steps is -1"),
        (lambda: ipu_model.profile(abs, 1.0, inputs=[ipu_model.Argument("x", donated_to=1)]), "donated to an output"),
        (lambda: ipu_model.profile(abs, 1.0).uncertainty("bytes"), "uncertainty: quantity is 'bytes'"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_said(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_tiles_are_counted():
    with pytest.raises(ValueError, match="io_tiles is 1472, expected fewer than the 1472 tiles of mk2"):
        ipu_model.profile(jnp.tanh, jnp.ones(8), options=ipu_model.ModelOptions(io_tiles=1472))
    for tiles in (0, -4, 3.5):
        with pytest.raises(ValueError, match=f"tiles is {tiles}, expected a whole number"):
            MK2.replace(tiles=tiles)
    assert plan_matmul(64, 64, 64, MK2.replace(tiles=1)).cycles(MK2) > plan_matmul(64, 64, 64, MK2).cycles(MK2)


def test_without_memory_to_spare_the_least_memory_is_planned_for():
    poor = plan_convolution(ConvParams(1, (6, 6), (3, 3), 4, 4), MK2, Options(available_memory=0.0))
    rich = plan_convolution(ConvParams(1, (6, 6), (3, 3), 4, 4), MK2)
    assert poor.temporary_bytes <= MK2.machine.tile_memory / 32
    assert poor.cycles(MK2) >= rich.cycles(MK2) * 0.999


@pytest.mark.parametrize("axis", [0, 1, None])
def test_sums_over_more_than_any_chip_holds_are_priced_in_parts(axis):
    report = ipu_model.profile(lambda x: x.sum(axis), jax.ShapeDtypeStruct((10**6, 10**6), jnp.float32))
    assert not report.fits
    # each of 1472 tiles adds a float every half cycle at best, and no slower than three a cycle and worker
    least = 10**12 / 1472 / 4
    assert least < report.total_cycles < 12 * least


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (lambda x: x.sum(0), [(0, 4)]), (jnp.matmul, [(4, 0), (0, 3)]), (jnp.linalg.cholesky, [(0, 0)]),
        (lambda a, b: jax.scipy.linalg.solve_triangular(a, b), [(0, 0), (0, 3)]), (jnp.sort, [(0,)]),
    ],
)  # fmt: skip
def test_empty_arrays_have_a_price(fn, shapes):
    report = ipu_model.profile(fn, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
    assert 0 <= report.total_cycles < 10_000


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ipu_model.trace(jnp.matmul), "a jaxpr is what jax.make_jaxpr"),
        (lambda: ipu_model.profile_jaxpr("x"), "a jaxpr is what jax.make_jaxpr.* returns, not 'x'"),
        (lambda: ipu_model.profile(jnp.sin, jnp.ones(3), placement=3), "placement is 3, expected"),
        (lambda: ipu_model.profile(jnp.sin, jnp.ones(3), placement={}), "placement is {}, expected"),
        (lambda: ipu_model.profile(jnp.sin, jnp.ones(3), inputs=[3]), r"inputs\[0\] is 3, expected an ipu_model.Arg"),
        (lambda: ipu_model.ModelOptions(trip_counts=None), "trip_counts is None, expected a dictionary"),
        (lambda: ipu_model.ModelOptions(axis_sizes=[3]), r"axis_sizes is \[3\], expected a dictionary"),
        (lambda: ipu_model.cycles(3, MK2), "program is 3, expected what ipu_model.trace returns"),
        (lambda: ipu_model.cycles(PROGRAM, "mk2"), "target is 'mk2', expected an ipu_model.Target"),
        (lambda: ipu_model.search(lambda n: (jnp.sin, n), [("n", (1, 2))]), "bounds is .*, expected a dictionary"),
    ],
)
def test_arguments_of_another_kind_are_refused_by_name(call, text):
    with pytest.raises(TypeError, match=text):
        call()
