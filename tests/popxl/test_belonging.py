"""What belongs to another Ir, or is for another number of replicas, is refused where it is used."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popart_exception, popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons import ops as addons_ops

ONES = np.ones((2,), np.float32)


def run(ir, t):
    with ir.main_graph:
        sink = popxl.d2h_stream(t.shape, t.dtype)
        ops.host_store(sink, t)
    with popxl.Session(ir, "ipu_model") as session:
        return session.run()[sink]


def test_things_of_another_ir():
    other, ir = popxl.Ir(), popxl.Ir()
    with other.main_graph:
        buffer, source = popxl.remote_buffer((2,), popxl.float32), popxl.h2d_stream((2,), popxl.float32)
        sink, graph = popxl.d2h_stream((2,), popxl.float32), other.create_graph(lambda x: x + 1, popxl.variable(ONES))
    with ir.main_graph:
        t, yes = popxl.variable(ONES), popxl.constant(True)
        for name, use in (
            ("remote_buffer", lambda: ops.remote_load(buffer, 0)),
            ("remote_buffer", lambda: ops.remote_load_(buffer, 0, t)),
            ("remote_buffer", lambda: ops.remote_store(buffer, 0, t)),
            ("remote_buffer", lambda: popxl.remote_variable(ONES, buffer)),
            ("h2d_stream", lambda: ops.host_load(source)),
            ("d2h_stream", lambda: ops.host_store(sink, t)),
            ("graph", lambda: ops.call(graph, t)),
            ("graph", lambda: ops.repeat(graph, 2, t)),
            ("graph", lambda: ops.conditional(yes, graph, graph, [t], [t])),
            ("graph", lambda: ops.remote_code_load(graph, "executable")),
        ):
            with pytest.raises(ValueError, match=rf"`{name}` .* belongs to Ir\[id={other.id}\]"):
                use()


def test_groupings_of_another_ir_or_number_of_replicas():
    ir = popxl.Ir(replication=4)
    early = ir.replica_grouping(1, 2)
    ir.replication_factor = 2
    with ir.main_graph:
        t = popxl.variable(ONES)
        for foreign in (early, popxl.Ir(replication=2).replica_grouping()):
            for use in (
                lambda group: popxl.variable(ONES, replica_grouping=group),
                lambda group: popxl.replica_sharded_variable(ONES, replica_grouping=group),
                lambda group: ops.collectives.replicated_all_reduce(t, group=group),
            ):
                with pytest.raises(ValueError, match="does not fit"):
                    use(foreign)
        with pytest.raises(TypeError, match=r"must be of type popxl\.ReplicaGrouping"):
            ops.collectives.replicated_all_reduce(t, group=2)


def test_what_all_replicas_share_follows_a_factor_that_is_set_later():
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        v = popxl.variable(ONES)
        ir.replication_factor = 4
        total = ops.collectives.replicated_all_reduce(v)
    np.testing.assert_array_equal(run(ir, total), np.full((4, 2), 4.0))


@pytest.mark.parametrize("reduce", [
    ops.collectives.replicated_all_reduce, ops.collectives.replicated_all_reduce_, addons_ops.replicated_all_reduce,
])  # fmt: skip
@pytest.mark.parametrize("made_for", [1, 2])
def test_a_reduction_over_all_replicas_follows_too(reduce, made_for):
    ir = popxl.Ir(replication=made_for)
    with ir.main_graph:
        total = reduce(popxl.variable(ONES) + 1)
    ir.replication_factor = 4
    np.testing.assert_array_equal(run(ir, total), np.full((4, 2), 8.0))


@pytest.mark.parametrize("make", [
    lambda ir: ops.collectives.replicated_all_reduce(popxl.variable(ONES), group=ir.replica_grouping(1, 1)),
    lambda ir: ops.collectives.replicated_all_gather(popxl.variable(ONES)),
    lambda ir: popxl.variable(ONES, replica_grouping=ir.replica_grouping(1, 1)) + 1,
], ids=["reduction", "gathered", "variable"])  # fmt: skip
def test_groups_made_before_the_factor_was_set(make):
    """A reduction in groups of fewer replicas would sum over these only, without a word."""
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        t = make(ir)
    ir.replication_factor = 4
    with pytest.raises(popart_exception, match="was made for 2 replicas, but the Ir has 4"):
        run(ir, t)


def test_only_shards_are_gathered_to_their_whole():
    with popxl.Ir(replication=2).main_graph, pytest.raises(ValueError, match="has no meta_shape"):
        ops.collectives.replicated_all_gather(popxl.variable(ONES), output_shape="meta_shape")
