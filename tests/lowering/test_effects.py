"""Storages, views and calls: what in-place graphs are made of."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
import pytest

from popart_jax.lowering.effects import Cell, View, effect_of

VIEWS = {
    "reshape": lambda x: x.reshape(3, 2),
    "transpose": lambda x: x.T,
    "slice": lambda x: x[:, 1:],
    "row": lambda x: x[1:2],
    "reversed": lambda x: x[::-1],
}


@pytest.mark.parametrize("name", sorted(VIEWS))
@pytest.mark.parametrize("traced", [False, True])
def test_writing_through_a_view_is_writing_in_numpy(name, traced):
    fn = VIEWS[name]
    base = np.arange(6, dtype=np.float32).reshape(2, 3)

    def write(start):
        cell = Cell(start)
        view = View([cell], fn)
        view.set(view.get() * 10)
        return cell.get()

    got = jax.jit(write)(base) if traced else write(jnp.asarray(base))
    want = base.copy()
    part = fn(want)
    part *= 10
    assert np.shares_memory(part, want)
    np.testing.assert_array_equal(got, want)


def test_a_view_of_several_storages():
    a, b = Cell(jnp.zeros((2, 2))), Cell(jnp.ones((1, 2)))
    joined = View([a, b], lambda x, y: (np if isinstance(x, np.ndarray) else jnp).concatenate([x, y]))
    joined.set(jnp.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(a.get(), [[0, 1], [2, 3]])
    np.testing.assert_array_equal(b.get(), [[4, 5]])
    a.set(jnp.full((2, 2), 7.0))
    np.testing.assert_array_equal(joined.get(), [[7, 7], [7, 7], [4, 5]])


def test_views_of_views():
    cell = Cell(jnp.arange(6.0))
    square = View([cell], lambda x: x.reshape(2, 3))
    column = View([square], lambda x: x[:, 0])
    column.set(jnp.asarray([10.0, 20.0]))
    np.testing.assert_array_equal(cell.get(), [10, 1, 2, 20, 4, 5])
    assert column.shape == (2,)


def test_effects_of_nodes():
    x = ir.Value(name="x")
    pure = ir.Node("", "Relu", [x])
    assert effect_of(pure) is None
    writing = ir.Node("", "Relu", [x], [ir.AttrInt64s("__writes", [0, 0])])
    found = effect_of(writing)
    assert found is not None
    assert found.writes == ((0, 0),)
