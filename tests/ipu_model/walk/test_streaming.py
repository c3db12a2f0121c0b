"""Tensors in streaming memory: what is moved, how often, and how long it takes memory of the tiles."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import ipu_model
from ipu_model import Argument, Location

FAR = Location(on_chip=False)
ROWS, WIDTH = 8, 64 * 1024
BUFFER = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
ROW = jax.ShapeDtypeStruct((WIDTH,), jnp.float32)
AT = jax.ShapeDtypeStruct((), jnp.int32)
MK2 = ipu_model.get_target("mk2")


def moved(fn, *args, **how):
    """Bytes to and from streaming memory, where the first argument lies; the first result is written over it."""
    inputs = [Argument("buffer", "weight", FAR, donated_to=0)]
    report = ipu_model.profile(fn, *args, inputs=inputs, **how)
    assert ipu_model.Report.from_json(report.to_json()) == report
    return report.cycles.host / MK2.clock_hz * MK2.streaming_bytes_per_second


def put(buffer, row, at):
    return lax.dynamic_update_index_in_dim(buffer, row, at, 0)


@pytest.mark.parametrize(
    ("fn", "rows"),
    [
        (lambda b, x, i: (b, x + b[2]), 1),
        (lambda b, x, i: (b, x + lax.dynamic_index_in_dim(b, i, keepdims=False)), 1),
        (lambda b, x, i: (b, x + lax.dynamic_index_in_dim(b, i, keepdims=False) + b[i]), 2),
        (lambda b, x, i: (put(b, x, i), x), 1),
        (lambda b, x, i: (put(b, b[i] + x, i), x), 2),
        (lambda b, x, i: (b, x + b.sum(0)), ROWS),
        (lambda b, x, i: (b * 2.0, x), 2 * ROWS),
        (lambda b, x, i: (lax.fori_loop(0, 5, lambda k, b: put(b, x + b[k], k), b), x), 10),
        (lambda b, x, i: (lax.fori_loop(0, 5, lambda k, b: b * 2.0, b), x), 10 * ROWS),
        (lambda b, x, i: (lax.cond(i > 0, lambda b: put(b, x, i), lambda b: b, b), x), 1),
        (lambda b, x, i: (jax.jit(put)(b, x, i), x), 1),
    ],
)
def test_only_the_rows_that_are_named_are_moved(fn, rows):
    assert moved(fn, BUFFER, ROW, AT) == pytest.approx(4 * WIDTH * rows)


def test_what_is_written_back_leaves_the_tiles_when_it_is_made():
    """Three updates in turn need no more memory than one of them."""

    def update(states, g):
        with jax.named_scope("update"):
            return [0.9 * m + g * k for k, m in enumerate(states)]

    def peak(count, location):
        inputs = [Argument(f"m{k}", "optimizer_state", location, donated_to=k) for k in range(count)]
        report = ipu_model.profile(update, [BUFFER] * count, ROW, inputs=inputs)
        return sum(report.memory.not_always_by_tile), report.cycles.host

    (one, _), (three, cycles) = peak(1, FAR), peak(3, FAR)
    assert three < 1.2 * one
    assert cycles == pytest.approx(3 * peak(1, FAR)[1])
    assert peak(3, Location())[1] == 0
