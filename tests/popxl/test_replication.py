"""Replica groupings, variables per group, collectives, sharding."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.ops.replicas import Groups, all_reduce
from popart_jax.popxl import ops
from popart_jax.popxl.ops import collectives


@pytest.mark.parametrize(
    ("stride", "size", "assignment"),
    [
        (1, 2, [0, 0, 1, 1, 2, 2, 3, 3]),
        (2, 2, [0, 1, 0, 1, 2, 3, 2, 3]),
        (4, 2, [0, 1, 2, 3, 0, 1, 2, 3]),
        (2, 4, [0, 1, 0, 1, 0, 1, 0, 1]),
        (2, 1, [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_assignments(stride, size, assignment):
    rg = popxl.Ir(replication=8).replica_grouping(stride, size)
    assert rg.assignment == assignment
    assert rg.stride == (1 if size == 1 else stride)


def test_non_constant_grouping():
    rg = popxl.Ir(replication=8).replica_grouping_from_assignments([0, 0, 1, 1, 0, 0, 1, 1])
    assert not rg.is_const
    assert rg.const_rg.assignment == [0, 0, 1, 1, 2, 2, 3, 3]
    assert (rg.to_device_map, rg.to_host_map) == ([0, 1, 0, 1], [0, 1])
    with pytest.raises(NotImplementedError):
        _ = rg.stride
    assert repr(rg) == "ReplicaGrouping(assignment=[0, 0, 1, 1, 0, 0, 1, 1])"


def test_transpose_and_repr():
    ir = popxl.Ir(replication=4)
    rg = ir.replica_grouping(group_size=2)
    assert rg.transpose().assignment == [0, 1, 0, 1]
    assert rg.transpose().transpose() == rg
    assert repr(rg) == "ReplicaGrouping(num_replicas=4, stride=1, group_size=2, num_groups=2)"
    assert ir.replica_grouping().transpose().assignment == [0, 1, 2, 3]


@pytest.mark.parametrize("args", [(0,), (9,), (3,), (1, 0), (1, 9)])
def test_bad_groupings(args):
    with pytest.raises(ValueError):
        popxl.Ir(replication=8).replica_grouping(*args)


@pytest.mark.parametrize("assignment", [[0, 0, 0, 1], [0, 0, 2, 2], [1, 1, 0, 0], [0, 0]])
def test_bad_assignments(assignment):
    with pytest.raises(ValueError):
        popxl.Ir(replication=4).replica_grouping_from_assignments(assignment)


def on_replicas(fn, arrays, replication=4):
    """fn(tensor) on each replica, which gets its own array; results stacked by replica."""
    ir = popxl.Ir(replication=replication)
    with ir.main_graph:
        stream = popxl.h2d_stream(arrays.shape[1:], popxl.dtype.as_dtype(arrays))
        out = fn(ir, ops.host_load(stream))
        sink = popxl.d2h_stream(out.shape, out.dtype)
        ops.host_store(sink, out)
    with popxl.Session(ir, "ipu_hw") as session:
        return session.run({stream: arrays})[sink]


DATA = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
REDUCERS = {
    "add": lambda x: x.sum(0), "mean": lambda x: x.mean(0), "mul": lambda x: x.prod(0), "min": lambda x: x.min(0),
    "max": lambda x: x.max(0), "square_add": lambda x: (x * x).sum(0),
}  # fmt: skip


@pytest.mark.parametrize("op", sorted(REDUCERS))
@pytest.mark.parametrize("grouping", [None, (1, 2), (2, 2)], ids=str)
def test_all_reduce(op, grouping):
    def fn(ir, x):
        group = None if grouping is None else ir.replica_grouping(*grouping)
        return collectives.replicated_all_reduce(x, op, group)

    got = on_replicas(fn, DATA)
    groups = {None: [[0, 1, 2, 3]], (1, 2): [[0, 1], [2, 3]], (2, 2): [[0, 2], [1, 3]]}[grouping]
    for members in groups:
        for r in members:
            np.testing.assert_allclose(got[r], REDUCERS[op](DATA[members]), rtol=1e-5)


def test_reduce_scatter_pads_with_zeros():
    data = DATA[:, :, :1].reshape(4, 2).repeat(3, 1)[:, :5]
    got = on_replicas(lambda ir, x: collectives.replicated_reduce_scatter(x), np.ascontiguousarray(data))
    total = np.concatenate([data.sum(0), np.zeros(3, np.float32)])
    np.testing.assert_allclose(got, total.reshape(4, 2), rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
def test_all_gather_and_slice(axis):
    got = on_replicas(lambda ir, x: collectives.replicated_all_gather(x, axis), DATA)
    for r in range(4):
        np.testing.assert_array_equal(got[r], np.concatenate(list(DATA), axis))
    wide = np.broadcast_to(np.arange(32, dtype=np.float32).reshape(1, 4, 8), (4, 4, 8)).copy()
    got = on_replicas(lambda ir, x: collectives.replicated_slice(x, 1), wide)
    for r in range(4):
        np.testing.assert_array_equal(got[r], wide[r][:, 2 * r : 2 * r + 2])
    got = on_replicas(lambda ir, x: collectives.replicated_all_gather(x, 0, output_shape="new_axis"), DATA)
    np.testing.assert_array_equal(got[1], DATA)


def test_collectives_on_one_replica_are_identities():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(DATA[0], name="x")
        y = collectives.replicated_all_gather(collectives.replicated_all_reduce(x), 0, output_shape="new_axis")
        sink = popxl.d2h_stream(y.shape, y.dtype)
        ops.host_store(sink, y)
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], DATA[:1])


@pytest.mark.parametrize("mode", ["one_per_group", "all_replicas"])
def test_variables_per_group(mode):
    ir = popxl.Ir(replication=4)
    initial = np.arange(4, dtype=np.float32).reshape(2, 2)
    with ir.main_graph:
        rg = ir.replica_grouping(stride=2, group_size=2)
        v = popxl.variable(initial, name="v", replica_grouping=rg, retrieval_mode=mode)
        assert (v.shape, v.shape_on_host) == ((2,), (2, 2))
        stream = popxl.h2d_stream((2,), popxl.float32)
        ops.add_(v, ops.host_load(stream))
    session = popxl.Session(ir, "ipu_hw")
    with session:
        session.run({stream: np.arange(8, dtype=np.float32).reshape(4, 2)})
    got = session.get_tensor_data(v)
    each = np.stack([initial[g] for g in rg.assignment]) + np.arange(8, dtype=np.float32).reshape(4, 2)
    want = each[[0, 1]] if mode == "one_per_group" else each[[0, 2, 1, 3]]
    np.testing.assert_array_equal(got, want)


def test_remote_replica_sharded_variable():
    ir = popxl.Ir(replication=4)
    data = np.arange(10, dtype=np.float32).reshape(2, 5)
    with ir.main_graph, popxl.in_sequence():
        buffer = popxl.replica_sharded_buffer((2, 5), popxl.float32)
        assert (buffer.tensor_shape, buffer.meta_shape) == ((3,), (2, 5))
        v = popxl.remote_replica_sharded_variable(data, buffer, 0)
        shard = ops.remote_load(buffer, 0)
        full = collectives.replicated_all_gather(shard)
        assert full.shape == (2, 5)
        new = collectives.replica_sharded_slice(full + 1.0)
        ops.remote_store(buffer, 0, new)
    session = popxl.Session(ir, "ipu_hw")
    with session:
        session.run()
        session.run()
    np.testing.assert_array_equal(session.get_tensor_data(v), data + 2)


def test_replica_sharded_variable_pair():
    ir = popxl.Ir(replication=2)
    data = np.arange(6, dtype=np.float32)
    with ir.main_graph:
        v, shard = popxl.replica_sharded_variable(data, name="w")
        assert shard.shape == (3,)
        assert shard.meta_shape == (6,)
        ops.add_(shard, popxl.constant(np.ones(3, np.float32)))
    session = popxl.Session(ir, "ipu_hw")
    with session:
        session.run()
        session.run()
        np.testing.assert_array_equal(session.get_tensor_data(v), data + 2)
        session.write_variable_data(v, data * 10)
        session.run()
    np.testing.assert_array_equal(session.get_tensor_data(v), data * 10 + 1)


@pytest.mark.parametrize(
    ("elements", "replicas", "over"), [(9, 4, None), (9, 8, None), (1, 4, None), (2, 4, 2), (1, 4, 1)]
)
def test_shards_that_are_padding_only(elements, replicas, over):
    """9 elements over 4 replicas are 3, 3, 3 and none."""
    ir = popxl.Ir(replication=replicas)
    data = np.arange(1, 1 + elements, dtype=np.float32)
    with ir.main_graph:
        v, shard = popxl.replica_sharded_variable(data, shard_over=over)
        local = popxl.d2h_stream(shard.shape, popxl.float32)
        with popxl.in_sequence():
            ops.host_store(local, shard)
            ops.add_(shard, popxl.constant(np.float32(1)))
    with popxl.Session(ir, "ipu_hw") as session:
        held = session.run()[local]
    members = over or replicas
    padded = np.pad(data, (0, members * held.shape[1] - elements))
    np.testing.assert_array_equal(held, np.tile(padded.reshape(members, -1), (replicas // members, 1)))
    np.testing.assert_array_equal(session.get_tensor_data(v), data + 1)


def test_one_replica_can_not_be_sharded():
    ir = popxl.Ir()
    with ir.main_graph, pytest.raises(ValueError, match="global replication factor is 1"):
        popxl.replica_sharded_variable(np.ones(4, np.float32))


def test_replicas_need_another_device_than_cpu():
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        ops.exp(popxl.variable(1.0))
    with pytest.raises(ValueError):
        popxl.Session(ir, "cpu")
    with pytest.raises(RuntimeError):
        popxl.Session(popxl.Ir(), "cpu")
    with pytest.raises(ValueError):
        popxl.Session(ir, "tpu")


@pytest.mark.parametrize("groups", [Groups(4), Groups(2, 2)])
def test_a_product_is_rounded_before_replicas_add_it(groups):
    """To the last bit, so that a program's numbers don't depend on what XLA fuses with the sum (FMA)."""
    a, b = np.random.default_rng(0).normal(size=(2, 4, 3, 64)).astype(np.float32)
    sums = jax.vmap(lambda a, b: all_reduce(a * b, 0, groups), axis_name="replica")
    fusing = jax.jit(
        sums, compiler_options={"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
    )
    members = [[r for r in range(4) if (r - q) % groups.stride == 0] for q in range(4)]
    np.testing.assert_array_equal(fusing(a, b), np.add.reduce((a * b)[np.array(members)], axis=1))
