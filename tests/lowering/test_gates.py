"""The gates' sigmoid as the CPU computes it: to the accuracy of 1, infinities and NaN as they should be."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from popart_jax.lowering.kernels.lstm import logistic_by_tanh
from popart_jax.ops.kernels import tracing_for
from popart_jax.ops.recurrent_activations import logistic


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
    assert "tanh" in str(jax.make_jaxpr(lambda v: logistic(v))(x))
    for platform in ("gpu", "tpu", "ipu"):
        with tracing_for(platform):
            there = str(jax.make_jaxpr(lambda v: logistic(v))(x))
        assert "logistic" in there
        assert "tanh" not in there
