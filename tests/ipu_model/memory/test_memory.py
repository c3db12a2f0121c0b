"""Memory: what shares storage, when it lives, the peak, and what happens when it does not fit."""

from __future__ import annotations

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import ipu_model
from ipu_model import Argument, ModelOptions, NodePlacement, Placement
from ipu_model.memory.addresses import FRAGMENTED, highest, unused
from ipu_model.planner.reduction import plan_reduction
from ipu_model.report.html import render as page
from ipu_model.report.overflow import render

MK2 = ipu_model.get_target("mk2")
SMALL = MK2.replace(tiles=32, tile_memory=256 * 1024, interleaved_start=0)
BATCH = 1000
BYTES = 4 * 1472 * 1024  # 4 KiB on each tile


def f32(n):
    return jax.ShapeDtypeStruct((n,), jnp.float32)


WIDE = f32(BYTES // 4)


def variables(fn, *args, **how):
    return ipu_model.profile(fn, *args, **how).memory.categories["variables"][5]


def test_a_view_takes_no_memory():
    assert variables(lambda x: x.reshape(64, -1).T, WIDE) == variables(lambda x: x, WIDE)


def test_elementwise_result_takes_the_place_of_a_dying_operand():
    def chain(x):
        with jax.named_scope("onnx[a]"):
            y = jnp.sin(x)
        with jax.named_scope("onnx[b]"):
            z = jnp.cos(y)
        with jax.named_scope("onnx[c]"):
            return jnp.tan(z)

    assert variables(chain, WIDE) == pytest.approx(2 * 4096, rel=0.01)


def test_an_operand_that_is_read_later_is_kept():
    def both(x):
        with jax.named_scope("onnx[a]"):
            y = jnp.sin(x)
        with jax.named_scope("onnx[b]"):
            z = jnp.cos(y)
        with jax.named_scope("onnx[c]"):
            return z + y

    assert variables(both, WIDE) == pytest.approx(3 * 4096, rel=0.01)


def test_a_value_fused_into_its_consumer_is_never_stored():
    def fn(x):
        return (jnp.sin(x) * 2.0).reshape(2, -1).sum()

    of_the_sum = plan_reduction((2, BYTES // 8), (0, 1), MK2, "float").temporary_bytes
    assert variables(fn, WIDE) == 2 * 4096 + of_the_sum
    assert variables(fn, WIDE, fuse_elementwise=False) >= variables(fn, WIDE)


def test_loop_carry_is_updated_in_place():
    def loop(x):
        return lax.fori_loop(0, 9, lambda _, c: jnp.sin(c), x)

    r = ipu_model.profile(loop, WIDE, inputs=[Argument("x", "weight")])
    copies = [s for s in r.steps if s.primitive == "loop_carry"]
    assert r.memory.categories["variables"][5] == pytest.approx(4096, rel=0.01)
    assert copies


def test_donated_weight_is_written_over():
    def step(w, g):
        return w - 0.1 * g

    donated = [Argument("w", "weight", donated_to=0)]
    assert variables(step, WIDE, WIDE, inputs=donated) == pytest.approx(2 * 4096, rel=0.01)
    assert variables(step, WIDE, WIDE, inputs=[Argument("w", "weight")]) == pytest.approx(3 * 4096, rel=0.01)


def test_streamed_data_is_not_always_live_and_stacks_stay_on_the_host():
    def fn(xs):
        return lax.scan(lambda c, x: (c, x * 2.0), 0.0, xs)[1]

    data = jax.ShapeDtypeStruct((50, BYTES // 4), jnp.float32)
    held = variables(fn, data, inputs=[Argument("x", "stream")], outputs=[Argument("y", "stream")])
    assert held == pytest.approx(4096, rel=0.01)
    assert variables(fn, data) == pytest.approx(100 * 4096, rel=0.05)


def test_sharded_optimizer_state_is_divided_by_the_replicas():
    def fn(m):
        return m * 0.9

    def held(sharded):
        where = ipu_model.Location(sharded=sharded)
        a = Argument("m", "optimizer_state", where, donated_to=0)
        return variables(fn, WIDE, inputs=[a], options=ModelOptions(replicas=4))

    assert held(True) == pytest.approx(held(False) / 4, rel=0.01)


def test_values_outside_a_loop_live_until_it_ends():
    def fn(w, x):
        return lax.fori_loop(0, 3, lambda _, c: jnp.sin(c + w.sum()), x)

    r = ipu_model.profile(fn, WIDE, WIDE, inputs=[Argument("w", "stream"), Argument("x", "stream")])
    w = next(v for v in r.memory.variables if v.name == "w")
    loop = next(f for f in r.frames if f.kind == "repeat")
    assert w.last >= loop.end - 1


@settings(deadline=None, max_examples=10)
@given(st.integers(1, 40), st.integers(1, 4))
def test_memory_never_falls_when_tensors_grow(n, factor):
    def total(rows):
        fn = lambda x: jnp.sin(x).sum() + x.T  # noqa: E731
        return ipu_model.profile(fn, jax.ShapeDtypeStruct((rows, 64), jnp.float32)).memory.total

    assert total(256 * n * factor) >= total(256 * n)


def test_tile_sums_equal_totals():
    r = ipu_model.profile(lambda x: jnp.sin(x) @ x, jax.ShapeDtypeStruct((256, 256), jnp.float32))
    m = r.memory
    assert len(m.total_by_tile) == MK2.tiles
    assert m.total == sum(m.total_by_tile)
    both = [a + b for a, b in zip(m.always_by_tile, m.not_always_by_tile, strict=True)]
    assert max(abs(a - b) for a, b in zip(both, m.total_by_tile, strict=True)) <= 1


def training(width, depth):
    def loss(p, x):
        for k in range(depth):
            with jax.named_scope(f"onnx[block{k}/fc]"):
                x = jnp.tanh(x @ p[k])
        return (x.astype(jnp.float32) ** 2).sum()

    def step(p, m, x):
        g = jax.grad(loss)(p, x)
        with jax.named_scope("update"):
            m = [0.9 * a + b for a, b in zip(m, g, strict=True)]
            return [w - 0.1 * a for w, a in zip(p, m, strict=True)], m

    p = [jax.ShapeDtypeStruct((width, width), jnp.float32)] * depth
    roles = ["weight"] * depth + ["optimizer_state"] * depth
    state = [Argument(f"v{i}", role, donated_to=i) for i, role in enumerate(roles)]
    return step, (p, p), [*state, Argument("x", "stream")]


@pytest.fixture(scope="module")
def too_large():
    step, state, inputs = training(128, 12)
    x = jax.ShapeDtypeStruct((BATCH, 128), jnp.float32)
    return ipu_model.profile(step, *state, x, inputs=inputs, target=SMALL)


def test_does_not_fit_is_a_result_with_levers(too_large):
    o = too_large.overflow
    assert not too_large.fits
    assert o.needs == too_large.memory.max_tile > o.has == SMALL.tile_memory
    changes = " | ".join(lever.change for lever in o.levers)
    for word in ("recomputation of", "float16", f"micro-batch {BATCH} ->", "2 IPUs"):
        assert word in changes
    assert all(lever.gain > 0 for lever in o.levers)
    assert all(lever.enough == (o.needs - lever.gain <= o.has) for lever in o.levers)


def test_overflow_text_names_tile_terms_and_levers(too_large):
    text = render(too_large.overflow)
    assert text.splitlines()[0].startswith(f"tile {too_large.overflow.tile} needs ")
    assert "of 256 KiB" in text
    assert "always live" in text
    assert "levers (each alone is enough unless marked +):" in text
    assert text.splitlines()[0] in too_large.summary()


def lever(report, word):
    return next(x for x in report.overflow.levers if word in x.change)


def applied(batch=BATCH, target=SMALL, **how):
    """The fullest tile when a change is really made."""
    step, state, inputs = training(128, 12)
    x = jax.ShapeDtypeStruct((batch, 128), jnp.float32)
    jaxpr = jax.make_jaxpr(step)(*state, x)
    return ipu_model.profile_jaxpr(jaxpr, inputs=inputs, target=target, levers=False, **how).memory.max_tile


def test_smaller_batch_lever_agrees_with_a_smaller_batch(too_large):
    found = lever(too_large, "micro-batch")
    really = too_large.memory.max_tile - applied(int(found.change.split("-> ")[1]))
    assert found.gain == pytest.approx(really, rel=0.05)
    assert found.enough


def test_half_precision_lever_agrees_with_half_arithmetic(too_large):
    really = too_large.memory.max_tile - applied(options=ModelOptions(half_arithmetic=True))
    assert lever(too_large, "float16").gain == pytest.approx(really, rel=0.1)


def test_recomputation_lever_agrees_with_recomputed_nodes(too_large):
    nodes = {f"block{k}/fc": NodePlacement(recompute=True) for k in range(12)}
    really = too_large.memory.max_tile - applied(placement=Placement(nodes))
    assert lever(too_large, "every node").gain == pytest.approx(really, rel=0.05)


def test_proportion_lever_agrees_with_the_attribute(too_large):
    found = lever(too_large, "availableMemoryProportion")
    nodes = {found.change.split(" on ")[1]: NodePlacement(available_memory=0.3)}
    assert found.gain == pytest.approx(too_large.memory.max_tile - applied(placement=Placement(nodes)), rel=0.2)


def test_levers_that_are_enough_together_are_really_enough_and_none_of_them_is_too_many():
    step, state, inputs = training(128, 12)
    smaller = SMALL.replace(tile_memory=64 * 1024)
    x = jax.ShapeDtypeStruct((BATCH, 128), jnp.float32)
    o = ipu_model.profile(step, *state, x, inputs=inputs, target=smaller).overflow
    assert not any(lever.enough for lever in o.levers)
    assert o.together.change == f"micro-batch {BATCH} -> 1, float16 instead of float32"
    really = applied(1, smaller, options=ModelOptions(half_arithmetic=True))
    assert really <= smaller.tile_memory
    assert o.together.gain == pytest.approx(o.needs - really, rel=0.05)
    assert "  together enough: micro-batch" in render(o)


def test_more_ipus_are_tried_until_it_fits(too_large):
    last = lever(too_large, "4 IPUs")
    assert last.enough
    assert not any("8 IPUs" in x.change for x in too_large.overflow.levers)


def test_recomputed_nodes_free_memory_and_cost_cycles():
    step, state, inputs = training(128, 12)
    x = jax.ShapeDtypeStruct((BATCH, 128), jnp.float32)

    def profile(recompute):
        nodes = {f"block{k}/fc": NodePlacement(recompute=recompute) for k in range(1, 11)}
        return ipu_model.profile(step, *state, x, inputs=inputs, target=SMALL, placement=Placement(nodes))

    kept, dropped = profile(None), profile(True)
    assert dropped.memory.max_tile < kept.memory.max_tile
    assert dropped.phases["forward"].total > 1.5 * kept.phases["forward"].total
    assert dropped.phases["backward"].total == pytest.approx(kept.phases["backward"].total)
    assert any("recomputed" in a for a in dropped.assumptions)


def test_two_ipus_hold_what_one_does_not():
    def fn(x, a, b):
        with jax.named_scope("onnx[first]"):
            y = x @ a
        with jax.named_scope("onnx[second]"):
            return y @ b

    w = jax.ShapeDtypeStruct((2048, 2048), jnp.float32)
    x = jax.ShapeDtypeStruct((64, 2048), jnp.float32)
    nodes = {"first": NodePlacement(ipu=0, stage=0), "second": NodePlacement(ipu=1, stage=1)}
    one = ipu_model.profile(fn, x, w, w)
    two = ipu_model.profile(fn, x, w, w, placement=Placement(nodes, 2))
    assert len(two.memory.total_by_tile) == 2 * MK2.tiles
    assert two.memory.max_tile <= one.memory.max_tile
    assert two.cycles.inter_ipu > 0
    assert {s.ipu for s in two.steps if s.primitive == "dot_general"} == {0, 1}


def test_accumulators_of_gradients_live_with_their_weights():
    def step(a, b, xs):
        def loss(p, x):
            with jax.named_scope("onnx[first]"):
                y = x @ p[0]
            with jax.named_scope("onnx[second]"):
                return (y @ p[1]).sum()

        def micro(g, x):
            return jax.tree.map(jnp.add, g, jax.grad(loss)((a, b), x)), None

        return lax.scan(micro, (jnp.zeros_like(a), jnp.zeros_like(b)), xs)[0]

    w = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    nodes = {"first": NodePlacement(ipu=0), "second": NodePlacement(ipu=1)}
    r = ipu_model.profile(step, w, w, jax.ShapeDtypeStruct((4, 8, 64), jnp.float32), placement=Placement(nodes, 2))
    adds = [(s.phase, s.ipu) for s in r.steps if s.primitive == "add" and s.shape == "float32[64,64]"]
    assert sorted(adds) == [("backward", 0), ("backward", 1)]


def test_pipeline_overlaps_stages_and_counts_bubbles():
    def fn(xs, a, b):
        def micro(_, x):
            with jax.named_scope("onnx[first]"):
                y = jnp.tanh(x @ a)
            with jax.named_scope("onnx[second]"):
                return None, y @ b

        return lax.scan(micro, None, xs)[1]

    w = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    xs = jax.ShapeDtypeStruct((16, 256, 512), jnp.float32)
    nodes = {"first": NodePlacement(ipu=0, stage=0), "second": NodePlacement(ipu=1, stage=1)}
    how = {"inputs": [Argument("x", "stream")], "outputs": [Argument("y", "stream")], "batches_per_step": 16}
    serial = ipu_model.profile(fn, xs, w, w, placement=Placement(nodes, 2), **how)
    piped = ipu_model.profile(fn, xs, w, w, placement=Placement(nodes, 2, pipelined=True), **how)
    busiest = max(i.cycles.total for i in piped.ipus)
    assert busiest <= piped.total_cycles < serial.total_cycles
    stages = piped.schedule.stages
    assert piped.total_cycles == pytest.approx(sum(stages) + 15 * max(stages))
    assert piped.schedule.bubbles == pytest.approx(2 * piped.total_cycles - sum(i.cycles.total for i in piped.ipus))


@pytest.mark.parametrize("width", [256, 8192])
def test_terms_of_the_peak_make_the_fullest_tile(width):
    # 256: most of the highest address is the gap below interleaved memory; 8192: the product does not fit
    r = ipu_model.profile(jnp.matmul, *[jax.ShapeDtypeStruct((width, width), jnp.float16)] * 2)
    parts = r.memory.peak_parts
    assert sum(parts.values()) == pytest.approx(r.memory.max_tile, abs=len(parts) + 1)
    gap, pair = parts["gaps around interleaved memory"], 2 * MK2.machine.memory_element
    assert (gap > r.memory.max_tile / 2) if width == 256 else (gap < pair)


@pytest.mark.parametrize(
    ("below", "interleaved", "address"),
    [
        (5_000, 0, 5_000),  # nothing must be interleaved: no gap
        (101_384, 20_736, 131_072 + 20_736 + 24),  # rows of the published table: bytes per tile, highest address
        (106_200, 40_000, 203_864),
        (127_400, 33_600, 197_464),
    ],
)
def test_highest_address_of_published_rows(below, interleaved, address):
    machine = ipu_model.get_target("mk1").machine
    found = highest(np.array([[below + interleaved]]), np.array([[interleaved]]), machine)
    assert found[0, 0] == address


def test_many_small_variables_leave_less_unused_than_a_few_large_ones():
    # what the allocator leaves is less than the next variable needs: by hand, hundred of 5 kB, and one of 200 kB beside
    assert unused(np.full(100, 5000.0)) == 5000.0
    assert unused(np.array([200_000.0, *[5000.0] * 100])) == FRAGMENTED
    machine, total, interleaved = MK2.machine, np.array([[560_000.0]]), np.array([[60_000.0]])
    start, pair = machine.interleaved_start, 2 * machine.memory_element
    for left in (5000.0, FRAGMENTED):
        spilt = pair * math.ceil((500_000 + left - start) / pair)
        assert highest(total, interleaved, machine, left)[0, 0] == start + spilt + 60_000 + 24


def test_vectors_of_a_network_lie_evenly():
    # each starts on a tile of its own, so the 64 biases of 1024 halves do not pile up on the first 16 tiles
    def fn(biases, x):
        return sum(x + b for b in biases)

    vector = jax.ShapeDtypeStruct((1024,), jnp.float16)
    weights = [ipu_model.Argument(f"b{k}", "weight") for k in range(64)]
    report = ipu_model.profile(fn, [vector] * 64, jax.ShapeDtypeStruct((1472, 1024), jnp.float16), inputs=weights)
    bytes_of_weights = 64 * 1024 * 2
    each = [v.bytes_on_fullest for v in report.memory.variables if v.kind == "weights"]
    assert bytes_of_weights / 1472 <= sum(each) < 2 * bytes_of_weights / 1472


def test_overflow_names_the_operation_and_is_silent_about_levers_not_asked_for():
    operands = [jax.ShapeDtypeStruct((16384, 16384), jnp.float32)] * 2
    report = ipu_model.profile_jaxpr(jax.make_jaxpr(jnp.matmul)(*operands), levers=False)
    assert report.overflow is not None
    assert report.overflow.levers is None
    assert "at dot_general in the forward pass" in render(report.overflow)
    assert "lever" not in render(report.overflow)
    assert "What would help" not in page(report)
    assert ipu_model.Report.from_json(report.to_json()) == report


def test_results_on_io_tiles_lie_behind_those_of_compute():
    def fn(x):
        with jax.named_scope("onnx[io]"):
            y = jnp.sin(x)
        with jax.named_scope("onnx[compute]"):
            return y.sum() + jnp.cos(x).sum(), y

    x = jax.ShapeDtypeStruct((64 * 1024,), jnp.float32)
    nodes = {"io": NodePlacement(io_tiles=True)}
    plain, aside = (ipu_model.profile(fn, x, io_tiles=64, placement=Placement(n)) for n in ({}, nodes))
    variables = [np.asarray(r.memory.categories["variables"]) for r in (plain, aside)]
    first = MK2.tiles - 64
    assert variables[0][first:].sum() == 0
    assert set(variables[1][first:]) == {4 * 1024}
    assert variables[1][:first].max() < variables[0][:first].max()


def dense_stack(width: int, blocks: int):
    def fn(ws, x):
        for k, w in enumerate(ws):
            with jax.named_scope(f"block{k}/dense"):
                x = jax.nn.relu(x @ w)
        return x

    ws = [jax.ShapeDtypeStruct((width, width), jnp.float16)] * blocks
    return jax.make_jaxpr(fn)(ws, jax.ShapeDtypeStruct((16, width), jnp.float16))


def test_scopes_of_a_plain_function_are_placed_and_advised_on_as_nodes_are():
    jaxpr = dense_stack(8192, 10)
    report = ipu_model.profile_jaxpr(jaxpr)
    assert report.overflow.tile == report.memory.peak_tile % 1472
    assert any(lever.change == "2 IPUs instead of 1" and lever.enough for lever in report.overflow.levers)
    nodes = {f"block{k}/dense": ipu_model.NodePlacement(ipu=k // 5) for k in range(10)}
    wider = ipu_model.profile_jaxpr(jaxpr, placement=ipu_model.Placement(nodes, ipus=2))
    assert wider.fits
    assert {s.ipu for s in wider.steps} == {0, 1}


def test_advice_needs_no_names_and_following_it_makes_the_program_fit():
    def profiled(batch: int) -> ipu_model.Report:
        def loss(params, x):
            for w in params["layers"]:
                x = jax.nn.gelu(x @ w)
            return (x * x).sum()

        params = {"layers": [jax.ShapeDtypeStruct((4096, 4096), jnp.float16)] * 8}
        return ipu_model.profile(jax.grad(loss), params, jax.ShapeDtypeStruct((batch, 4096), jnp.float16))

    report = profiled(8192)
    assert re.match(r"test_memory\.py:\d+", report.overflow.at)
    smaller = next(lever for lever in report.overflow.levers if lever.change.startswith("micro-batch 8192 -> "))
    assert smaller.enough
    assert any(re.match(r"recomputation of test_memory\.py:\d+", lever.change) for lever in report.overflow.levers)
    followed = profiled(int(smaller.change.split()[-1]))
    assert followed.fits
    assert followed.memory.max_tile == pytest.approx(report.memory.max_tile - smaller.gain, rel=0.02)
    names = {v.name for v in report.memory.variables if v.kind == "inputs"}
    assert {"params['layers'][0]", "params['layers'][7]", "x"} <= names


def test_weights_that_nobody_named_are_advised_into_streaming_memory():
    def layers(weights, x):
        for w in weights:
            x = jax.nn.relu(x @ w)
        return x

    square, x = jax.ShapeDtypeStruct((8192, 8192), jnp.float32), jax.ShapeDtypeStruct((512, 8192), jnp.float32)
    report = ipu_model.profile(layers, [square] * 4, x)
    advised = next(lever for lever in report.overflow.levers if lever.change == "weights in streaming memory")
    assert advised.enough
    away = ipu_model.placement.Location(on_chip=False)
    weights = [ipu_model.Argument(f"w{k}", "weight", away) for k in range(4)]
    followed = ipu_model.profile(layers, [square] * 4, x, inputs=[*weights, ipu_model.Argument("x")])
    assert followed.fits
    assert followed.memory.max_tile == report.memory.max_tile - advised.gain
    assert f"Fullest tile ({report.overflow.tile})" in report.summary()


def test_levers_of_which_none_is_enough_alone_say_so():
    square, x = jax.ShapeDtypeStruct((20_000, 20_000), jnp.float32), jax.ShapeDtypeStruct((512, 20_000), jnp.float32)
    text = ipu_model.profile(jnp.matmul, x, square).summary()
    assert "levers (none is enough alone):" in text
    assert "KiB  +" not in text


@pytest.mark.parametrize(("size", "dtype", "partials"), [
    (8192, jnp.float32, "float"), (8192, jnp.float16, "float"), (6144, jnp.float32, "float"),
    (1024, jnp.float16, "half"),
])  # fmt: skip
def test_the_whole_result_of_a_product_is_held_however_it_is_computed(size, dtype, partials):
    # large ones run in serial steps, each of which makes a part of the output; partial results may be halves
    shape = jax.ShapeDtypeStruct((size, size), dtype)
    r = ipu_model.profile(lambda x, w: jnp.exp(x @ w), shape, shape, partials=partials)
    result = next(v for v in r.memory.variables if not v.always)
    assert result.bytes <= result.bytes_on_fullest * result.tiles < 1.1 * result.bytes
    assert sum(r.memory.not_always_by_tile) >= result.bytes
