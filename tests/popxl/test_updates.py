"""In-place operators and variable updates against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.errors import popart_exception
from popart_jax.popxl import ops
from popart_jax.popxl.ops import var_updates as vu

T = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)


def after(update, *others, initial=T):
    """Value of a variable after `update(variable, *others)` ran once, and of the update's own result."""
    ir = popxl.Ir()
    with ir.main_graph:
        t = popxl.variable(initial, name="t")
        out = update(t, *[popxl.constant(o) for o in others])
        sink = popxl.d2h_stream(out.shape, out.dtype)
        ops.host_store(sink, out)
    session = popxl.Session(ir)
    with session:
        sent = session.run()[sink]
    value = session.get_tensor_data(t)
    np.testing.assert_array_equal(sent, value)
    return value


f = np.float32(0.3)
CASES = {
    "add_": (ops.add_, lambda t, x: t + x),
    "scaled_add_": (lambda t, x: ops.scaled_add_(t, x, 2.0, -0.5), lambda t, x: 2 * t - 0.5 * x),
    "scaled_add_ by tensors": (
        lambda t, x: ops.scaled_add_(t, x, popxl.constant(2.0), popxl.constant(-0.5)),
        lambda t, x: 2 * t - 0.5 * x,
    ),
    "accumulate_": (vu.accumulate_, lambda t, x: t + x),
    "accumulate_ f": (lambda t, x: vu.accumulate_(t, x, 0.3), lambda t, x: t + f * x),
    "accumulate_ tensor": (lambda t, x: vu.accumulate_(t, x, popxl.constant(f)), lambda t, x: t + f * x),
    "accumulate_square_": (lambda t, x: vu.accumulate_square_(t, x, 0.3), lambda t, x: t + f * x * x),
    "accumulate_mean_": (lambda t, x: vu.accumulate_mean_(t, x, 2.0), lambda t, x: t * 2 / 3 + x / 3),
    "moving_average": (lambda t, x: vu.accumulate_moving_average_(t, x, 0.3), lambda t, x: f * t + (1 - f) * x),
    "moving_average_square": (
        lambda t, x: vu.accumulate_moving_average_square_(t, x, 0.3),
        lambda t, x: f * t + (1 - f) * x * x,
    ),
    "accumulator_scale_": (lambda t, x: vu.accumulator_scale_(t, 0.3), lambda t, x: f * t),
    "copy_var_update_": (vu.copy_var_update_, lambda t, x: x),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_updates(name):
    update, reference = CASES[name]
    np.testing.assert_allclose(after(update, X), reference(T, X), rtol=1e-5, atol=1e-6)


UNARY = ["exp", "relu", "gelu", "geluerf", "swish"]


@pytest.mark.parametrize("name", UNARY)
def test_in_place_unary_equals_the_pure_form(name):
    from .run import forward

    want = forward(getattr(ops, name), T)
    np.testing.assert_allclose(after(getattr(ops, f"{name}_")), want, rtol=1e-6)


def test_zero_clears_nan():
    broken = T.copy()
    broken[0, 0] = np.nan
    np.testing.assert_array_equal(after(vu.accumulator_zero_, initial=broken), np.zeros_like(T))


def test_sparse_accumulate():
    rows = np.array([2, 0, 2], np.int32)
    want = T.copy()
    np.add.at(want, rows, 0.5 * X)
    got = after(lambda t, x, i: vu.sparse_accumulate_(t, x, i, f=0.5), X, rows)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_mixed_types_keep_the_target():
    half = X.astype(np.float16)
    got = after(vu.accumulate_, half)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, T + half.astype(np.float32), rtol=1e-6)


def adam(m, v, t, b1, b2, eps):
    return (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)


def test_adam_increments_its_step_first():
    m, v = X, np.abs(T)
    ir = popxl.Ir()
    with ir.main_graph:
        first, second = popxl.variable(m), popxl.variable(v)
        step, weight = popxl.variable(np.float32(0), name="step"), popxl.variable(T, name="w")
        out = vu.adam_updater(first, second, weight, step, 0.01, 0.9, 0.99, 1e-6)
        assert out.name == "Updater"
        sink = popxl.d2h_stream(out.shape, out.dtype)
        ops.host_store(sink, out)
    session = popxl.Session(ir)
    with session:
        for t in (1, 2):
            got = session.run()[sink]
            np.testing.assert_allclose(got, adam(m, v, t, 0.9, 0.99, 1e-6) + 0.01 * T, rtol=1e-4)
    assert session.get_tensor_data(step) == 2


def test_other_updaters_and_lamb():
    m, v = X, np.abs(T)
    from .run import forward

    got = forward(lambda a, b: vu.adam_updater(a, b, epsilon=1e-6), m, v)
    np.testing.assert_allclose(got, m / (np.sqrt(v) + 1e-6), rtol=1e-4)
    got = forward(lambda a, b, s: vu.adamax_updater(a, b, time_step=s, beta1=0.9, epsilon=1e-6), m, v, np.float32(1))
    np.testing.assert_allclose(got, m / (1 - 0.9**2) / (v + 1e-6), rtol=1e-4)
    r1, r2 = np.float32(np.sum(T * T)), np.float32(np.sum(X * X))
    got = after(lambda t, x, a, b: vu.adam_var_update(t, x, a, b, 0.1, 1.5), X, r1, r2)
    ratio = min(np.sqrt(r1), 1.5) / np.sqrt(r2)
    np.testing.assert_allclose(got, T - ratio * 0.1 * X, rtol=1e-4, atol=1e-6)


def test_updater_errors():
    ir = popxl.Ir()
    with ir.main_graph:
        a = popxl.variable(T)
        s = popxl.variable(np.float32(0))
        with pytest.raises(ValueError, match="Bias correction requires both beta1 and beta2 to not be None"):
            vu.adam_updater(a, a, time_step=s, beta1=0.9)
        with pytest.raises(ValueError, match="Weight decay requires weight to not be None"):
            vu.lamb_updater(a, a, weight_decay=0.1)
        with pytest.raises(ValueError, match="AdaMax requires time_step to not be None"):
            vu.adamax_updater(a, a)
        with pytest.raises(popart_exception):
            ops.add_(s, a)
        with pytest.raises(ValueError, match="The remote_code_load op cannot load the code"):
            ops.remote_code_load(ir.main_graph, "executable")
        g = ir.create_empty_graph()
        with pytest.raises(NotImplementedError, match="not supported"):
            ops.remote_code_load(g, "io_buffer")
        with pytest.raises(NotImplementedError, match="not supported"):
            ops.remote_code_load(g, "elsewhere")
        with pytest.raises(ValueError, match="Not a valid reduction"):
            ops.nll_loss(a, a, reduction="all")
        with pytest.raises(ValueError, match="Unknown init_type"):
            ops.init((2,), popxl.float32, init_type="ones")


@pytest.mark.parametrize("name", sorted(set(CASES) - {"accumulator_scale_"}))
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 4), (4, 3)])
def test_an_update_of_another_shape_is_refused(name, shape):
    update, _ = CASES[name]
    with pytest.raises(popart_exception, match=r"shape|broadcast"):
        after(update, np.ones(shape, np.float32))


def test_whole_numbers_stay_whole():
    ir = popxl.Ir()
    with ir.main_graph:
        whole = ops.exp(popxl.variable(np.array([1, 2], np.int32)))
        sink = popxl.d2h_stream((2,), popxl.float32)
        ops.host_store(sink, ops.cast(whole, popxl.float32))
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], [2.0, 7.0])
