"""Phased execution: layers one after the other over all micro-batches, their weights sharded in remote memory."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl import ops
from popart_jax.popxl_addons.layers import LayerNorm, Linear

torch = pytest.importorskip("torch")
WIDTH, ROWS, LAYERS, STEPS, RATE = 8, 3, 3, 4, 0.2
SPEC = popxl.TensorSpec((ROWS, WIDTH), popxl.float32)


class Layer(addons.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dense = LayerNorm(), Linear(WIDTH)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        return x + ops.gelu(self.dense(self.norm(x)))


class Loss(addons.Module):
    def build(self, x: popxl.Tensor, labels: popxl.Tensor) -> popxl.Tensor:
        return addons.ops.cross_entropy(x, labels)


def keep(x):
    return x + 0.0


class Phases:
    """Forward and backward phases of all layers, and an update after each backward phase."""

    def __init__(self, replicas: int, mode: str) -> None:
        self.ir = ir = popxl.Ir(replication=replicas)
        ir.num_host_transfers = STEPS
        ir._pb_ir.getSessionOptions().numIOTiles = 0 if mode == "compute" else 32
        self.options = {"steps": STEPS, "io_mode": mode}
        with ir.main_graph, popxl.in_sequence():
            self.images = popxl.h2d_stream(SPEC.shape, SPEC.dtype, "images")
            self.labels = popxl.h2d_stream((ROWS,), popxl.int32, "labels")
            self.losses = popxl.d2h_stream((), popxl.float32, "losses")
            self.ones = popxl.h2d_stream((), popxl.float32, "ones")
            self.x, self.dx = (addons.batch_serial_buffer(SPEC, STEPS, LAYERS + 1) for _ in range(2))
            factories, self.graph = Layer().create_graph(SPEC)
            state, self.grad = addons.autodiff_with_accumulation(
                self.graph, self.graph.args.tensors, grads_required=[self.graph.graph.inputs[0]]
            )
            self.buffers = addons.named_variable_buffers(factories, LAYERS)
            self.variables = [factories.init_remote(self.buffers, i, f"layer.{i}") for i in range(LAYERS)]
            self.accumulators = state.init("state")
            self.write(mode != "compute")

    def row(self, buffer, offset=0):
        return addons.RemoteHandle(buffer, offset)

    def write(self, io: bool) -> None:
        graph, grad = self.graph.graph, self.grad.graph
        loads = {graph.inputs[0]: self.row(self.x), grad.inputs[0]: self.row(self.dx, 1)}
        stores = {graph.outputs[0]: self.row(self.x, 1), grad.outputs[0]: self.row(self.dx)}
        forward, backward = addons.batch_serialise_fwd_and_grad(
            self.graph, self.grad, self.graph.args, load_handles=loads, store_streams={}, store_buffers=stores,
            rows=LAYERS, **self.options
        )  # fmt: skip
        load, names = addons.load_remote_graph(self.buffers, LAYERS, io)
        store = addons.store_remote_graph(self.buffers, LAYERS, io)
        shards = addons.NamedTensors.pack(names, load.graph.outputs)
        gather, gathered = addons.all_gather_replica_sharded_graph(shards, io)
        sums = self.accumulators.accum
        reduce, reduced = addons.reduce_replica_sharded_graph(sums, "mean", io)

        def weights(i):
            shards = addons.NamedTensors.pack(names, load.call(i))
            return shards, addons.NamedTensors.pack(gathered, gather.bind(shards).call())

        self.first_phase()
        for i in range(LAYERS):
            forward.graph.bind(weights(i)[1]).call(i)
        self.last_phase()
        for i in reversed(range(LAYERS)):
            shards, whole = weights(i)
            whole.update(self.accumulators)
            backward.graph.bind(whole).call(i)
            grads = addons.NamedTensors.pack(reduced, reduce.bind(sums).call())
            for shard, gradient in shards.to_mapping(grads).items():
                ops.scaled_add_(shard, gradient, b=-RATE)
            store.bind(shards).call(i)
            ops.var_updates.accumulator_zero_(self.accumulators.mean_accum_counter)

    def first_phase(self) -> None:
        graph = addons.GraphWithNamedArgs(self.ir.create_graph(keep, SPEC))
        x, y = graph.graph.inputs[0], graph.graph.outputs[0]
        addons.batch_serialise(
            graph, load_handles={x: self.images}, store_streams={}, store_buffers={y: self.row(self.x)}, **self.options
        ).graph.call(0)

    def last_phase(self) -> None:
        _, graph = Loss().create_graph(SPEC, self.labels.spec)
        x, labels = graph.graph.inputs
        grad = addons.autodiff(graph, grads_required=[x])
        seed, dx, loss = grad.graph.inputs[0], grad.graph.outputs[0], graph.graph.outputs[0]
        both = addons.batch_serialise_fwd_and_grad(
            graph, grad, graph.args, load_handles={x: (self.x, LAYERS), labels: self.labels, seed: self.ones},
            store_streams={loss: self.losses}, store_buffers={dx: (self.dx, LAYERS)}, **self.options
        )  # fmt: skip
        for result in both:
            result.graph.call(0)


@pytest.mark.parametrize(("replicas", "mode"), [(1, "compute"), (2, "io"), (4, "io_overlapped")])
def test_phases_train_as_the_whole_model_does(replicas, mode):
    phases = Phases(replicas, mode)
    rng = np.random.default_rng(0)
    names = {"norm.weight": (WIDTH,), "norm.bias": (WIDTH,), "dense.weight": (WIDTH, WIDTH), "dense.bias": (WIDTH,)}
    values = [{n: (rng.normal(size=s) * 0.4).astype(np.float32) for n, s in names.items()} for _ in range(LAYERS)]
    p = [{n: torch.tensor(v, requires_grad=True) for n, v in layer.items()} for layer in values]

    def loss(x, y):
        for w in p:
            z = torch.nn.functional.layer_norm(x, (WIDTH,), w["norm.weight"], w["norm.bias"])
            x = x + torch.nn.functional.gelu(z @ w["dense.weight"] + w["dense.bias"], approximate="tanh")
        return torch.nn.functional.cross_entropy(x, y)

    shape = (STEPS, replicas) if replicas > 1 else (STEPS,)
    session = popxl.Session(phases.ir, "ipu_hw")
    pairs = [(v.get(n), layer[n]) for v, layer in zip(phases.variables, values, strict=True) for n in names]
    session.write_variables_data(dict(pairs))
    with session:
        for _ in range(2):
            images = rng.normal(size=(*shape, ROWS, WIDTH)).astype(np.float32)
            labels = rng.integers(0, WIDTH, (*shape, ROWS)).astype(np.int32)
            flat = zip(images.reshape(-1, ROWS, WIDTH), labels.reshape(-1, ROWS), strict=True)
            expected = torch.stack([loss(torch.tensor(x), torch.tensor(y).long()) for x, y in flat])
            expected.mean().backward()
            with torch.no_grad():
                for t in (t for layer in p for t in layer.values()):
                    t -= RATE * t.grad
                    t.grad = None
            feeds = {phases.images: images, phases.labels: labels, phases.ones: np.ones(shape, np.float32)}
            found = session.run(feeds)[phases.losses]
            np.testing.assert_allclose(found.ravel(), expected.detach().numpy(), rtol=1e-3, atol=1e-5)
    for variables, layer in zip(phases.variables, p, strict=True):
        for name, t in layer.items():
            trained = session.get_tensor_data(variables.get(name))
            np.testing.assert_allclose(trained, t.detach().numpy(), rtol=1e-3, atol=1e-4)
