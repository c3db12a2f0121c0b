"""A program split in what its weights alone decide and the rest computes what it did."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from popart_jax._compat.jax import kept_call
from popart_jax.lowering.on_load.hoist import split

RNG = np.random.default_rng(0)
W, B, X = (RNG.normal(size=s).astype(np.float32) for s in ((3, 3), (3,), (5, 4, 3)))


@jax.custom_vjp
def turned(w, x):
    return x @ w.T


turned.defvjp(lambda w, x: (turned(w, x), None), lambda r, g: (g, g))


def plain(w, b, x):
    return jax.nn.relu(turned(w, x) * jnp.exp(w).sum() + jnp.where(b > 0, b, 0.0)), w


def looped(w, b, x):
    def body(total, row):
        y = turned(w, row) + jnp.tanh(b)
        return total + y.sum(), y

    return jax.lax.scan(body, jnp.float32(0), x)


def branched(w, b, x):
    def one():
        return turned(w, x) + jnp.tanh(b)

    return jax.lax.cond(x.sum() > 0, one, lambda: x * b), jax.lax.cond(x.sum() < 0, one, lambda: x * b)


def spread(w, b, x):
    wide = jnp.broadcast_to(b, x.shape)  # the rest reads it, and so does the sum of it, which is early
    return x * wide, wide.sum() * b


def primitives(closed) -> list[str]:
    found = []
    for eqn in closed.jaxpr.eqns:
        found.append(eqn.primitive.name)
        for inner in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")):
            found += primitives(inner) if hasattr(inner, "jaxpr") else []
    return found


@pytest.mark.parametrize("program", [plain, looped, branched, spread])
def test_both_halves_together_are_the_program(program):
    halves = split(jax.make_jaxpr(program)(W, B, X), [True, True, False])
    assert halves is not None
    made = jax.jit(halves.early)(W, B)
    for found, expected in zip(jax.jit(halves.late)(*made, X), jax.tree.leaves(program(W, B, X)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    late = primitives(jax.make_jaxpr(halves.late)(*made, X))
    assert "transpose" not in late
    assert not {"exp", "tanh"} & set(late)


def test_what_grows_stays():
    program = jax.make_jaxpr(lambda b, x: x + jnp.broadcast_to(jnp.exp(b), x.shape))(B, X)
    halves = split(program, [True, False])
    assert halves is not None
    assert max(np.size(v) for v in halves.early(B)) == B.size


def table(b):
    return jnp.cos(b[:, None] * b)


@pytest.mark.parametrize(
    ("size", "late", "program"),
    [
        (9, ["dot_general"], lambda b, x: x @ table(b)),
        (9, ["dot_general"], lambda b, x: x @ (b[:, None] @ b[None] + jnp.eye(3))),
        (9, ["mul"], lambda b, x: x[..., None] * jnp.broadcast_to(table(b), (5, 4, 3, 3))),
        (3, ["mul", "dot_general"], lambda b, x: x @ (b[:, None] * b)),
    ],
)
def test_what_grows_moves_with_what_costs(size, late, program):
    halves = split(jax.make_jaxpr(program)(B, X), [True, False])
    assert halves is not None
    made = halves.early(B)
    np.testing.assert_allclose(halves.late(*made, X)[0], program(B, X), rtol=1e-6)
    assert max(map(np.size, made)) == size
    rest = primitives(jax.make_jaxpr(halves.late)(*made, X))
    assert [name for name in rest if name in {"mul", "cos", "dot_general"}] == late


def test_a_kept_call_stays_whole():
    closed = jax.make_jaxpr(lambda w, x: kept_call(lambda w, x: x * w[:1] + w[1:2], w * 2, x))(B, X)
    halves = split(closed, [True, False])
    assert halves is not None
    (made,) = halves.early(B)
    np.testing.assert_allclose(made, 2 * B)
    text = jax.jit(halves.late).lower(made, X).compile().as_text()
    assert " call(" in text or jax.default_backend() != "cpu"
    np.testing.assert_allclose(jax.jit(halves.late)(made, X)[0], X * 2 * B[0] + 2 * B[1], rtol=1e-6)


def test_effects_stay():
    def program(b, x):
        jax.debug.callback(lambda v: None, jnp.sin(b))
        return x + jnp.sin(b)

    halves = split(jax.make_jaxpr(program)(B, X), [True, False])
    assert halves is not None
    assert not jax.make_jaxpr(halves.early)(B).effects
    assert jax.make_jaxpr(halves.late)(*halves.early(B), X).effects


def test_nothing_to_move():
    assert split(jax.make_jaxpr(lambda w, x: x @ w)(W, X), [True, False]) is None


def test_known_arguments_that_the_rest_reads_are_told_from_results() -> None:
    closed = jax.make_jaxpr(lambda w, b, x: (x @ w + jnp.exp(b), b))(W, B, X)
    halves = split(closed, [True, True, False])
    assert halves is not None
    early = halves.early(W, B)
    assert sorted(p for p in halves.passed if p is not None) == [0, 1]
    for value, place in zip(early, halves.passed, strict=True):
        if place is not None:
            assert value is (W, B)[place]
    assert len(early) == len(halves.passed) == 3
