"""Forward mode and second derivatives of operators that have a gradient rule of their own, against differences."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from popart_jax import custom_op
from popart_jax._compat.jax import enable_x64

from .single import function

RNG = np.random.default_rng(5)
POSITIVE = RNG.uniform(0.3, 2.0, (2, 3))
IMAGE = (1.0 + RNG.permutation(150).reshape(2, 3, 5, 5)) / 17.0
STEPS, BATCH, SIZE, HIDDEN = 4, 2, 3, 2


def gated(gates: int) -> list[np.ndarray]:
    shapes = [(STEPS, BATCH, SIZE), (1, gates * HIDDEN, SIZE), (1, gates * HIDDEN, HIDDEN), (1, 2 * gates * HIDDEN)]
    return [RNG.normal(size=s) for s in shapes]


CASES: list[tuple[str, list[Any], int, dict[str, Any]]] = [
    *((op, [POSITIVE], 0, {}) for op in ("Sqrt", "Log", "Abs", "Mish", "Softplus", "Selu", "Gelu", "ReduceL2")),
    *((op, [POSITIVE], 0, {}) for op in ("Softmax", "LogSoftmax", "ReduceMax", "ReduceLogSumExp", "ReduceProd")),
    ("Pow", [POSITIVE, POSITIVE * 2], 0, {}),
    ("Pow", [POSITIVE, POSITIVE * 2], 1, {}),
    ("Max", [POSITIVE, POSITIVE[::-1].copy()], 0, {}),
    ("Clip", [POSITIVE, np.float64(0.4), np.float64(1.5)], 0, {}),
    ("MaxPool", [IMAGE], 0, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("MaxPool", [IMAGE], 0, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("MaxPool", [IMAGE], 0, {"kernel_shape": [5, 5]}),
    ("GlobalMaxPool", [IMAGE], 0, {}),
    ("LpPool", [IMAGE], 0, {"kernel_shape": [2, 2], "p": 3}),
    ("InstanceNormalization", [IMAGE, POSITIVE[0], POSITIVE[1]], 0, {}),
    ("RNN", gated(1), 1, {"hidden_size": HIDDEN}),
]
GATED: list[tuple[str, list[Any], int, dict[str, Any]]] = [
    ("LSTM", gated(4), 0, {"hidden_size": HIDDEN}),
    ("LSTM", gated(4), 2, {"hidden_size": HIDDEN, "activations": ["Sigmoid", "Tanh", "Softsign"]}),
    ("LSTM", [*gated(4), np.array([3, 2], np.int32)], 1, {"hidden_size": HIDDEN}),
    ("GRU", gated(3), 2, {"hidden_size": HIDDEN}),
]
LONG = [pytest.param(*case, marks=pytest.mark.sweep) for case in GATED]


@pytest.mark.parametrize(("op", "inputs", "which", "attributes"), [*CASES, *LONG])
def test_forward_mode_and_second_derivatives(op: str, inputs: list[Any], which: int, attributes: Any) -> None:
    check(function(op, inputs, **attributes), inputs, which)


def check(fn: Any, inputs: list[Any], which: int) -> None:
    def f(x: Any) -> Any:
        (y, *_) = fn(*inputs[:which], x, *inputs[which + 1 :])
        return (y * jnp.cos(1.0 + jnp.arange(y.size)).reshape(y.shape)).sum()

    x, step = np.asarray(inputs[which]), 1e-5
    direction = np.random.default_rng(8).normal(size=x.shape)
    slope = jax.grad(f)

    def derivatives(x: Any, *ends: Any) -> dict[str, tuple[Any, Any]]:
        """Each derivative, and the same from differences or by a simpler way."""
        first, second = ((g(ends[0]) - g(ends[1])) / (2 * step) for g in (f, slope))
        many = jnp.stack([x, 0.9 * x])
        return {
            "jvp": (jax.jvp(f, (x,), (direction,))[1], first),
            "jacfwd": (jax.jacfwd(f)(x), slope(x)),
            "jvp of grad": (jax.jvp(slope, (x,), (direction,))[1], second),
            "grad of grad": (jax.grad(lambda v: jnp.vdot(slope(v), direction))(x), second),
            "hessian": (jnp.tensordot(jax.hessian(f)(x), direction, x.ndim), second),
            "vmap of grad": (jax.vmap(slope)(many)[1], slope(0.9 * x)),
            "vmap of jacfwd": (jax.vmap(jax.jacfwd(f))(many)[0], slope(x)),
        }

    with enable_x64(True):
        found = jax.jit(derivatives)(x, *(x + s * step * direction for s in (1, -1)))
    for name, (ours, expected) in found.items():
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("op", "more"), [("Sqrt", []), ("Log", []), ("Pow", [np.float32(0.5)])])
def test_masked_branches_stay_finite_in_every_mode(op: str, more: list[Any]) -> None:
    x = np.asarray([0.0, -1.0, 4.0], np.float32)
    fn = function(op, [x, *more])

    def f(v: Any) -> Any:
        return jnp.sum(jnp.where(v > 0, fn(v, *more)[0], 0.0))

    ways = (jax.hessian(f), jax.jacrev(jax.jacrev(f)), jax.jacfwd(jax.jacfwd(f)))
    forward, reverse, *seconds = jax.jit(lambda v: [jax.jacfwd(f)(v), jax.grad(f)(v), *(way(v) for way in ways)])(x)
    np.testing.assert_allclose(forward, reverse, rtol=1e-6)
    assert np.all(np.isfinite(reverse))
    for second in seconds:
        assert np.all(np.isfinite(second))
        np.testing.assert_allclose(second[:2], 0)


def test_ties_of_a_pool_count_the_same_forward() -> None:
    x = np.ones((1, 1, 2, 2), np.float32)
    fn = function("MaxPool", [x], kernel_shape=[2, 2])
    np.testing.assert_array_equal(jax.jacfwd(lambda v: fn(v)[0].sum())(x), np.ones_like(x))


def test_a_custom_gradient_holds_in_forward_mode() -> None:
    def doubled(cotangents: Any, inputs: Any, outputs: Any) -> Any:
        return 2 * cotangents[0] * inputs[1], None

    @custom_op("test.forward", "Scaled", 1, gradient=doubled)
    def scaled(x, factor, /):
        return x * factor

    x, factor = np.asarray([1.0, 2.0]), np.asarray([3.0, 4.0])
    fn = function("Scaled", [x, factor], domain="test.forward")
    np.testing.assert_allclose(jax.jvp(lambda v: fn(v, factor)[0], (x,), (x,))[1], 2 * x * factor)
    np.testing.assert_allclose(jax.grad(lambda v: fn(v, factor)[0].sum())(x), 2 * factor)
    np.testing.assert_allclose(jax.grad(lambda w: fn(x, w)[0].sum())(factor), 0)
