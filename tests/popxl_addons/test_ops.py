"""Operators that upstream writes in C++."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax.popxl_addons.ops as addons_ops
from popart_jax import popxl
from popart_jax.popxl.fp8_utils import host_fp8_mse_scale

RNG = np.random.default_rng(0)


def run(build):
    """Results of the tensors that `build` returns in a new program."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        streams = [addons_ops.host_store(t) for t in build()]
    with popxl.Session(ir, "ipu_hw") as session:
        results = session.run()
    return [results[s] for s in streams], [op.opType() for op in ir.main_graph._pb_graph.getOps()]


def test_rotary_embedding_turns_pairs():
    x = RNG.normal(size=(1, 4, 2, 8)).astype(np.float32)
    sin, cos = (table[:, None] for table in addons_ops.trig_tables(4, 6))

    def build():
        tables = addons_ops.trig_table_constants(4, 6)
        return [addons_ops.rotary_pos_embed(popxl.variable(x), *tables, rotary_dim=6)]

    (y,), kinds = run(build)
    z = (x[..., 0:6:2] + 1j * x[..., 1:6:2]) * (cos + 1j * sin)
    np.testing.assert_allclose(y[..., 0:6:2], z.real, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y[..., 1:6:2], z.imag, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(y[..., 6:], x[..., 6:])
    assert "RotaryPosEmbed" in kinds


def test_squares_layout_and_scales():
    x = RNG.normal(size=(5, 6)).astype(np.float32)

    def build():
        t = popxl.variable(x)
        return [
            addons_ops.grad_reduce_square_add(t, 4.0),
            addons_ops.linear_layout(t),
            addons_ops.fp8_amax_scale(t),
            addons_ops.fp8_mse_scale(t),
        ]

    (squares, same, amax, mse), kinds = run(build)
    assert squares == pytest.approx(float((x**2).sum() / 16), rel=1e-5)
    np.testing.assert_array_equal(same, x)
    assert int(amax) == int(np.floor(np.log2(240 / np.abs(x).max())))
    assert int(mse) == int(host_fp8_mse_scale(x, popxl.float8_143)[1])
    assert {"GradReduceSquareAdd", "LinearLayout", "Fp8Scale"} <= set(kinds)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_float8_scales_are_those_of_the_host(dtype):
    """Also where scales differ by what they do to the smallest values only, and where the ratio leaves float16."""
    data = [(RNG.normal(0, sigma, 300) * np.exp(RNG.normal(0, 2, 300))).astype(dtype) for sigma in (1e-3, 1, 30)]
    targets = (popxl.float8_143, popxl.float8_152)

    def build():
        tensors = [popxl.variable(d) for d in data]
        return [
            scale(t, k)
            for t in tensors
            for k in targets
            for scale in (addons_ops.fp8_mse_scale, addons_ops.fp8_amax_scale)
        ]

    found, _ = run(build)
    expected = []
    for d in data:
        for target, largest in zip(targets, (240, 57344), strict=True):
            amax = np.floor(np.log2(largest / np.abs(d.astype(np.float64)).max()))
            expected += [host_fp8_mse_scale(d, target)[1], int(np.clip(amax, -31, 31))]
    assert [int(f) for f in found] == expected


def test_sparse_matmul():
    sparse = pytest.importorskip("scipy.sparse")
    rhs = sparse.random(6, 7, 0.4, format="csr", dtype=np.float32, random_state=0)
    lhs = RNG.normal(size=(3, 5, 6)).astype(np.float32)
    (y,), _ = run(lambda: [addons_ops.dense_const_sparse_matmul(popxl.variable(lhs), rhs, 7)])
    np.testing.assert_allclose(y, lhs @ rhs.toarray(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dim", [-1, 0])
def test_quantised_weights_come_back_within_half_a_step(dim):
    weights = RNG.normal(size=(8, 64)).astype(np.float32) if dim else RNG.normal(size=(64, 8)).astype(np.float32)
    packed, scale, bias = addons_ops.group_quantize_compress_numpy(weights, 16, dim)
    host = addons_ops.group_quantize_decompress_numpy(packed, scale, bias, dim)
    assert np.abs(host.astype(np.float32) - weights).max() <= scale.max() * 0.52
    (device,), _ = run(
        lambda: [addons_ops.group_quantize_decompress(*(popxl.variable(v) for v in (packed, scale, bias)), dim=dim)]
    )
    np.testing.assert_allclose(device.astype(np.float32), host.astype(np.float32), atol=4e-3)


def test_cross_entropy_with_its_gradient():
    torch = pytest.importorskip("torch")
    x, labels = RNG.normal(size=(4, 7)).astype(np.float32), np.array([1, 2, 3, 0], np.int32)

    def build():
        t, y = popxl.variable(x), popxl.variable(labels)
        return [addons_ops.cross_entropy(t, y), *addons_ops.cross_entropy_with_grad(t, y, loss_scaling=8.0)]

    (plain, loss, gradient), _ = run(build)
    expected = torch.tensor(x, requires_grad=True)
    value = torch.nn.functional.cross_entropy(expected, torch.tensor(labels).long())
    value.backward()
    np.testing.assert_allclose([plain, loss], [float(value.detach())] * 2, rtol=1e-5)
    np.testing.assert_allclose(gradient, 8 * expected.grad.numpy(), rtol=1e-4, atol=1e-6)
