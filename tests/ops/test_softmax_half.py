"""Softmax of half precision rounds once, whatever arithmetic the processor has; its gradient too."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from popart_jax.ops.softmax import log_softmax, softmax


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_results_are_the_nearest_numbers(dtype: Any, name: str) -> None:
    x = np.random.default_rng(0).normal(0, 2, (16, 200)).astype(dtype)
    g = np.random.default_rng(1).normal(size=x.shape).astype(dtype)
    wide, slope = x.astype(np.float64), g.astype(np.float64)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    y = powers / powers.sum(1, keepdims=True)
    wanted = y if name == "softmax" else np.log(y)
    fn = {"softmax": softmax, "log_softmax": log_softmax}[name]
    found, back = jax.jit(lambda x: jax.vjp(lambda x: fn(x, 1), x))(x)
    half_a_step = float(ml_dtypes.finfo(dtype).eps) / 2
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=1.01 * half_a_step, atol=1e-7)
    saved = np.asarray(found, np.float64) if name == "softmax" else y
    gradient = saved * (slope - (saved * slope).sum(1, keepdims=True))
    if name == "log_softmax":
        gradient = slope - y * slope.sum(1, keepdims=True)
    (gradients,) = back(g)
    largest = np.abs(gradient).max()
    np.testing.assert_allclose(
        np.asarray(gradients, np.float64), gradient, rtol=half_a_step, atol=half_a_step * largest
    )
