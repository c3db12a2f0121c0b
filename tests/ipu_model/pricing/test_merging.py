"""Collectives that go round the ring together pay the way once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import ipu_model
from ipu_model import target
from ipu_model.costs.collectives import MERGED
from ipu_model.options import MERGEABLE

MK2 = target.get("mk2")
ALL_REDUCE = ("all_reduce",)


def links(tensors: int, **options) -> float:
    def step(*xs):
        return lax.psum(xs, "replica")

    shapes = [jax.ShapeDtypeStruct((1024,), jnp.float32)] * tensors
    jaxpr = jax.make_jaxpr(step, axis_env=[("replica", 8)])(*shapes)
    chosen = ipu_model.ModelOptions(replicas=8, axis_sizes={"replica": 8}, **options)
    return ipu_model.profile_jaxpr(jaxpr, options=chosen).cycles.inter_ipu


@pytest.mark.parametrize("how", ["ring", "tree"])
def test_merged_collectives_pay_the_way_once_and_the_data_as_before(how):
    hops = 2 * 7 if how == "ring" else 2 * 3
    apart, together = (links(5, all_reduce=how, merge_collectives=merge) for merge in ((), ALL_REDUCE))
    assert apart - together == pytest.approx(4 * hops * MK2.external_sync_cycles)
    assert apart == pytest.approx(5 * links(1, all_reduce=how))


def test_one_collective_has_nothing_to_merge_with():
    assert links(1, merge_collectives=ALL_REDUCE) == links(1)


def test_only_the_kinds_named_are_merged():
    assert links(5, merge_collectives=("all_gather",)) == links(5)
    assert set(MERGED) == set(MERGEABLE)
