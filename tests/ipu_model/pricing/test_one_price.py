"""A program's convolutions and products cost what the planner says: there is one price for each."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import ipu_model
from ipu_model import published
from ipu_model.planner.convolution import ConvParams, Options, fully_connected_passes, plan_convolution, plan_matmul

MK2 = ipu_model.get_target("mk2")


def f16(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float16)


def priced(report, primitive):
    return [s.cycles.total for s in report.steps if s.primitive == primitive]


def test_a_single_product():
    report = ipu_model.profile(jnp.matmul, f16(200, 256), f16(256, 2000))
    assert priced(report, "dot_general") == [pytest.approx(plan_matmul(200, 256, 2000, MK2).cycles(MK2))]


def test_the_three_products_of_a_dense_layer():
    def layer(x, w):
        return jax.grad(lambda x, w: (x @ w).astype(jnp.float32).sum(), argnums=(0, 1))(x, w)

    report = ipu_model.profile(lambda x, w: (layer(x, w), jnp.tanh(x @ w)), f16(64, 256), f16(256, 512))
    forward, backward, update = (p.cycles(MK2) for p in fully_connected_passes(64, 256, 512, 1, "half", MK2.machine))
    found = priced(report, "dot_general")
    assert sorted(found) == pytest.approx(sorted([*[forward] * (len(found) - 2), backward, update]))


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (1, 2)])
def test_the_three_convolutions_of_a_layer(kernel, stride):
    pad = (kernel // 2, kernel // 2)

    def layer(x, w):
        return lax.conv_general_dilated(x, w, (stride, stride), (pad, pad)).astype(jnp.float32)

    def both(x, w):
        return layer(x, w), jax.grad(lambda x, w: layer(x, w).sum(), argnums=(0, 1))(x, w)

    report = ipu_model.profile(both, f16(4, 32, 14, 14), f16(48, 32, kernel, kernel))
    side = (stride, stride)
    params = ConvParams(4, (14, 14), (kernel, kernel), 32, 48, stride=side, pad_lower=pad, pad_upper=pad)
    wanted = {
        plan_convolution(p, MK2, Options(pass_)).cycles(MK2)
        for p, pass_ in (
            (params, "training_fwd"),
            (params.backward(), "training_bwd"),
            (params.weight_update(), "training_wu"),
        )
    }
    found = priced(report, "conv_general_dilated")
    assert len(found) >= 3
    assert sorted(set(found)) == pytest.approx(sorted(wanted), rel=0.02)


def test_partials_and_available_memory_of_a_node_reach_the_planner():
    def fn(a, b):
        with jax.named_scope("onnx[mm]"):
            return a @ b

    def cycles(**how):
        nodes = {"mm": ipu_model.NodePlacement(**how)}
        placement = ipu_model.Placement(nodes)
        return ipu_model.profile(fn, f16(1024, 1024), f16(1024, 4096), placement=placement)

    assert cycles(partials="half").total_cycles < cycles().total_cycles
    small, large = cycles(available_memory=0.3), cycles()
    temporary = [max(o.peak_temporary for o in r.operations) for r in (small, large)]
    assert temporary[0] < temporary[1]


@pytest.mark.parametrize(("m", "k", "n"), [(600, 64, 30000), (16, 4096, 1024), (200, 256, 20000)])
def test_memory_of_a_product_is_that_of_its_plan(m, k, n):
    """While it computes: copies of operands and partial results; then partial results and what they become."""
    report = ipu_model.profile(jnp.matmul, f16(m, k), f16(k, n))
    plan, held = plan_matmul(m, k, n, MK2), plan_matmul(m, k, n, MK2).tile_bytes
    split = plan.detail
    local = held["weights"] / (split.field[0] * split.field[1]) + held["inputs"] / split.out_parallel
    computing, finishing = plan.temporary_bytes - local, held["partials"] + 2 * m * n / plan.tiles
    assert max(report.memory.not_always_by_tile) == pytest.approx(max(computing, finishing), rel=0.1)
    operands = 2 * (m * k + k * n) / MK2.tiles
    parts = report.memory.peak_parts
    assert parts["inputs"] == pytest.approx(operands, rel=0.1)
    assert sum(parts.values()) == pytest.approx(report.memory.max_tile, abs=len(parts) + 1)


def benchmark(op, params, data="fp16 data, fp32 partials", chip="GC200 (ipu2) full 1472 tiles, Poplar IPUModel"):
    return published.predict(
        {"family": op, "what": "total cycles", "unit": "cycles", "precision": data, "hardware": chip,
         "config": {"op": op, "params": params}}
    )  # fmt: skip


CONVS = ((14, 1, 1024, 256, 4), (28, 3, 128, 128, 2), (7, 3, 512, 512, 4), (56, 1, 64, 256, 1))


@pytest.mark.parametrize(("field", "kernel", "ins", "outs", "batch"), CONVS)
def test_a_traced_layer_costs_what_its_benchmark_row_predicts(field, kernel, ins, outs, batch):
    # the row: forward, backward, weight update and a scaled add into the weights, no copies to and from the host
    pad = kernel // 2

    def step(x, w, d):
        y, pull = jax.vjp(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), ((pad, pad), (pad, pad))), x, w)
        dx, dw = pull(d)
        with jax.named_scope("update"):
            return y, dx, w - jnp.float16(0.05) * dw

    x, w, d = f16(batch, ins, field, field), f16(outs, ins, kernel, kernel), f16(batch, outs, field, field)
    report = ipu_model.profile(step, x, w, d)
    row = {"field": field, "kernel-size": kernel, "input-channels": ins, "output-channels": outs, "batch-size": batch,
           "padding": pad}  # fmt: skip
    assert report.cycles.total == pytest.approx(benchmark("conv", row), rel=0.12)
    products = sum(priced(report, "conv_general_dilated"))
    assert products == pytest.approx(benchmark("conv", row), rel=0.08)


@pytest.mark.parametrize(("batch", "ins", "outs"), [(128, 1024, 4096), (64, 512, 512), (16, 256, 1000)])
def test_a_traced_dense_layer_costs_what_its_benchmark_row_predicts(batch, ins, outs):
    def step(x, w, d):
        y, pull = jax.vjp(jnp.matmul, x, w)
        dx, dw = pull(d)
        with jax.named_scope("update"):
            return y, dx, w - jnp.float16(0.05) * dw

    report = ipu_model.profile(step, f16(batch, ins), f16(ins, outs), f16(batch, outs))
    row = benchmark("fc", {"batch-size": batch, "input-size": ins, "output-size": outs})
    assert report.cycles.total == pytest.approx(row, rel=0.12)


@pytest.mark.parametrize(("m", "k", "n"), [(200, 256, 20000), (512, 512, 512)])
def test_a_traced_product_costs_what_its_benchmark_row_predicts(m, k, n):
    report = ipu_model.profile(lambda a, b, c: c + a @ b, f16(m, k), f16(k, n), f16(m, n))
    assert report.cycles.total == pytest.approx(benchmark("gemm", {"m": m, "k": k, "n": n}), rel=0.12)
