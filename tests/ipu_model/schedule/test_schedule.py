"""Schedules: pipeline cycles as the specification words them, per IPU, with host traffic and recomputation."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipu_model
from ipu_model import Argument, ModelOptions, NodePlacement, Placement
from ipu_model.schedule.pipeline import active_stages


@pytest.mark.parametrize("stages", range(1, 8))
@pytest.mark.parametrize("micro", [1, 2, 3, 5, 6, 7, 20])
def test_a_stage_works_on_micro_batch_k_minus_s_in_cycle_k(stages, micro):
    found = [(first, last) for first, last, repeats in active_stages(stages, micro) for _ in range(repeats)]
    wanted = []
    for cycle in range(micro + stages - 1):
        active = [s for s in range(stages) if 0 <= cycle - s < micro]
        wanted.append((active[0], active[-1] + 1))
    assert found == wanted


WIDTHS = (256, 512, 384)


def weights():
    return [jax.ShapeDtypeStruct((256, n), jnp.float32) for n in WIDTHS], [
        jax.ShapeDtypeStruct((n, 256), jnp.float32) for n in WIDTHS
    ]


def network(up, down, x):
    for k, (a, b) in enumerate(zip(up, down, strict=True)):
        with jax.named_scope(f"onnx[stage{k}]"):
            x = jnp.tanh(x @ a) @ b
    return x


def training(micro, recompute=False, **options):
    """Three stages on three IPUs, `micro` micro-batches of 64 rows, then an update."""

    def step(up, down, xs):
        def one(sums, x):
            g = jax.grad(lambda p: network(p[0], p[1], x).sum())((up, down))
            return jax.tree.map(jnp.add, sums, g), None

        g, _ = lax.scan(one, jax.tree.map(jnp.zeros_like, (up, down)), xs)
        with jax.named_scope("update"):
            return jax.tree.map(lambda w, d: w - 0.1 * d, (up, down), g)

    xs = jax.ShapeDtypeStruct((micro, 64, 256), jnp.float32)
    nodes = {f"stage{k}": NodePlacement(k, k, recompute=recompute) for k in range(3)}
    inputs = [*[Argument(f"w{k}", "weight") for k in range(6)], Argument("x", "stream")]
    return ipu_model.profile(
        step, *weights(), xs, inputs=inputs, placement=Placement(nodes, 3, pipelined=True),
        options=ModelOptions(gradient_accumulation=micro, **options),
    )  # fmt: skip


def simulated(report, micro, recompute=False):
    """The run cycle by cycle: in each, every IPU does its active stages; all wait for the slowest."""
    work = {}
    update = np.zeros(3)
    for step in report.steps:
        cycles = step.cycles.total * step.trips
        forward = step.ipu
        if step.phase == "update":
            update[step.ipu] += cycles
        elif step.phase == "backward":
            work[4 - forward, forward] = work.get((4 - forward, forward), 0) + cycles / micro
        else:
            again = recompute and step.node.startswith("stage")
            half = cycles / micro / (2 if again else 1)
            work[forward, forward] = work.get((forward, forward), 0) + half
            if again:
                work[4 - forward, forward] = work.get((4 - forward, forward), 0) + half
    total, busy = 0.0, np.zeros(3)
    for cycle in range(micro + 4):
        now = np.zeros(3)
        for (stage, ipu), cycles in work.items():
            if 0 <= cycle - stage < micro:
                now[ipu] += cycles
        total += now.max()
        busy += now
    return total + update.max(), busy + update


@pytest.mark.parametrize(("micro", "recompute"), [(2, False), (9, False), (9, True)])
def test_training_pipeline_against_a_cycle_by_cycle_simulation(micro, recompute):
    report = training(micro, recompute)
    total, busy = simulated(report, micro, recompute)
    assert report.total_cycles == pytest.approx(total)
    assert report.schedule.bubbles == pytest.approx(3 * total - busy.sum())
    assert len(report.schedule.stages) == 5


def test_longer_flows_amortise_filling():
    per = [training(n).total_cycles / n for n in (4, 16, 64)]
    assert per[0] > per[1] > per[2]


def test_batches_fill_and_drain_for_each_update():
    def run(batches):
        def fn(up, down, xs):
            return lax.scan(lambda _, x: (None, network(up, down, x).sum()), None, xs)[1]

        xs = jax.ShapeDtypeStruct((batches * 4, 64, 256), jnp.float32)
        nodes = {f"stage{k}": NodePlacement(k, k) for k in range(3)}
        options = ModelOptions(gradient_accumulation=4, batches_per_step=batches)
        return ipu_model.profile(fn, *weights(), xs, placement=Placement(nodes, 3, pipelined=True), options=options)

    assert run(3).total_cycles == pytest.approx(3 * run(1).total_cycles, rel=1e-6)


def test_host_traffic_hides_behind_the_cycle_it_belongs_to():
    plain, hidden = training(8), training(8, overlap_io=True)
    host = plain.cycles.host
    assert plain.total_cycles - host * 1.01 <= hidden.total_cycles < plain.total_cycles
    assert 0 < hidden.schedule.overlapped <= host


def test_sequential_host_traffic_hides_up_to_the_work():
    def fn(w, xs):
        return lax.scan(lambda _, x: (None, x @ w), None, xs)[1]

    w, xs = jax.ShapeDtypeStruct((64, 64), jnp.float32), jax.ShapeDtypeStruct((8, 512, 64), jnp.float32)
    inputs, outputs = [Argument("w", "weight"), Argument("x", "stream")], [Argument("y", "stream")]
    plain, hidden = (ipu_model.profile(fn, w, xs, overlap_io=o, inputs=inputs, outputs=outputs) for o in (False, True))
    work = plain.cycles.total - plain.cycles.host
    assert hidden.total_cycles == pytest.approx(max(work, plain.cycles.host))


def test_operations_run_on_the_tiles_set_aside_for_them():
    def fn(x, w):
        with jax.named_scope("onnx[io]"):
            y = jnp.sin(x)
        with jax.named_scope("onnx[compute]"):
            return jnp.sin(y) @ w, y.sum(0), lax.reduce_window(y[None, None], -np.inf, lax.max, (1, 1, 2, 2),
                                                              (1, 1, 2, 2), "VALID")  # fmt: skip

    x, w = jax.ShapeDtypeStruct((2048, 512), jnp.float32), jax.ShapeDtypeStruct((512, 512), jnp.float32)
    nodes = {"io": NodePlacement(io_tiles=True)}
    report = ipu_model.profile(fn, x, w, placement=Placement(nodes), io_tiles=64)
    for step in report.steps:
        for part in step.parts:
            assert part.tiles <= (64 if step.node == "io" else 1472 - 64), step.name
    slow, quick = (next(s for s in report.steps if s.node == n and s.primitive == "sin") for n in ("io", "compute"))
    assert slow.cycles.compute > 15 * quick.cycles.compute


def test_timeline_of_a_pipeline_has_a_clock_for_each_ipu():
    report = training(9)
    spans, ends = report.schedule.spans, {}
    assert [(s.first, s.last, s.repeats) for s in spans] == list(active_stages(5, 9))
    for span, after in itertools.pairwise(spans):
        assert after.start == pytest.approx(span.start + span.cycles * span.repeats)
        assert max(span.busy) == pytest.approx(span.cycles)
    for ipu in range(3):
        inside = [s for s in report.steps if s.ipu == ipu and s.phase != "update"]
        begin = min(s.start for s in inside)
        assert begin == pytest.approx(spans[ipu].start)
        ends[ipu] = max(s.start + s.cycles.total * s.trips for s in inside)
        assert ends[ipu] - begin == pytest.approx(9 * spans[4].busy[ipu])
    flow = spans[-1].start + spans[-1].cycles
    assert max(ends.values()) <= flow
    assert min(s.start for s in report.steps if s.phase == "update") == pytest.approx(flow)
    assert ipu_model.Report.from_json(report.to_json()) == report


def test_the_state_of_an_optimizer_lives_with_its_weight():
    def step(state, x):
        ws, moments = state

        def loss(ws):
            y = x
            for k, w in enumerate(ws):
                with jax.named_scope(f"block{k}"):
                    y = jnp.tanh(y @ w)
            return (y * y).sum()

        moments = [0.9 * m + 0.1 * g for m, g in zip(moments, jax.grad(loss)(ws), strict=True)]
        return [w - 0.01 * m for w, m in zip(ws, moments, strict=True)], moments

    weights = [jax.ShapeDtypeStruct((256, 256), jnp.float32)] * 4
    nodes = {f"block{k}": ipu_model.NodePlacement(k, k) for k in range(4)}
    placement = ipu_model.Placement(nodes, ipus=4, pipelined=True)
    x = jax.ShapeDtypeStruct((64, 256), jnp.float32)
    report = ipu_model.profile(step, (weights, weights), x, placement=placement)
    kept = [(v.name, v.ipu) for v in report.memory.variables if v.name.startswith("state")]
    assert sorted(kept) == [(f"state[{part}][{k}]", k) for part in range(2) for k in range(4)]
    crossing = {s.shape for s in report.steps if s.cycles.inter_ipu}
    assert crossing == {"float32[64,256]"}  # activations and their gradients, no weights and no moments
