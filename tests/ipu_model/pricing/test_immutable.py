"""Pricing leaves the program as it is: to price again says the same, and nothing twice."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import pytest

import ipu_model
from ipu_model import NodePlacement, Placement
from ipu_model.costs import Context
from ipu_model.pricing.price import price

MK2 = ipu_model.get_target("mk2")


def loss(w: jax.Array, x: jax.Array) -> jax.Array:
    with jax.named_scope("onnx[dense]"):
        return jnp.sum(jnp.tanh(x @ w))


@pytest.fixture
def program() -> ipu_model.Program:
    return ipu_model.trace(jax.make_jaxpr(jax.grad(loss))(jnp.ones((8, 8)), jnp.ones((4, 8))))


def test_pricing_twice_says_the_same(program) -> None:
    again = Placement({"dense": NodePlacement(recompute=True)}, 1, False)
    context = Context(MK2, ipu_model.ModelOptions())
    first, second = (price(program, context, again) for _ in range(2))
    assert first.assumptions == second.assumptions
    assert [a for a in first.assumptions if "recomputed" in a] == [
        "1 node(s) are recomputed for the backward pass, counted twice"
    ]
    assert first.trips == second.trips
    plain = price(program, context, Placement({}, 1, False))
    assert not plain.assumptions
    assert sum(first.trips) > sum(plain.trips)


def test_a_price_can_not_be_changed(program) -> None:
    priced = price(program, Context(MK2, ipu_model.ModelOptions()), Placement({}, 1, False))
    with pytest.raises(dataclasses.FrozenInstanceError):
        priced.trips = ()
    assert all(isinstance(x, tuple) for x in (priced.prices, priced.costs, priced.trips, priced.ipus, priced.into))
