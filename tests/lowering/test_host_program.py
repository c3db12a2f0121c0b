"""Programs computed by NumPy on the host: the results of XLA, the same after a way through JSON, None for the rest."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from popart_jax.host_program import HostProgram
from popart_jax.lowering.on_load.host_reader import host_program

RNG = np.random.default_rng(0)
W = RNG.standard_normal((6, 4, 3, 3))
SCALE, MEAN, VAR = RNG.standard_normal(6), RNG.standard_normal(6), RNG.random(6) + 0.5


def fold(w, scale, mean, var):
    """Batch normalisation folded into a convolution's weights, turned to channels last."""
    factor = scale / jnp.sqrt(var + 1e-5)
    offset = -mean * factor
    return jnp.transpose(w * factor[:, None, None, None], (2, 3, 1, 0)), jnp.broadcast_to(offset, (1, 1, 1, 6))


def shuffle(w, scale, mean, var):
    """Everything that moves data."""
    cut = lax.slice(w, (1, 0, 0, 1), (6, 4, 3, 3), (2, 1, 1, 1))
    whole = lax.concatenate([cut, lax.rev(cut, (0, 3))], 1)
    gates = jnp.expand_dims(scale.reshape(2, 3), 0)
    return whole, gates, gates.squeeze(0).T, lax.rsqrt(var), jnp.maximum(scale, mean), jnp.minimum(scale, mean) - var


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("function", [fold, shuffle])
def test_results_are_those_of_xla_also_after_json(function, dtype):
    args = [jnp.asarray(x, dtype) for x in (W, SCALE, MEAN, VAR)]
    program = host_program(jax.make_jaxpr(function)(*args))
    assert program is not None
    wanted = jax.tree.leaves(jax.jit(function)(*args))
    again = HostProgram.noted(json.loads(json.dumps(program.note)))
    accuracy = float(jnp.finfo(dtype).eps) * 4
    for found in (program(*args), again(*args)):
        for x, y in zip(found, wanted, strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype)
            np.testing.assert_allclose(x.astype("float32"), y.astype("float32"), rtol=accuracy, atol=accuracy)


def test_results_do_not_share_the_memory_of_the_arguments():
    x = jnp.arange(6.0).reshape(2, 3)
    program = host_program(jax.make_jaxpr(lambda x: x.reshape(6))(x))
    assert program is not None
    (flat,) = program(x)
    assert not np.shares_memory(np.asarray(flat), np.asarray(x))


def test_results_are_in_rows_aligned_and_keep_no_more_memory_than_they_have():
    x = jnp.arange(6400.0).reshape(20, 20, 16)

    def turned(x):
        rows = x.transpose(2, 1, 0).reshape(320, 20)
        return rows, rows[:16]

    program = host_program(jax.make_jaxpr(turned)(x))
    assert program is not None
    for found, wanted in zip(program(x), turned(x), strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.flags.c_contiguous
        assert not found.flags.writeable
        assert found.ctypes.data % 64 == 0
        owner = found
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        assert owner.nbytes <= found.nbytes + 64


def test_infinities_and_nan_pass_as_in_xla(recwarn):
    x = jnp.asarray([0.0, -0.0, np.inf, -1.0, np.nan, 1e38])
    function = lambda x: (x / (x - x), jnp.sqrt(x), x * 1e5, jnp.maximum(x, 0))  # noqa: E731
    program = host_program(jax.make_jaxpr(function)(x))
    assert program is not None
    for found, wanted in zip(program(x), function(x), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert not list(recwarn)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x @ x.T,
        lambda x: x // 2,
        lambda x: x.astype(jnp.int32),
        lambda x: x + np.arange(100.0).reshape(10, 10).astype(np.float32),
        lambda x: jax.random.uniform(jax.random.key(0), x.shape) + x,
    ],
)
def test_what_numpy_does_otherwise_or_slower_is_left_to_the_compiler(function):
    assert host_program(jax.make_jaxpr(function)(jnp.ones((10, 10)))) is None


def test_sizes_may_be_numbers_of_numpy():
    """A session over replicas makes its shapes with NumPy; a note holds plain numbers."""
    size, axis = np.int64(2), np.int64(1)

    def function(x):
        return lax.broadcast_in_dim(x, (size, x.shape[0]), (axis,))

    closed = jax.make_jaxpr(function)(MEAN)
    equation = closed.eqns[0]
    made = equation.replace(params={**equation.params, "shape": (size, np.int64(6)), "broadcast_dimensions": (axis,)})
    program = host_program(closed.replace(jaxpr=closed.jaxpr.replace(eqns=[made])))
    assert program is not None
    (found,) = HostProgram.noted(json.loads(json.dumps(program.note)))(np.asarray(MEAN, np.float32))
    np.testing.assert_array_equal(found, np.float32([MEAN, MEAN]))
