"""Rows of operations of plain functions: one for each line of code, and for each way to it where there are several."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import ipu_model

X = jax.ShapeDtypeStruct((8, 8), jnp.float16)


def dense(x, w):
    return x @ w


@jax.jit
def squashed(x):
    return jnp.tanh(x)


def layer(x, w):
    up = dense(x, w)
    down = dense(squashed(up), w)
    return squashed(down)


def line(fn, add):
    return f"test_operations.py:{fn.__code__.co_firstlineno + add}"


DENSE, UP, DOWN, LAST = line(dense, 1), *(line(layer, k) for k in (1, 2, 3))
SQUASHED = line(squashed.__wrapped__, 2)


def names(fn, *args):
    return [(row.name, row.primitives) for row in ipu_model.profile(fn, *args).operations if row.cycles.total]


def test_lines_of_a_helper_are_told_apart_by_who_calls_it():
    def model(x, ws):
        for w in ws:  # layers of one line are one row
            x = layer(x, w)
        return x

    assert names(model, X, [X] * 3) == [
        (f"{UP}/{DENSE}", ("dot_general",)),
        (f"{DOWN}/{SQUASHED}", ("tanh",)),
        (f"{DOWN}/{DENSE}", ("dot_general",)),
        (f"{LAST}/{SQUASHED}", ("tanh",)),
    ]


def test_the_outermost_choice_is_named_too():
    def model(x, w):
        x = layer(x, w)
        return layer(x, w)

    first, second = line(model, 1), line(model, 2)
    found = [name for name, _ in names(model, X, X)]
    assert [name for name in found if name.endswith(DENSE)] == [
        f"{place}/{DENSE}" for place in (f"{first}/{UP}", f"{first}/{DOWN}", f"{second}/{UP}", f"{second}/{DOWN}")
    ]


def test_within_a_scope_and_in_both_passes():
    def model(w, x):
        with jax.named_scope("block"):
            return layer(x, w).sum()

    report = ipu_model.profile(jax.grad(model), X, X)
    products = {(row.name, row.phase) for row in report.operations if "dot_general" in row.primitives}
    assert products == {(f"block/{place}/{DENSE}", phase) for place in (UP, DOWN) for phase in ("forward", "backward")}


def test_bodies_of_loops_have_the_line_of_the_loop_once():
    def model(x, w):
        first = jax.lax.fori_loop(0, 3, lambda _, c: dense(c, w), x)
        return jax.lax.fori_loop(0, 3, lambda _, c: dense(c, w), first)

    rows = [name for name, kinds in names(model, X, X) if "dot_general" in kinds]
    assert rows == [f"{line(model, k)}/{DENSE}" for k in (1, 2)]
