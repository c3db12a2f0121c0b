"""Primitives that few programs have: each has a rule, and its price stands in a known relation to others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

import ipu_model

F8, SCALE = jnp.float8_e4m3fn, jnp.float8_e8m0fnu


def shape(*sizes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def cycles(fn, *arguments):
    report = ipu_model.profile(fn, *arguments)
    assert not report.unpriced
    return report.cycles.total


def test_a_product_of_scaled_blocks_is_one_of_halves_and_the_scaling_before():
    a, b = shape(512, 1024, dtype=F8), shape(1024, 256, dtype=F8)
    scales = shape(512, 32, dtype=SCALE), shape(32, 256, dtype=SCALE)
    report = ipu_model.profile(lambda a, b, s, t: lax.scaled_dot(a, b, lhs_scale=s, rhs_scale=t), a, b, *scales)
    product = ipu_model.profile(jnp.matmul, *(x.update(dtype=jnp.float16) for x in (a, b)))
    assert not report.unpriced
    assert product.cycles.total < report.cycles.total < 1.5 * product.cycles.total
    assert report.cycles.flops == product.cycles.flops + 512 * 1024 + 1024 * 256
    names = [part.name for part in report.steps[0].parts]
    assert names[:4] == ["Cast", "Op/Mul"] * 2


def test_batches_of_scaled_products_contract_the_last_axes():
    a, s = shape(3, 256, 128, dtype=F8), shape(3, 256, 4, dtype=SCALE)
    b, t = shape(3, 64, 128, dtype=F8), shape(3, 64, 4, dtype=SCALE)
    report = ipu_model.profile(jax.nn.scaled_matmul, a, b, s, t)
    assert not report.unpriced
    assert report.cycles.flops == 2 * 3 * 256 * 64 * 128 + 3 * (256 + 64) * 128


@pytest.mark.parametrize(("collective", "plain"), [(lax.psum, jnp.sum), (lax.pmax, jnp.max)])
def test_collectives_over_a_mapped_axis_are_reductions_on_the_chip(collective, plain):
    x = shape(256, 128)
    mapped = jax.vmap(lambda row: collective(row, "rows"), axis_name="rows", out_axes=None)
    assert cycles(mapped, x) == cycles(lambda a: plain(a, axis=0), x) > 0


def test_rounding_to_fewer_bits_is_work():
    x = shape(512, 512)
    assert cycles(lambda a: lax.reduce_precision(a, 8, 7), x) > cycles(lambda a: a + a, x)


def test_updating_a_factor_is_cheaper_than_factoring_for_large_matrices_and_grows_with_its_square():
    small, large = (cycles(lax.linalg.cholesky_update, shape(n, n), shape(n)) for n in (512, 1024))
    assert 3 < large / small < 4.2


def test_a_symmetric_product_is_the_product_with_the_transpose():
    a, c = shape(256, 64), shape(256, 256)
    alone = cycles(lambda a, c: lax.linalg.symmetric_product(a, c), a, c)
    assert alone == pytest.approx(cycles(lambda a: jnp.einsum("ik,jk->ij", a, a), a), rel=0.05)
    assert cycles(lambda a, c: lax.linalg.symmetric_product(a, c, beta=1.0), a, c) > alone


def test_callbacks_with_effects_are_noted_and_checks_are_not():
    x = shape(16)
    noted = ipu_model.profile(lambda a: (io_callback(print, None, a), a + 1)[1], x)
    check = ipu_model.profile(lambda a: jax.pure_callback(np.all, shape(dtype=bool), a), x)
    assert not noted.unpriced
    assert noted.assumptions == ("1 callback(s) into Python: nothing is counted for them, nor for moving their data",)
    assert check.assumptions == ()


def test_a_complex_product_is_the_real_one_of_its_parts():
    z = ipu_model.profile(jnp.matmul, shape(128, 64, dtype=jnp.complex64), shape(64, 96, dtype=jnp.complex64))
    x = ipu_model.profile(jnp.matmul, shape(128, 128), shape(128, 192))
    assert z.cycles.flops == x.cycles.flops == 8 * 128 * 64 * 96
    assert z.cycles.compute == x.cycles.compute
    assert z.memory.total == pytest.approx(x.memory.total, rel=0.05)


def test_a_complex_convolution_has_twice_the_channels():
    def convolve(x, k):
        return lax.conv(x, k, (1, 1), "SAME")

    sizes = ((2, 16, 16, 16), (8, 16, 3, 3)), ((2, 32, 16, 16), (16, 32, 3, 3))
    z = ipu_model.profile(convolve, *(shape(*s, dtype=jnp.complex64) for s in sizes[0]))
    x = ipu_model.profile(convolve, *(shape(*s) for s in sizes[1]))
    assert z.cycles.flops == x.cycles.flops
    assert z.cycles.compute == x.cycles.compute


@pytest.mark.parametrize("target", ["mk2", "a100"])
@pytest.mark.parametrize(
    ("fn", "operations"), [(jnp.add, 2), (jnp.multiply, 6), (lambda a, b: jnp.sum(a * b, 0), 8), (jnp.abs, 4)]
)
def test_complex_numbers_are_worked_on_by_parts(fn, operations, target):
    count = 1 if fn is jnp.abs else 2
    z = ipu_model.profile(fn, *[shape(1024, 512, dtype=jnp.complex64)] * count, target=target)
    x = ipu_model.profile(fn, *[shape(1024, 512)] * count, target=target)
    assert z.cycles.flops == operations * 1024 * 512
    assert z.cycles.total > x.cycles.total


@pytest.mark.parametrize(
    ("fn", "least"),
    [
        (jnp.linalg.cholesky, 1.5),
        (lambda a: jax.scipy.linalg.solve_triangular(a, a[:, :4], lower=True), 1.5),
        (lambda a: jnp.linalg.eigh(a)[0], 3.5),
        (lambda a: jnp.linalg.qr(a)[1], 3.5),
        (lambda a: jnp.sort(a, 0), 1.05),
    ],
)
def test_solvers_of_complex_matrices_cost_more_than_real_ones(fn, least):
    z, x = (ipu_model.profile(fn, shape(96, 96, dtype=d)).total_cycles for d in (jnp.complex64, jnp.float32))
    assert least < z / x < 9


def test_every_complex_operation_costs_more_than_the_real_one():
    named = [jnp.exp, jnp.log, jnp.sin, jnp.tanh, jnp.sqrt, jnp.square, jnp.negative, jax.nn.sigmoid]
    others = [lambda a: a**5, lambda a: a / a, lambda a: a / a.sum(-1, keepdims=True), lambda a: a == a]
    for fn in (*named, *others, lambda a: a.sum(1)):
        z, x = (ipu_model.profile(fn, shape(256, 1024, dtype=d)) for d in (jnp.complex64, jnp.float32))
        assert z.cycles.compute > x.cycles.compute, fn
        assert not z.unpriced
