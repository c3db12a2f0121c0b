"""Dropout in phases: each layer, micro-batch and replica has a mask of its own, which recomputation makes again.

Layers are linear, so that the loss is linear in the weights of each, and differences of losses are exact.
"""

from functools import partial

import numpy as np
import pytest

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons import NamedTensors
from popart_jax.popxl_addons.remote import load_remote_graph, named_variable_buffers, store_remote_graph
from popart_jax.popxl_addons.transforms.batch_serialisation import (
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)

LAYERS, STEPS, REPLICAS, SPEC = 2, 3, 2, popxl.TensorSpec((4, 8), popxl.float32)


class Layer(addons.Module):
    """A dense layer half of whose results are dropped."""

    def build(self, x, seed):
        w = self.add_variable_input("w", partial(np.zeros, (8, 8)), x.dtype)
        return ops.dropout(x @ w, seed, p=0.5)


class Head(addons.Module):
    """A weighted sum, and its gradient."""

    def build(self, x, factor):
        return ops.sum(x * factor), factor * 1.0


class Program:
    """All layers forward, the head, all layers backward; gradients stay in a remote buffer."""

    def __init__(self, recompute):
        self.ir = ir = popxl.Ir(replication=REPLICAS)
        ir.num_host_transfers = STEPS
        ir._pb_ir.getSessionOptions().numIOTiles = 32
        with ir.main_graph, popxl.in_sequence():
            self.x, self.factor = (popxl.h2d_stream(SPEC.shape, SPEC.dtype) for _ in range(2))
            self.loss = popxl.d2h_stream((), popxl.float32)
            alone = ir.replica_grouping(group_size=1)
            self.seed, seed = addons.seed_variable(7, replica_grouping=alone)
            factories, self.fwd = Layer().create_graph(SPEC, seed.spec)
            self.sums, self.grad = addons.autodiff_with_accumulation(
                self.fwd, self.fwd.args.tensors, grads_required=self.fwd.graph.inputs[:1]
            )
            if recompute:
                self.grad = addons.recompute_graph(self.grad)
            head = self.serialised()
            self.buffers = named_variable_buffers(factories, LAYERS, shard_over_dict=False)
            self.load, self.names = load_remote_graph(self.buffers, LAYERS)
            self.weights = [factories.init_remote(self.buffers, n, f"layer.{n}") for n in range(LAYERS)]
            kept = self.sums.accum.copy()
            self.kept = named_variable_buffers(kept, LAYERS, shard_over_dict=False)
            self.store = store_remote_graph(self.kept, LAYERS)
            self.grads = [
                popxl.remote_variable(np.zeros((REPLICAS, 8, 8), np.float32), self.kept.w, n, replica_grouping=alone)
                for n in range(LAYERS)
            ]
            self.phases(head, seed)

    def serialised(self):
        x, dx = (batch_serial_buffer(SPEC, STEPS, LAYERS + 1) for _ in range(2))
        fwd, grad = self.fwd.graph, self.grad.graph
        loads = {fwd.inputs[0]: (x, 0), grad.inputs[0]: (dx, 1)}
        stores = {fwd.outputs[0]: (x, 1), grad.outputs[0]: (dx, 0)}
        made = batch_serialise_fwd_and_grad(
            self.fwd, self.grad, self.fwd.args, STEPS, loads, {}, stores,
            seed_input=fwd.inputs[1], rows=LAYERS, io_mode="io_overlapped",
        )  # fmt: skip
        self.fwd, self.grad = (m.graph for m in made)
        self.first = x
        _, graph = Head().create_graph(SPEC, SPEC)
        inner = graph.graph
        return batch_serialise(
            graph, STEPS, {inner.inputs[0]: (x, LAYERS), inner.inputs[1]: self.factor},
            {inner.outputs[0]: self.loss}, {inner.outputs[1]: (dx, LAYERS)},
        ).graph  # fmt: skip

    def phases(self, head, seed):
        def read(step):
            ops.remote_store(self.first, step, ops.host_load(self.x))
            return step + 1

        def forward(n, seed):
            seed, mine = ops.split_random_seed(seed)
            self.fwd.bind(NamedTensors.pack(self.names, self.load.call(n))).call(n, mine)
            return n + 1, seed

        def backward(n):
            sums = self.sums.init_zero()
            given = sums.copy()
            given.update(NamedTensors.pack(self.names, self.load.call(n)))
            self.grad.bind(given).call(n)
            self.store.bind(sums.accum).call(n)
            return n - 1

        zero, last = popxl.constant(0), popxl.constant(LAYERS - 1)
        ops.repeat(self.ir.create_graph(read, zero), STEPS, zero)
        ops.repeat(self.ir.create_graph(forward, zero, seed), LAYERS, zero, seed)
        head.call(0)
        ops.repeat(self.ir.create_graph(backward, last), LAYERS, last)

    def run(self, session, weights, fed):
        session.write_variables_data({v.w: w for v, w in zip(self.weights, weights, strict=True)})
        return session.run(fed)[self.loss]


@pytest.mark.parametrize("recompute", [True, pytest.param(False, marks=pytest.mark.sweep)])
def test_masks_are_the_same_forward_and_backward(recompute):
    program, rng = Program(recompute), np.random.default_rng(0)
    weights = rng.normal(size=(LAYERS, 8, 8)).astype(np.float32)
    fed = {s: np.tile(rng.normal(size=SPEC.shape), (STEPS, REPLICAS, 1, 1)) for s in (program.x, program.factor)}
    fed = {s: a.astype(np.float32) for s, a in fed.items()}
    with popxl.Session(program.ir, "ipu_hw") as session:
        losses = program.run(session, weights, fed)
        found = session.get_tensors_data(program.grads)
        np.testing.assert_array_equal(program.run(session, weights, fed), losses)
        assert len(set(losses.ravel())) == STEPS * REPLICAS  # all data are alike: only masks differ
        for n, variable in enumerate(program.grads):
            change = rng.normal(size=(8, 8)).astype(np.float32)
            there, back = (
                program.run(session, [w + sign * change * (i == n) for i, w in enumerate(weights)], fed)
                for sign in (1, -1)
            )
            slope = (there - back).mean(0) / 2
            np.testing.assert_allclose((found[variable] * change).sum((1, 2)), slope, rtol=1e-4, atol=1e-3)
