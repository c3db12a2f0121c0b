"""Sharded losses, normalisation and strided collectives on four replicas, beside PyTorch and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax.popxl_addons.ops as addons_ops
from popart_jax import popxl, popxl_addons
from popart_jax.errors import popart_exception
from popart_jax.popxl import ops

torch = pytest.importorskip("torch")
REPLICAS = 4
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(3, 8)).astype(np.float32)
LABELS = np.array([1, 5, 7], np.int32)
SHARDS = LOGITS.reshape(3, REPLICAS, 2).transpose(1, 0, 2).copy()


def whole(shards: np.ndarray) -> np.ndarray:
    return shards.transpose(1, 0, 2).reshape(3, 8)


def run(build):
    """Results of the tensors that `build(ir, each)` returns, one row per replica."""
    ir = popxl.Ir(replication=REPLICAS)
    with ir.main_graph, popxl.in_sequence():
        streams = [addons_ops.host_store(t) for t in build(ir, ir.replica_grouping(group_size=1))]
    popxl_addons.apply_pre_alias_patterns(ir)
    with popxl.Session(ir, "ipu_hw") as session:
        results = session.run()
    return [results[s] for s in streams]


def test_sharded_loss_and_its_gradient():
    def build(ir, each):
        logits = popxl.variable(SHARDS, replica_grouping=each)
        labels = popxl.variable(np.stack([LABELS - 2 * r for r in range(REPLICAS)]), replica_grouping=each)
        graph = ir.create_graph(addons_ops.cross_entropy_sharded_loss, logits, labels)
        info = popxl.transforms.autodiff(graph, grads_required=[graph.inputs[0]])
        site = ops.call_with_info(graph, logits, labels)
        return [*site.outputs[:1], *ops.call(info.graph, popxl.constant(1.0), inputs_dict=info.inputs_dict(site))]

    losses, gradients = run(build)
    expected = torch.tensor(LOGITS, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(expected, torch.tensor(LABELS).long())
    loss.backward()
    np.testing.assert_allclose(losses, np.full(REPLICAS, loss.detach().numpy()), rtol=1e-6)
    np.testing.assert_allclose(whole(gradients), expected.grad.numpy(), atol=1e-6)


def test_sharded_layer_norm():
    def build(ir, each):
        ones, zeros = (popxl.constant(np.full(2, v, np.float32)) for v in (1, 0))
        return [addons_ops.layer_norm_distributed(popxl.variable(SHARDS, replica_grouping=each), ones, zeros)]

    (y,) = run(build)
    np.testing.assert_allclose(whole(y), torch.nn.functional.layer_norm(torch.tensor(LOGITS), (8,)), atol=1e-5)


def test_strided_collectives():
    data = RNG.normal(size=(REPLICAS, 3)).astype(np.float32)

    def build(ir, each):
        t, pairs = popxl.variable(data, replica_grouping=each), ir.replica_grouping(stride=2, group_size=2)
        return [
            addons_ops.replicated_all_reduce(t),
            addons_ops.replicated_all_reduce_strided(t, group=pairs),
            addons_ops.replicated_all_gather_strided(t, group=pairs),
            addons_ops.replicated_reduce_scatter_strided(t, group=pairs),
            addons_ops.replicated_all_reduce_identical_inputs(t),
        ]

    total, strided, gathered, scattered, same = run(build)
    np.testing.assert_allclose(total, np.tile(data.sum(0), (REPLICAS, 1)), rtol=1e-6)
    np.testing.assert_allclose(strided[[0, 1]], [data[[0, 2]].sum(0), data[[1, 3]].sum(0)], rtol=1e-6)
    np.testing.assert_array_equal(gathered[3], data[[1, 3]].reshape(-1))
    padded = np.append(data[[0, 2]].sum(0), 0)
    np.testing.assert_allclose(scattered[[0, 2]], padded.reshape(2, 2), rtol=1e-6)
    np.testing.assert_array_equal(same, data)


def test_identical_inputs_need_the_patterns():
    ir = popxl.Ir(replication=REPLICAS)
    with ir.main_graph:
        addons_ops.host_store(
            addons_ops.replicated_all_reduce_identical_inputs(popxl.variable(np.zeros(3, np.float32)))
        )
    with pytest.raises(popart_exception) as caught:
        popxl.Session(ir, "ipu_hw")
    assert str(caught.value) == "You need to run the `OpToIdentityPattern` pattern before running the IR."


def test_classes_sharded_over_ipus():
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        shards = []
        for k in range(2):
            with popxl.ipu(k):
                shards.append(popxl.variable(LOGITS[:, 4 * k : 4 * k + 4].copy()) + 0.0)
        labels = [popxl.variable(LABELS) for _ in range(2)]
        stream = addons_ops.host_store(addons_ops.cross_entropy_sharded_wr_loss(shards, labels))
    with popxl.Session(ir, "ipu_hw") as session:
        losses = session.run()[stream]
    expected = torch.nn.functional.cross_entropy(torch.tensor(LOGITS), torch.tensor(LABELS).long(), reduction="none")
    np.testing.assert_allclose(losses, expected, atol=1e-5)
