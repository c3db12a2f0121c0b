"""Traffic between replicas, with the host and with streaming memory: the equations of rings, trees and links."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import ipu_model
from ipu_model import Argument, Location, ModelOptions, get_target

MK2 = get_target("mk2")
ELEMENTS = 1 << 20
BYTES = 4 * ELEMENTS
DATA = jax.ShapeDtypeStruct((ELEMENTS,), jnp.float32)


def collective(fn, replicas, target="mk2", **options):
    jaxpr = jax.make_jaxpr(fn, axis_env=[("replica", replicas)])(DATA)
    how = ModelOptions(replicas=replicas, axis_sizes={"replica": replicas}, **options)
    return ipu_model.profile_jaxpr(jaxpr, target=target, options=how).cycles.inter_ipu


def wire(size, target=MK2):
    """Cycles of so many bytes over all links of an IPU, one direction."""
    return size / (target.links_per_ipu * target.link_bytes_per_second * target.link_efficiency) * target.clock_hz


@pytest.mark.parametrize("n", [2, 4, 16, 64])
def test_a_ring_sends_everything_round_twice(n):
    found = collective(lambda x: lax.psum(x, "replica"), n)
    assert found == pytest.approx(2 * (n - 1) / n * wire(BYTES) + 2 * (n - 1) * MK2.external_sync_cycles)


@pytest.mark.parametrize("n", [2, 16])
def test_half_of_a_ring_scatters_or_gathers(n):
    once = (n - 1) * MK2.external_sync_cycles
    scatter = collective(lambda x: lax.psum_scatter(x, "replica", tiled=True), n)
    assert scatter == pytest.approx((n - 1) / n * wire(BYTES) + once)
    gather = collective(lambda x: lax.all_gather(x, "replica"), n)
    assert gather == pytest.approx((n - 1) / n * wire(n * BYTES) + once)


def test_a_tree_has_fewer_hops_and_more_bytes():
    tree = collective(lambda x: lax.psum(x, "replica"), 64, all_reduce="tree")
    assert tree == pytest.approx(2 * wire(BYTES) + 2 * math.log2(64) * MK2.external_sync_cycles)


def test_a_card_of_four_links_is_slower_than_ten():
    c600 = get_target("c600")
    found = collective(lambda x: lax.psum(x, "replica"), 2, "c600")
    assert found == pytest.approx(wire(BYTES, c600) + 2 * c600.external_sync_cycles)


def update(w, m, g):
    with jax.named_scope("update"):
        m = 0.9 * m + g
        return w - 0.1 * m, m


def optimizer(location, replicas=1):
    inputs = [Argument("w", "weight", donated_to=0), Argument("m", "optimizer_state", location, 1), Argument("g")]
    outputs = [Argument("w", "weight"), Argument("m", "optimizer_state", location)]
    return ipu_model.profile(update, DATA, DATA, DATA, inputs=inputs, outputs=outputs, replicas=replicas)


def test_off_chip_optimizer_state_is_read_and_written_once():
    on, off = optimizer(Location()), optimizer(Location(on_chip=False))
    assert on.cycles.host == 0
    assert off.cycles.host == pytest.approx(2 * BYTES / MK2.streaming_bytes_per_second * MK2.clock_hz)
    assert on.memory.categories.keys() >= off.memory.categories.keys()
    always = [sum(r.memory.always_by_tile) for r in (on, off)]
    assert always[0] - always[1] > 0.9 * BYTES


def test_each_replica_moves_its_part_of_sharded_state():
    whole, parts = (optimizer(Location(False, sharded), 4) for sharded in (False, True))
    assert parts.cycles.host == pytest.approx(whole.cycles.host / 4)


def test_sharded_weights_are_gathered_before_use():
    def fn(w, x):
        return x @ w

    w, x = jax.ShapeDtypeStruct((256, 256), jnp.float32), jax.ShapeDtypeStruct((8, 256), jnp.float32)

    def profile(location):
        return ipu_model.profile(fn, w, x, inputs=[Argument("w", "weight", location)], replicas=4)

    whole, parts = profile(Location()), profile(Location(sharded=True))
    assert whole.cycles.inter_ipu == 0
    assert parts.cycles.inter_ipu == pytest.approx(3 / 4 * wire(4 * 256**2) + 3 * MK2.external_sync_cycles)
    far = profile(Location(on_chip=False, sharded=True))
    assert far.cycles.host == pytest.approx(4 * 256**2 / 4 / MK2.streaming_bytes_per_second * MK2.clock_hz)
    assert far.cycles.inter_ipu == parts.cycles.inter_ipu


def test_host_streams_take_bytes_over_rate():
    inputs, outputs = [Argument("x", "stream")], [Argument("y", "stream")]
    report = ipu_model.profile(lambda x: x + 1.0, DATA, inputs=inputs, outputs=outputs)
    seconds = BYTES / MK2.host_in_bytes_per_second + BYTES / MK2.host_out_bytes_per_second
    assert report.cycles.host == pytest.approx(seconds * MK2.clock_hz)
