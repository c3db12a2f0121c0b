"""The IPU model sees operators, not the forms that serve XLA's kernels."""

from __future__ import annotations

import numpy as np

import ipu_model
import popart_jax as popart
from popart_jax.session.reports.pricing import describe, price


def primitives(jaxpr) -> set[str]:
    found = set()
    for eqn in jaxpr.eqns:
        found.add(eqn.primitive.name)
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found |= primitives(inner)
    return found


def test_depthwise_convolutions_and_small_pools_stay_whole():
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 4, 8, 8])
    w = builder.addInitializedInputTensor(np.ones((4, 1, 3, 3), np.float32))
    y = builder.aiOnnx.conv([x, w], pads=[1] * 4, strides=[1, 1], group=4)
    y = builder.aiOnnx.maxpool([y], 1, kernel_shape=[2, 2], strides=[2, 2])[0]
    loss = builder.aiGraphcore.identityloss([y])
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createIpuModelDevice({}),
    )
    jaxpr, _, _ = describe(session._parts.prepared)
    assert {"conv_general_dilated", "reduce_window_max", "select_and_scatter_add"} <= primitives(jaxpr.jaxpr)


def between_replicas(*merged: str) -> float:
    """Modelled cycles on links of a step that trains three weights on two replicas."""
    builder = popart.Builder()
    y = builder.addInputTensor("FLOAT", [2, 8])
    for _ in range(3):
        y = builder.aiOnnx.matmul([y, builder.addInitializedInputTensor(np.ones((8, 8), np.float32))])
    loss = builder.aiGraphcore.identityloss([y])
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    settings = popart.ReplicatedCollectivesSettings()
    for name in merged:
        setattr(settings, name, True)
    options.replicatedCollectivesSettings = settings
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
        userOptions=options,
    )
    return price(session._parts.prepared).cycles.inter_ipu


def test_merged_collectives_pay_the_way_round_once():
    apart, way = between_replicas(), ipu_model.get_target("mk2").external_sync_cycles
    assert apart - between_replicas("mergeAllReduceCollectives") == 2 * 2 * way
    assert between_replicas("mergeAllGatherCollectives", "mergeReduceScatterCollectives") == apart
