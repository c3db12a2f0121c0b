"""PopXL's programs of `cases`, as they are written for poprun."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from popart_jax import popdist, popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl import ops
from popart_jax.popxl_addons import ops as addons_ops
from popart_jax.popxl_addons.layers import Linear
from popart_jax.popxl_addons.optimizers import AdamOptimizerStep
from popart_jax.popxl_addons.remote import load_remote, named_variable_buffers, store_remote
from popart_jax.popxl_addons.rts import all_gather_replica_sharded_graph, reduce_replica_sharded_graph

from .parts import OWN, STEPS, Arrays, mine


def remote_buffers() -> Arrays:
    """PopXL: a remote variable of each replica group, one in shards, gradients reduced over replicas, seeds."""
    ir = popxl.Ir(replication="popdist")
    count = ir.replication_factor
    rng = np.random.default_rng(5)
    with ir.main_graph, popxl.in_sequence():
        source, sink = popxl.h2d_stream((4,), popxl.float32), popxl.d2h_stream((4,), popxl.float32)
        seeds = popxl.h2d_stream((2,), popxl.uint32)
        x = ops.dropout(ops.host_load(source), ops.host_load(seeds), 0.25)
        grouping = ir.replica_grouping(1, 2 if count > 1 else 1)
        buffer = popxl.remote_buffer((4,), popxl.float32, entries=2)
        shape = (4,) if grouping.num_groups == 1 else (grouping.num_groups, 4)
        value = rng.normal(size=shape).astype(np.float32)
        grouped = popxl.remote_variable(value, buffer, 1, replica_grouping=grouping)
        weight = ops.remote_load(buffer, 1)
        sum_of_all = ops.collectives.replicated_all_reduce(x * weight)
        ops.scaled_add_(weight, ops.collectives.replicated_all_reduce(x, group=grouping), b=-0.1)
        ops.remote_store(buffer, 1, weight)
        variables = [grouped]
        if count > 1:
            whole = rng.normal(size=(16, 2)).astype(np.float32)
            shards = popxl.replica_sharded_buffer(whole.shape, popxl.float32)
            variables.append(popxl.remote_replica_sharded_variable(whole, shards))
            part = ops.remote_load(shards, 0)
            full = ops.collectives.replicated_all_gather(part)
            ops.scaled_add_(part, part, b=0.25)
            ops.remote_store(shards, 0, part)
            sum_of_all = sum_of_all + ops.sum(full)
        ops.host_store(sink, sum_of_all + weight)
    found: Arrays = {}
    data, keys = rng.normal(size=(STEPS, count, 4)).astype(np.float32), popxl.create_seeds(7, replicas=count)
    local = popdist.getNumLocalReplicas()
    with popxl.Session(ir, "ipu_hw") as session:
        for step in range(STEPS):
            fed = {source: mine(data[step]), seeds: mine(np.reshape(keys, (count, 2)))}
            sent = session.run({s: x[0] if local == 1 else x for s, x in fed.items()})
            found[f"{OWN}stream, step {step}"] = np.reshape(sent[sink], (local, 4))
        found |= {f"variable {i}": session.get_tensor_data(v) for i, v in enumerate(variables)}
    return found


class _Halves(addons.Module):
    """Two dense layers, of which each member of a tensor-parallel group has a part."""

    def __init__(self, groups: popxl.ReplicaGrouping) -> None:
        super().__init__()
        self.members, count = groups.transpose(), groups.num_groups
        self.up, self.down = Linear(8 // count, replica_grouping=groups), Linear(3, False, replica_grouping=groups)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        x = addons_ops.replicated_all_reduce_identical_inputs(x, group=self.members)
        up: Any = self.up(x)
        z: Any = self.down(ops.gelu(up))
        return addons_ops.replicated_all_reduce_identical_grad_inputs(z, group=self.members)


def tensor_and_data_parallel() -> Arrays:
    """PopXL addons: members of a tensor-parallel group lie in several processes; Adam in shards, a checkpoint."""
    ir = popxl.Ir(replication="popdist")
    ir.num_host_transfers = 2
    count = ir.replication_factor
    halves = max(1, count // 2)
    groups = ir.replica_grouping(stride=halves, group_size=count // halves)
    rng = np.random.default_rng(8)
    with ir.main_graph, popxl.in_sequence():
        inputs = addons.InputStreams(x=((4, 5), popxl.float32), y=((4,), popxl.int32))
        outputs = addons.OutputStreams(loss=((), popxl.float32))
        factories, forward = _Halves(groups).create_graph(inputs.x.spec)
        sums, backward = addons.autodiff_with_accumulation(
            forward, forward.args.tensors, replica_groupings=factories.replica_groupings
        )
        addons.apply_pre_alias_patterns(ir)
        weights: Any = factories.init()
        totals = sums.init()
        for _ in range(2):
            x, y = (ops.host_load(stream) for stream in inputs)
            site = forward.bind(weights).call_with_info(x)
            loss, dx = addons.cross_entropy_with_grad(site.outputs[0], y)
            ops.host_store(outputs.loss, loss)
            backward.bind(totals).call(dx, args=backward.grad_graph_info.inputs_dict(site))
        ops.var_updates.accumulator_zero_(totals.pop("mean_accum_counter"))
        grads = addons.NamedTensors.from_dict({n.removeprefix("accum."): t for n, t in totals.to_dict().items()})
        shards = factories.replica_groupings
        sliced, names = reduce_replica_sharded_graph(grads, "mean", shard_groups=shards, replica_group=groups)
        parts = dict(zip(names, sliced.bind(grads).call(), strict=True))
        updated: dict[str, popxl.Tensor] = {}
        for name, weight in weights.to_dict().items():
            group = factories.get(name).replica_grouping
            sharded = group.group_size > 1
            updated[name] = ops.collectives.replica_sharded_slice(weight, group) if sharded else weight
            state, step = AdamOptimizerStep().create_graph(updated[name], parts[name], group, lr=0.05)
            buffers = named_variable_buffers(state, shard_over_dict={"step": 1})
            state.init_remote(buffers, 0, f"adam.{name}")
            loaded = load_remote(buffers)
            step.bind(loaded).call(updated[name], parts[name])
            store_remote(buffers, loaded)
        tree = addons.NamedTensors.from_dict(updated)
        gather, names = all_gather_replica_sharded_graph(tree, replica_groups=shards)
        for name, whole in zip(names, gather.bind(tree).call(), strict=True):
            ops.var_updates.copy_var_update_(weights.get(name), whole)
    start: dict[Any, np.ndarray] = {v: rng.normal(0, 0.3, v.shape_on_host).astype(np.float32) for v in weights.tensors}
    found: Arrays = {}
    first = ir._pb_ir.getSessionOptions().globalReplicaOffset
    assert first == popdist.getReplicaIndexOffset()
    with addons.TaskSession(inputs, outputs, weights, ir=ir, device_desc="ipu_hw") as session:
        session.write_variables_data(start)
        for step in range(STEPS):
            x = rng.normal(size=(2, count // halves, 4, 5)).astype(np.float32).repeat(halves, 1)
            y = rng.integers(0, 3, (2, count // halves, 4)).astype(np.int32).repeat(halves, 1)
            shape = session._full_input_shape(())
            sent = session.run({inputs.x: _shaped(x, session, (4, 5)), inputs.y: _shaped(y, session, (4,))})
            loss = np.reshape(sent[outputs.loss], (2, -1))
            assert np.shape(sent[outputs.loss]) == shape
            found[f"{OWN}loss, step {step}"] = np.ascontiguousarray(loss.T)
        with tempfile.TemporaryDirectory() as folder:
            session.save_checkpoint(folder)
            kept = session.get_named_tensors_data().to_dict()
            session.write_variables_data(start)
            session.load_checkpoint(folder)
            found |= {f"weight {name}": np.array(session.get_tensor_data(v)) for name, v in weights.to_dict().items()}
        for name, value in kept.items():
            np.testing.assert_array_equal(found[f"weight {name}"], value)
    return found


def _shaped(array: np.ndarray, session: addons.TaskSession, shape: tuple[int, ...]) -> np.ndarray:
    return mine(array, 1).reshape(session._full_input_shape(shape))


CASES: dict[str, Callable[[], Arrays]] = {
    "remote buffers": remote_buffers,
    "tensor and data parallel": tensor_and_data_parallel,
}
