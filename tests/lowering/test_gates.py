"""The gates' sigmoid as the CPU computes it: to the accuracy of 1, infinities and NaN as they should be."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from popart_jax.lowering.kernels.lstm import logistic_by_tanh
from popart_jax.ops.elementwise import accurate_tanh
from popart_jax.ops.kernels import tracing_for
from popart_jax.ops.recurrent import lstm_scan
from popart_jax.ops.recurrent_activations import logistic
from popart_jax.ops.recurrent_scan import Projected


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_values_and_slopes_are_those_of_the_sigmoid(dtype):
    x = np.linspace(-30, 30, 2001)
    given = jax.numpy.asarray(x, dtype)
    exact = 1 / (1 + np.exp(-np.asarray(given, np.float64)))
    accuracy = float(jax.numpy.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(logistic_by_tanh(given), np.float64), exact, atol=accuracy)
    slope = jax.vmap(jax.grad(lambda v: logistic_by_tanh(v)))(given)
    np.testing.assert_allclose(np.asarray(slope, np.float64), exact * (1 - exact), atol=accuracy)
    assert logistic_by_tanh(given).dtype == given.dtype


def test_infinities_and_nan():
    found = np.asarray(logistic_by_tanh(np.asarray([-np.inf, np.inf, np.nan, 0, -0.0], np.float32)))
    np.testing.assert_array_equal(found, np.asarray([0, 1, np.nan, 0.5, 0.5], np.float32))


def test_only_the_cpu_computes_it_so():
    x = np.ones(3, np.float32)
    with tracing_for("cpu"):
        assert "tanh" in str(jax.make_jaxpr(lambda v: logistic(v))(x))
    for platform in ("gpu", "tpu", "ipu"):
        with tracing_for(platform):
            there = str(jax.make_jaxpr(lambda v: logistic(v))(x))
        assert "logistic" in there
        assert "tanh" not in there


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.usefixtures("optimised")
def test_exact_gates_that_are_nearly_shut():
    """One step from nothing: c = sigmoid(i) tanh(g), h = sigmoid(o) tanh(c)."""
    i, o, g = np.meshgrid(*[np.linspace(-16, 4, 9, dtype=np.float32)] * 3)
    xs = np.stack([i.ravel(), o.ravel(), i.ravel(), g.ravel()], axis=1)[None]
    nothing = np.zeros((xs.shape[1], 1), np.float32)
    r, state = np.zeros((4, 1), np.float32), (nothing, nothing)
    (h, c), _ = jax.jit(lambda x: lstm_scan(False, True, Projected(x), r, state, None))(xs)
    cell = _sigmoid(i.astype(np.float64)) * np.tanh(g.astype(np.float64))
    np.testing.assert_allclose(np.ravel(c), cell.ravel(), rtol=1e-6)
    np.testing.assert_allclose(np.ravel(h), (_sigmoid(o.astype(np.float64)) * np.tanh(cell)).ravel(), rtol=1e-6)


@pytest.mark.usefixtures("optimised")
def test_the_slope_of_tanh_where_it_saturates():
    x = np.linspace(-6, 6, 1001, dtype=np.float32)
    slope = jax.vmap(jax.grad(lambda v: accurate_tanh(v)))(x)
    np.testing.assert_allclose(slope, 1 / np.cosh(x.astype(np.float64)) ** 2, rtol=6e-3, atol=1e-7)
