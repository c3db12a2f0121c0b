"""Rules of the supplement to PopXL's specification: groupings, losses, half-precision state, hand-written gradients."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax.popxl as popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl import ops

from .run import forward

REPLICAS = 8


def test_collectives_take_any_stride_that_tiles_the_replicas():
    ir = popxl.Ir(replication=REPLICAS)
    group = ir.replica_grouping(stride=2, group_size=2)
    assert group.groups == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert group.transpose().transpose() == group
    with ir.main_graph:
        sent = popxl.h2d_stream((), popxl.float32)
        back = popxl.d2h_stream((), popxl.float32)
        ops.host_store(back, ops.collectives.replicated_all_reduce(ops.host_load(sent), group=group))
    with popxl.Session(ir, "ipu_model") as session:
        found = session.run({sent: np.arange(8, dtype=np.float32)})[back]
    np.testing.assert_array_equal(found, [2, 4, 2, 4, 10, 12, 10, 12])


def test_groupings_that_leave_replicas_over_are_for_no_collective():
    ir = popxl.Ir(replication=REPLICAS)
    group = ir.replica_grouping(stride=2, group_size=3)
    assert group.assignment == [0, 1, 0, 1, 0, 1, None, None]
    with ir.main_graph, pytest.raises(ValueError, match="all replicas"):
        ops.collectives.replicated_all_reduce(popxl.variable(1.0), group=group)
    with pytest.raises(ValueError, match="do not partition"):
        ir.replica_grouping(stride=8, group_size=2)


def test_a_value_per_replica_is_read_in_the_order_of_the_replicas():
    ir = popxl.Ir(replication=4)
    group = ir.replica_grouping(stride=2, group_size=2)
    with ir.main_graph:
        v = popxl.variable(np.array([1, 2], np.float32), replica_grouping=group, retrieval_mode="all_replicas")
        ops.add_(v, popxl.constant(0.5))
    with popxl.Session(ir, "ipu_model") as session:
        session.run()
        np.testing.assert_array_equal(session.get_tensor_data(v), [1.5, 2.5, 1.5, 2.5])


def test_replicas_that_differ_are_equal_again_after_an_upload():
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        v = popxl.variable(np.float32(0), retrieval_mode="all_replicas")
        source = popxl.h2d_stream((), popxl.float32)
        ops.add_(v, ops.host_load(source))
    with popxl.Session(ir, "ipu_model") as session:
        session.run({source: np.array([1, 2], np.float32)})
        np.testing.assert_array_equal(session.get_tensor_data(v), [1, 2])
        session.weights_from_host()
        np.testing.assert_array_equal(session.get_tensor_data(v), [1, 1])


def test_a_remote_variable_may_have_another_shape_than_its_buffer():
    ir = popxl.Ir()
    with ir.main_graph:
        buffer = popxl.remote_buffer((1,), popxl.float32)
        v = popxl.remote_variable(np.array([[3]], np.float32), buffer, 1)
        buffer.entries = 2
        ops.remote_store(buffer, 1, ops.remote_load(buffer, 1) * 2)
    with popxl.Session(ir) as session:
        session.run()
        np.testing.assert_array_equal(session.get_tensor_data(v), [[6]])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_fused_loss_takes_labels_of_any_shape(reduction):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(6, 5))
    probs = (np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)).astype(np.float32)
    labels = np.array([[0, 1, 2], [4, 0, 3]], np.int32)

    def build(p, t):
        return ops.nll_loss_with_softmax_grad(p, t, 2.0, ignore_index=0, reduction=reduction)

    loss, dx = forward(build, probs, labels)
    flat = labels.reshape(-1)
    keep = flat != 0
    each = np.where(keep, -np.log(probs[np.arange(6), flat] + 1e-7), 0)
    count = keep.sum() if reduction == "mean" else 1
    expected = each.reshape(2, 3) if reduction == "none" else each.sum() / count
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    np.testing.assert_allclose(dx, (probs - np.eye(5)[flat]) * keep[:, None] * 2 / count, rtol=1e-5, atol=1e-7)


def test_the_first_step_of_adam_with_half_moments_is_exactly_one():
    gradient = np.random.default_rng(1).normal(size=64).astype(np.float32) + np.float32(3)

    def build(g):
        m = popxl.variable(np.zeros(64, np.float16))
        v = popxl.variable(np.zeros(64, np.float32))
        step = popxl.variable(np.float32(0))
        m = ops.var_updates.accumulate_moving_average_(m, g, 0.9)
        v = ops.var_updates.accumulate_moving_average_square_(v, g, 0.999)
        return ops.var_updates.adam_updater(m, v, time_step=step, beta1=0.9, beta2=0.999, epsilon=1e-5)

    update = forward(build, gradient)
    assert np.asarray(update).dtype == np.float16
    np.testing.assert_allclose(update, 1, atol=1e-3)


class _Twice(addons.Module):
    def build(self, x):
        y = x * 2.0
        self.aux["y"] = y
        return y + 1.0

    def build_grad(self, dy):
        return dy * 2.0 + self.aux["y"] * 0.0


def test_saved_values_leave_the_forward_graph_only_for_its_own_gradient():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.ones(3, np.float32))
        _, graph = _Twice().create_graph(x)
        assert len(graph.graph.outputs) == 1
        with pytest.raises(ValueError, match="more than once in `grads_required`"):
            graph.autodiff(grads_required=[graph.graph.inputs[0]] * 2)
        assert not graph.autodiff_applied
        graph.autodiff()
        assert len(graph.graph.outputs) == 2
        assert graph.autodiff_applied
        assert not graph.copy().autodiff_applied
        with pytest.raises(Exception, match=r"^Autodiff has already been applied to the graph, as autodiff modifies"):
            graph.autodiff()
