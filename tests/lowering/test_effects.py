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
    joined = View([a, b], _joined)
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


@pytest.mark.parametrize("seed", range(6))
def test_views_and_writes_at_random_are_those_of_numpy(seed):
    draw = np.random.default_rng(seed)
    forms = [
        lambda x: x.reshape(-1), lambda x: x.T, lambda x: x[::-1], lambda x: x[1:], lambda x: x.reshape(-1, 1),
        lambda x: x.reshape(2, -1) if x.size % 2 == 0 else x.reshape(1, -1),
    ]  # fmt: skip
    want = [np.arange(24, dtype=np.float32).reshape(4, 6)]
    got = [Cell(jnp.asarray(want[0]))]
    for step in range(60):
        at = int(draw.integers(len(want)))
        form = forms[draw.integers(len(forms))]
        if step % 3 == 0 and want[at].size > 2 and np.shares_memory(form(want[at]), want[0]):
            want.append(form(want[at]))
            got.append(View([got[at]], form))
        elif step % 3 == 1:
            want[at][...] = value = draw.normal(size=want[at].shape).astype(np.float32)
            got[at].set(jnp.asarray(value))
        at = int(draw.integers(len(want)))
        np.testing.assert_array_equal(got[at].get(), want[at])
    for storage, array in zip(got, want, strict=True):
        np.testing.assert_array_equal(storage.get(), array)


def test_a_chain_of_views_and_writes_costs_each_step_the_same():
    """A chain of 500 ended in a RecursionError; each read went through all of them."""
    length = 500

    def chain(x):
        first = last = Cell(x)
        for _ in range(length):
            last = View([last], lambda x: x.reshape(2, 3) if x.ndim == 1 else x.reshape(6))
            last.set(last.get() + 1)
        return last.get(), first.get()

    start = np.arange(6, dtype=np.float32)
    traced = jax.make_jaxpr(chain)(start)
    assert len(traced.eqns) < 6 * length
    for found in jax.jit(chain)(start):
        np.testing.assert_array_equal(found, start + length)


def test_slices_of_slices_nest_deeply():
    """A depth of 600 ended in a RecursionError."""
    depth = 600

    def write(x):
        cell = last = Cell(x)
        for _ in range(depth):
            last = View([last], lambda x: x[1:])
        last.set(last.get() + 1)
        return last.get(), cell.get()

    x = np.arange(depth + 4, dtype=np.float32)
    part, whole = jax.jit(write)(x)
    np.testing.assert_array_equal(part, x[depth:] + 1)
    np.testing.assert_array_equal(whole, [*x[:depth], *(x[depth:] + 1)])


def test_halves_that_are_joined_again_cost_each_level_the_same():
    """A write went through each of both halves of each level: 2**60 ways."""
    cell = last = Cell(jnp.arange(8.0))
    for _ in range(60):
        last = View([View([last], lambda x: x[4:]), View([last], lambda x: x[:4])], _joined)
    last.set(last.get() * 10)
    np.testing.assert_array_equal(cell.get(), np.arange(8) * 10)


@pytest.mark.parametrize("seed", range(6))
def test_views_of_several_storages_at_random_are_positions_in_memory(seed):
    draw = np.random.default_rng(seed)
    memory = np.arange(16, dtype=np.float32)
    known: list[tuple[Cell | View, np.ndarray]] = [(Cell(jnp.asarray(p * 1.0)), p) for p in np.split(np.arange(16), 2)]
    for step in range(40):
        (one, here), (other, there) = (known[draw.integers(len(known))] for _ in range(2))
        at = int(draw.integers(len(here)))
        if step % 4 == 0 and at:
            known.append((View([one], lambda x, at=at: x[:at]), here[:at]))
        elif step % 4 == 1:
            known.append((View([one], lambda x: x[::-1]), here[::-1]))
        elif step % 4 == 2 and not set(here) & set(there):
            known.append((View([one, other], _joined), np.concatenate([here, there])))
        memory[here] = memory[here] * 2 + step
        one.set(one.get() * 2 + step)
        np.testing.assert_array_equal(other.get(), memory[there])
        memory %= 512
        for root, positions in known[:2]:
            root.set(jnp.asarray(memory[positions]))
    for storage, positions in known:
        np.testing.assert_array_equal(storage.get(), memory[positions])


def _joined(x, y):
    return (np if isinstance(x, np.ndarray) else jnp).concatenate([x, y])
