"""Accumulation, recomputation, repetition, pipelining, remote buffers: results beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax.popxl_addons.ops as addons_ops
from popart_jax import popart_exception, popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl import ops
from popart_jax.popxl._running.cache import compiled

from ..platforms import ON_CPUS

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(4, 4)).astype(np.float32)
BATCHES = RNG.normal(size=(6, 3, 4)).astype(np.float32)


class Layer(addons.Module):
    """tanh(x @ w)."""

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        return ops.tanh(x @ self.add_variable_input("w", lambda: WEIGHT, popxl.float32))


class Twice(addons.Module):
    """The layer's weight used two times."""

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        w = self.add_variable_input("w", lambda: WEIGHT, popxl.float32)
        return ops.tanh(ops.gelu(x @ w) @ w)


def torch_gradients(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    w, t = torch.tensor(WEIGHT, requires_grad=True), torch.tensor(x, requires_grad=True)
    torch.tanh(torch.nn.functional.gelu(t @ w, approximate="tanh") @ w).sum().backward()
    return t.grad.numpy(), w.grad.numpy()


@pytest.mark.parametrize("recompute", [False, True])
def test_accumulated_means_with_weights_from_a_remote_buffer(recompute):
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(BATCHES[0])
        factories, graph = Twice().create_graph(x)
        state, grad = addons.autodiff_with_accumulation(
            graph, graph.args.tensors, grads_required=[graph.graph.inputs[0]]
        )
        grad = addons.recompute_graph(grad) if recompute else grad
        buffers = addons.named_variable_buffers(factories)
        addons.remote.store_remote(buffers, factories.init())
        load, names = addons.load_remote_graph(buffers)
        weights = addons.NamedTensors.pack(names, load.call(0))
        accumulators = state.init()
        site = graph.bind(weights).call_with_info(x)
        seed = popxl.constant(np.ones((3, 4), np.float32))
        for _ in range(2):
            (dx,) = grad.bind(accumulators).call(seed, args=grad.grad_graph_info.inputs_dict(site))
        out = addons_ops.host_store(dx)
    with popxl.Session(ir, "ipu_hw") as session:
        result = session.run()[out]
    expected_x, expected_w = torch_gradients(BATCHES[0])
    np.testing.assert_allclose(result, expected_x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(session.get_tensor_data(accumulators.accum.w), expected_w, rtol=1e-4, atol=1e-5)
    assert session.get_tensor_data(accumulators.mean_accum_counter) == 2


def backward_memory(recompute: bool) -> int:
    """Temporary memory of 6 layers forward and backward, as compiled."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(np.ones((256, 4), np.float32))
        factories, graph = Twice().create_graph(x)
        grad = addons.autodiff(graph)
        grad = addons.recompute_graph(grad) if recompute else grad
        sites = []
        for layer in range(6):
            sites.append(
                graph.bind(factories.init(f"layer{layer}")).call_with_info(sites[-1].outputs[0] if sites else x)
            )
        slope = sites[-1].outputs[0]
        for site in reversed(sites):
            slope = ops.call(grad.graph, slope, inputs_dict=grad.grad_graph_info.inputs_dict(site))[0]
        addons_ops.host_store(slope)
    with popxl.Session(ir, "ipu_model") as session:
        memory = next(iter(compiled(session._programs).values())).memory
    assert memory is not None
    return memory.temporary


@ON_CPUS
def test_what_is_recomputed_takes_no_memory_meanwhile():
    """XLA must not compute it in the forward pass already: three tensors a layer would stay."""
    assert backward_memory(True) < 0.6 * backward_memory(False)


def test_a_repeated_main_graph_keeps_updates():
    ir = popxl.Ir()
    ir.num_host_transfers = 4
    with ir.main_graph, popxl.in_sequence():
        total = popxl.variable(np.zeros(3, np.float32))
        feed, out = popxl.h2d_stream((3,), popxl.float32), popxl.d2h_stream((3,), popxl.float32)
        doubled = ops.host_load(feed) * 2.0
        ops.scaled_add_(total, doubled, b=1.0)
        ops.host_store(out, doubled)
    body = addons.repeat_graph(ir.main_graph, 4)
    assert [op.opType() for op in ir.main_graph._pb_graph.getOps()] == ["Loop"]
    assert body.name.startswith("repeat_graph")
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    with popxl.Session(ir, "ipu_hw") as session:
        np.testing.assert_array_equal(session.run({feed: data})[out], 2 * data)
    np.testing.assert_array_equal(session.get_tensor_data(total), 2 * data.sum(0))


def pipeline(steps: int):
    """Two layers in three stages (the last one is backward), gradients accumulated, an update after the pipeline."""
    ir = popxl.Ir()
    ir.num_host_transfers = steps
    spec = popxl.TensorSpec((3, 4), popxl.float32)
    with ir.main_graph, popxl.in_sequence():
        feed, out = popxl.h2d_stream((3, 4), popxl.float32), popxl.d2h_stream((), popxl.float32)
        (f1, g1), (f2, g2) = Layer().create_graph(spec), Layer().create_graph(spec)
        a1, b1 = addons.autodiff_with_accumulation(g1, g1.args.tensors)
        a2, b2 = addons.autodiff_with_accumulation(g2, g2.args.tensors, grads_required=[g2.graph.inputs[0]])
        v1, v2, c1, c2 = f1.init("a"), f2.init("b"), a1.init("ca"), a2.init("cb")
        with addons.pipelined_execution(steps) as pipe:
            with pipe.stage(0), popxl.ipu(0):
                first = g1.bind(v1).call_with_info(ops.host_load(feed))
                h = ops.ipu_copy(first.outputs[0], 1)
            with pipe.stage(1), popxl.ipu(1):
                second = g2.bind(v2).call_with_info(h)
                ops.host_store(out, ops.sum(second.outputs[0]))
                seed = popxl.constant(np.ones((3, 4), np.float32))
                (dh,) = b2.bind(c2).call(seed, args=b2.grad_graph_info.inputs_dict(second))
                dh = ops.ipu_copy(dh, 0)
            with pipe.stage(2), popxl.ipu(0):
                b1.bind(c1).call(dh, args=pipe.stash_and_restore_activations(first, b1.grad_graph_info))
        ops.scaled_add_(v1.w, c1.accum.w, b=-0.1)
    return ir, feed, out, c1.accum.w, v1.w


def test_a_pipeline_gives_the_results_of_its_stages_in_order():
    ir, feed, out, accumulated, weight = pipeline(6)
    with popxl.Session(ir, "ipu_hw") as session:
        losses = session.run({feed: BATCHES})[out]
    w1, w2 = (torch.tensor(WEIGHT, requires_grad=True) for _ in range(2))
    expected = torch.stack([torch.tanh(torch.tanh(torch.tensor(x) @ w1) @ w2).sum() for x in BATCHES])
    expected.mean().backward()
    np.testing.assert_allclose(losses, expected.detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(session.get_tensor_data(accumulated), w1.grad.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(session.get_tensor_data(weight), WEIGHT - 0.1 * w1.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_pipeline_mistakes():
    with pytest.raises(ValueError, match=r"at least 2x the number of stages in the pipeline. steps=5 stages=3"):
        pipeline(5)
    with popxl.Ir().main_graph:
        x = popxl.variable(np.zeros(2, np.float32))
        with (
            pytest.raises(RuntimeError, match=r"^Operation must be created in a stage context."),
            addons.pipelined_execution(4),
        ):
            x + 1
        with (
            pytest.raises(ValueError, match="numbered from 0, got -1"),
            addons.pipelined_execution(4) as pipe,
            pipe.stage(-1),
        ):
            pass


def test_a_variable_changed_in_one_stage_and_read_in_another_is_as_old_as_the_pipeline_is_deep():
    steps, xs = 7, np.arange(1, 15, dtype=np.float32).reshape(2, 7)
    ir = popxl.Ir()
    ir.num_host_transfers = steps
    with ir.main_graph, popxl.in_sequence():
        feed, out = popxl.h2d_stream((), popxl.float32), popxl.d2h_stream((), popxl.float32)
        w = popxl.variable(np.float32(1.0), name="w")
        with addons.pipelined_execution(steps) as pipe:
            with pipe.stage(0), popxl.ipu(0):
                y = ops.host_load(feed) * w
                there = ops.ipu_copy(y, 1)
            with pipe.stage(1), popxl.ipu(1):
                back = ops.ipu_copy(there * 2.0, 0)
            with pipe.stage(2), popxl.ipu(0):
                early = pipe.stash_and_restore_tensor(y)
                ops.host_store(out, back + early)
                ops.var_updates.accumulate_(w, early, 0.25)
    names = [g.id.split("_subgraph")[0] for g in popxl_graphs(ir)]
    wanted = {"loads_stage_0", "stage_0", "stage_1", "stage_2", "stores_stage_2", "ipu_copies", "pipeline_graph"}
    assert wanted <= set(names)
    with popxl.Session(ir, "ipu_hw") as session:
        found = [session.run({feed: x})[out] for x in xs]
        final = session.get_tensor_data(w)
    weight, expected = 1.0, []
    for x in xs:
        made: dict[int, float] = {}
        for cycle in range(steps + 2):
            if cycle < steps:
                made[cycle] = x[cycle] * weight
            if cycle >= 2:
                expected.append(3 * made[cycle - 2])
                weight += 0.25 * made[cycle - 2]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-5)
    np.testing.assert_allclose(final, weight, rtol=1e-5)


def popxl_graphs(ir: popxl.Ir) -> list[popxl.Graph]:
    """Every graph of a program."""
    return [popxl.Graph._from_pb(g) for g in ir._pb_ir.getAllGraphs()]


def test_a_tensor_read_one_stage_later_on_the_same_ipu_is_held_for_a_cycle():
    steps, xs = 5, np.arange(1, 6, dtype=np.float32)
    ir = popxl.Ir()
    ir.num_host_transfers = steps
    with ir.main_graph, popxl.in_sequence():
        feed, out = popxl.h2d_stream((), popxl.float32), popxl.d2h_stream((), popxl.float32)
        offset = popxl.variable(np.float32(100.0))
        with addons.pipelined_execution(steps) as pipe:
            with pipe.stage(0):
                y = ops.host_load(feed) + offset
            with pipe.stage(1):
                ops.host_store(out, y * 2.0)
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run({feed: xs})[out], (xs + 100) * 2)


def test_batch_serialisation_passes_activations_through_buffers():
    steps, x = 3, BATCHES[:3]
    ir = popxl.Ir()
    ir.num_host_transfers = steps
    with ir.main_graph, popxl.in_sequence():
        feed, seeds = (popxl.h2d_stream((3, 4), popxl.float32) for _ in range(2))
        out = popxl.d2h_stream((3, 4), popxl.float32)
        factories, graph = Twice().create_graph(popxl.TensorSpec((3, 4), popxl.float32))
        state, grad = addons.autodiff_with_accumulation(graph, graph.args.tensors)
        loads = {graph.graph.inputs[0]: feed, grad.graph.inputs[0]: seeds}
        forward, backward = addons.batch_serialise_fwd_and_grad(
            graph, grad, graph.args, steps, loads, {graph.graph.outputs[0]: out}, {}, io_mode="compute"
        )
        weights, accumulators = factories.init(), state.init()
        forward.graph.bind(weights).call(0)
        everything = addons.NamedTensors.from_dict({**weights.to_dict(), **accumulators.to_dict()})
        backward.graph.bind(everything).call(0)
    with popxl.Session(ir, "ipu_hw") as session:
        session.run({feed: x, seeds: np.ones_like(x)})
    expected = np.mean([torch_gradients(part)[1] for part in x], axis=0)
    np.testing.assert_allclose(session.get_tensor_data(accumulators.accum.w), expected, rtol=1e-4, atol=1e-5)


def test_batch_serialisation_mistakes():
    with popxl.Ir().main_graph:
        _, graph = Layer().create_graph(popxl.TensorSpec((3, 4), popxl.float32))
        _, other = Layer().create_graph(popxl.TensorSpec((3, 4), popxl.float32))
        grad = addons.autodiff(other)
        loads = {t: popxl.h2d_stream((3, 4), popxl.float32) for t in (graph.graph.inputs[0], grad.graph.inputs[0])}
        with pytest.raises(RuntimeError, match=r"^Fwd Connection .* missing"):
            addons.batch_serialise_fwd_and_grad(graph, grad, graph.args, 2, loads, {}, {}, io_mode="compute")
        with pytest.raises(ValueError, match="Unknown 'io_mode' nowhere"):
            addons.batch_serialise(graph, 2, {}, {}, {}, io_mode="nowhere")
        with pytest.raises(ValueError, match=r"^IR must have IO tiles"):
            addons.batch_serialise(graph, 2, {}, {}, {})


def test_a_routed_tensor_reaches_every_call_site_once():
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        w, x = (popxl.variable(v) for v in (np.full(3, 2.0, np.float32), np.arange(3, dtype=np.float32)))

        def add_one(t: popxl.Tensor) -> popxl.Tensor:
            return t + 1

        inner = ir.create_graph(add_one, x)

        def call_it(t: popxl.Tensor) -> popxl.Tensor:
            return ops.call(inner, t)[0]

        middle = ir.create_graph(call_it, x)
        (once,), (thrice,) = ops.call(middle, x), ops.repeat(middle, 3, x)
        with inner:
            routed = addons.route_tensor_into_graph(w)
            assert addons.route_tensor_into_graph(w) is routed
            product = inner.outputs[0] * routed
            inner._pb_graph.removeOutput(0)
            popxl.graph_output(product)
        assert (len(inner.inputs), len(middle.inputs)) == (2, 2)
        assert addons.is_subgraph(ir.main_graph, inner)
        other = ir.create_empty_graph("other")
        with pytest.raises(ValueError, match="is not in a known parent graph"):
            addons.route_tensor_into_graph(w, other)
        streams = [addons_ops.host_store(t) for t in (once, thrice)]
    with popxl.Session(ir, "ipu_hw") as session:
        results = session.run()
    np.testing.assert_array_equal(results[streams[0]], [2, 4, 6])
    np.testing.assert_array_equal(results[streams[1]], [14, 22, 30])


@pytest.mark.parametrize("mode", ["compute", "io", "io_overlapped"])
def test_rows_of_sharded_buffers_pass_through_io_tiles(mode):
    """Two layers share a graph: each step loads row i and stores row i + 1, in shards over the replicas."""
    steps, layers = 2, 2
    ir = popxl.Ir(replication=2)
    ir._pb_ir.getSessionOptions().numIOTiles = 32
    ir.num_host_transfers = steps
    with ir.main_graph, popxl.in_sequence():
        group = ir.replica_grouping()
        feed, out = popxl.h2d_stream((3, 4), popxl.float32), popxl.d2h_stream((3, 4), popxl.float32)
        spec = popxl.TensorSpec((3, 4), popxl.float32)
        buffer = addons.batch_serial_buffer(spec, steps, layers + 1, group)
        assert (buffer.tensor_shape, buffer.meta_shape, buffer.entries) == ((6,), (3, 4), steps * (layers + 1))

        def row(offset):
            return addons.RemoteHandle(buffer, offset, group)

        def serialise(fn, loads, streams, stores, rows=1):
            graph = addons.GraphWithNamedArgs(ir.create_graph(fn, spec))
            x, y = graph.graph.inputs[0], graph.graph.outputs[0]
            pick = [dict.fromkeys([t], *h) if h else {} for t, h in ((x, loads), (y, streams), (y, stores))]
            return addons.batch_serialise(graph, steps, *pick, rows=rows, io_mode=mode).graph

        first = serialise(lambda x: x + 1.0, [feed], [], [row(0)])
        layer = serialise(lambda x: x * 2.0, [row(0)], [], [row(1)], layers)
        last = serialise(lambda x: x - 3.0, [row(layers)], [out], [])
        first.call(0)
        for i in range(layers):
            layer.call(i)
        last.call(0)
    data = np.random.RandomState(3).rand(steps, 2, 3, 4).astype(np.float32)
    data[:, 1] = data[:, 0]  # a tensor that is stored in shards is the same everywhere
    with popxl.Session(ir, "ipu_hw") as session:
        np.testing.assert_allclose(session.run({feed: data})[out], (data + 1) * 4 - 3, rtol=1e-6)


def test_copies_of_a_shard_are_shards():
    ir = popxl.Ir(replication=2)
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(np.arange(6, dtype=np.float32).reshape(2, 3))
        shard = ops.collectives.replicated_reduce_scatter(x, configure_output_for_replicated_tensor_sharding=True)
        moved = ops.io_tile_copy(ops.ipu_copy(shard, 0, 0))
        assert (moved.shape, moved.meta_shape) == ((3,), (2, 3))
        out = addons_ops.host_store(addons.gather_replica_sharded_tensor(moved, use_io_tiles=True))
    with popxl.Session(ir, "ipu_hw") as session:
        np.testing.assert_array_equal(session.run()[out][1], 2 * np.arange(6).reshape(2, 3))


def test_a_tensor_is_routed_into_the_branches_of_a_conditional():
    ir = popxl.Ir()
    spec = popxl.TensorSpec((), popxl.float32)
    with ir.main_graph, popxl.in_sequence():
        w, x = popxl.variable(np.float32(5.0)), popxl.variable(np.float32(2.0))
        feed = popxl.h2d_stream((), popxl.bool)
        yes, no = (ir.create_graph(lambda t, k=k: t + k, spec) for k in (1.0, 2.0))

        def choose(condition, t):
            return ops.conditional(condition, yes, no, [t], [t])[0]

        middle = ir.create_graph(choose, popxl.TensorSpec((), popxl.bool), spec)
        out = addons_ops.host_store(ops.call(middle, ops.host_load(feed), x)[0])
        for branch, factor in ((no, 10.0), (yes, 100.0)):
            with branch:
                product = branch.outputs[0] * addons.route_tensor_into_graph(w) * factor
                branch._pb_graph.removeOutput(0)
                popxl.graph_output(product)
        assert addons.route_tensor_into_graph(w, yes) in yes.inputs
        (op,) = middle._pb_graph.getOps()
        assert (op.opType(), len(op.getInputTensors())) == ("If", 5)
        with pytest.raises(NotImplementedError, match="writes nothing back"):
            addons.route_tensor_into_graph(x, no, modified=True)
    with popxl.Session(ir, "ipu_hw") as session:
        assert [float(session.run({feed: np.array(c)})[out]) for c in (True, False)] == [3 * 500, 4 * 50]


class Doubling(addons.Module):
    def build(self, x):
        return x * 2.0

    def build_grad(self, dy):
        return dy * 2.0


class Around(addons.Module):
    def build(self, x):
        return self.call_module(Doubling())(x)[0] + 1.0


def test_a_graph_with_its_own_gradient_is_not_differentiated_behind_its_back():
    with popxl.Ir().main_graph:
        _, graph = Around().create_graph(popxl.TensorSpec((2,), popxl.float32))
        known = dict(graph.called_graphs_grad_info)
        assert len(known) == 1
        graph.called_graphs_grad_info.clear()
        with pytest.raises(popart_exception, match="marked as unsafe to autodiff"):
            addons.autodiff(graph)
        addons.autodiff(graph, called_graphs_grad_info=known)


class Split(addons.Module):
    def build(self, x):
        q, k, v = ops.split(x, 3, axis=-1)
        return q * k + v


def test_gradients_that_are_joined_in_place_are_ordered_with_what_reads_their_parts():
    """The incoming gradient is one part of the result and a factor of the others."""
    ir = popxl.Ir()
    value = np.arange(12, dtype=np.float32).reshape(2, 6)
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(value)
        _, graph = Split().create_graph(x)
        grad = addons.autodiff(graph)
        site = graph.call_with_info(x)
        seed = popxl.constant(np.full((2, 2), 3, np.float32))
        out = addons_ops.host_store(grad.call(seed, args=grad.grad_graph_info.inputs_dict(site))[0])
    t = torch.tensor(value, requires_grad=True)
    q, k, v = t.split(2, -1)
    (q * k + v).backward(torch.full((2, 2), 3.0))
    assert t.grad is not None
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[out], t.grad.numpy())


@pytest.mark.parametrize("offset", [1.0, -9.0])
def test_gradients_of_both_branches_go_to_the_tensors_that_both_read(offset):
    """Outputs of one operator that ask for one name get names of their own."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x, w = popxl.variable(BATCHES[0]), popxl.variable(WEIGHT[0])
        yes, no = ir.create_graph(lambda a, b: a * b, x, w), ir.create_graph(lambda a, b: ops.exp(a) + b, x, w)

        def fn(x, w):
            total = ops.sum(x) + offset
            return ops.conditional(ops.greater(total, popxl.constant(0.0)), yes, no, [x, w], [x, w])[0]

        graph = ir.create_graph(fn, x, w)
        grad = addons.autodiff(graph)
        site = ops.call_with_info(graph, x, w)
        seed = popxl.constant(np.ones_like(BATCHES[0]))
        found = grad.call(seed, args=grad.grad_graph_info.inputs_dict(site))
        streams = [addons_ops.host_store(g) for g in found]
    a, b = torch.tensor(BATCHES[0], requires_grad=True), torch.tensor(WEIGHT[0], requires_grad=True)
    (a * b if float(a.detach().sum()) + offset > 0 else torch.exp(a) + b).sum().backward()
    with popxl.Session(ir) as session:
        result = session.run()
    for stream, t in zip(streams, (a, b), strict=True):
        np.testing.assert_allclose(result[stream], t.grad, rtol=1e-5)
