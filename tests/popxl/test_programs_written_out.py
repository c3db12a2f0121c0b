"""Programs of several parts, as users write them: code loading, convolutions, remote slices, masks of replicas."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.popxl import ops

from .run import rng

torch = pytest.importorskip("torch")
F = torch.nn.functional


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_variable_plus_constant(kind):
    ir = popxl.Ir()
    with ir.main_graph as main:
        a, b = popxl.variable(np.array([1, 2], kind), name="a"), popxl.constant(np.array([3, 4], kind), name="b")
        out = a + b
        sink = popxl.d2h_stream(out.shape, out.dtype)
        ops.host_store(sink, out)
    assert (len(main.tensors), len(main.variables), len(main.constants)) == (4, 1, 1)
    with popxl.Session(ir, "ipu_model") as session:
        found = session.run()[sink]
    assert found.dtype == kind
    np.testing.assert_array_equal(found, [4, 6])


def scaled(x: popxl.Tensor, power: int, subtract: bool) -> popxl.Tensor:
    for _ in range(power):
        x = x * 2.0
    return x - 1.0 if subtract else x + 1.0


def test_one_function_makes_several_graphs():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.float32(3))
        graphs = [ir.create_graph(scaled, x, power, flag) for power, flag in ((1, True), (3, False))]
        outs = [ops.call(g, value)[0] for g in graphs for value in (x, 1.0)]
        sinks = [popxl.d2h_stream((), popxl.float32) for _ in outs]
        for sink, out in zip(sinks, outs, strict=True):
            ops.host_store(sink, out)
    assert [g.id for g in graphs] == ["scaled_subgraph(0)", "scaled_subgraph(1)"]
    with popxl.Session(ir) as session:
        found = session.run()
    assert [float(found[s]) for s in sinks] == [5, 1, 25, 9]


def test_code_is_loaded_for_nested_graphs_and_in_loops():
    """Loading code changes no value; the operator stays in the graph and is not a call."""
    ir = popxl.Ir()

    def inner(x):
        return x * 2.0

    with ir.main_graph as main, popxl.in_sequence():
        x = popxl.variable(np.float32(1), name="x")
        inner_graph = ir.create_graph(inner, x)

        def outer(x):
            ops.remote_code_load(inner_graph, "executable")
            return ops.call(inner_graph, x)[0] + 1.0

        outer_graph = ir.create_graph(outer, x)
        ops.remote_code_load(outer_graph, "executable")
        (once,) = ops.call(outer_graph, x)

        def step(x):
            ops.remote_code_load(outer_graph, "executable")
            return ops.call(outer_graph, x)[0]

        ops.remote_code_load(outer_graph, destination="executable")
        (looped,) = ops.repeat(ir.create_graph(step, x), 3, once)
        sinks = [popxl.d2h_stream((), popxl.float32) for _ in range(2)]
        ops.host_store(sinks[0], once)
        ops.host_store(sinks[1], looped)
    assert [op.opType() for op in main._pb_graph.getOps()].count("RemoteCodeLoad") == 2
    assert next(g.id for g in main.called_graphs) == outer_graph.id
    with popxl.Session(ir, "ipu_hw") as session:
        found = session.run()
    assert [float(found[s]) for s in sinks] == [3, 31]


class Convolutions(popxl.Module):
    """Convolution, group norm, pooling, resizing and a second convolution."""

    def build(self, x):
        self.w1 = popxl.graph_input((4, 2, 3, 3), popxl.float32, "w1")
        self.scale = popxl.graph_input((4,), popxl.float32, "scale")
        self.shift = popxl.graph_input((4,), popxl.float32, "shift")
        self.w2 = popxl.graph_input((3, 2, 1, 2), popxl.float32, "w2")
        y = ops.conv(x, self.w1, stride=(1, 2), padding=(1, 0, 1, 2), dilation=(1, 1))
        y = ops.relu(ops.group_norm(y, self.scale, self.shift, 2))
        y = ops.max_pool(y, (2, 2), (2, 1))
        y = ops.interpolate(y, (1.0, 1.0, 2.0, 2.0), "nearest", "floor", "asymmetric")
        y = ops.average_pool(y, (2, 2), (1, 1), (0, 1, 0, 1))
        return ops.mean(ops.conv(ops.concat([y[:, :2], y[:, 2:]], 0), self.w2, (1, 1), (0, 0, 0, 0)), (2, 3))


def _by_torch(x, w1, scale, shift, w2):
    y = F.conv2d(F.pad(x, (0, 2, 1, 1)), w1, stride=(1, 2))
    y = F.max_pool2d(torch.relu(F.group_norm(y, 2, scale, shift)), 2, (2, 1))
    y = F.avg_pool2d(F.interpolate(y, scale_factor=2, mode="nearest"), 2, 1, (0, 1), count_include_pad=False)
    return F.conv2d(torch.cat([y[:, :2], y[:, 2:]], 0), w2).mean((2, 3))


@pytest.mark.usefixtures("optimised")  # a window's maximum is found again by its bits
def test_convolution_network_forward_and_backward():
    draw = rng(5).normal
    shapes = [(2, 2, 6, 7), (4, 2, 3, 3), (4,), (4,), (3, 2, 1, 2)]
    arrays = [draw(size=s).astype(np.float32) for s in shapes]
    seed = draw(size=(4, 3)).astype(np.float32)
    ir = popxl.Ir()
    with ir.main_graph:
        x, *weights = (popxl.variable(a) for a in arrays)
        net = Convolutions()
        graph = ir.create_graph(net, x)
        info = popxl.transforms.autodiff(graph)
        inner = [net.w1, net.scale, net.shift, net.w2]
        site = ops.call_with_info(graph, x, inputs_dict=dict(zip(inner, weights, strict=True)))
        back = ops.call_with_info(info.graph, popxl.constant(seed), inputs_dict=info.inputs_dict(site))
        found = info.fwd_parent_ins_to_grad_parent_outs(site, back)
        wanted = [site.outputs[0], *(found[t] for t in (x, *weights))]
        sinks = [popxl.d2h_stream(t.shape, t.dtype) for t in wanted]
        for sink, t in zip(sinks, wanted, strict=True):
            ops.host_store(sink, t)
    with popxl.Session(ir) as session:
        sent = session.run()
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    out = _by_torch(*leaves)
    out.backward(torch.tensor(seed))
    for sink, reference in zip(sinks, [out.detach(), *(t.grad for t in leaves)], strict=True):
        np.testing.assert_allclose(sent[sink], reference, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("stride", "size"), [(1, 1), (2, 2), (1, 2)])
def test_each_replica_owns_a_slice_of_a_remote_variable(stride, size):
    """Several entries of one buffer; a group shares a slice, which is loaded, updated and stored."""
    ir = popxl.Ir(replication=4)
    with ir.main_graph, popxl.in_sequence():
        rg = ir.replica_grouping(stride, size)
        buffer = popxl.remote_buffer((3,), popxl.float32, entries=2)
        data = [np.arange(3 * rg.num_groups, dtype=np.float32).reshape(rg.num_groups, 3) + 100 * k for k in range(2)]
        variables = [popxl.remote_variable(d, buffer, k, replica_grouping=rg) for k, d in enumerate(data)]
        for k in (1, 0):
            t = ops.remote_load(buffer, popxl.constant(k, popxl.uint32))
            ops.var_updates.accumulate_(t, popxl.constant(np.full(3, 1.0 + k, np.float32)))
            ops.remote_store(buffer, k, t)
    with popxl.Session(ir, "ipu_hw") as session:
        session.run()
        session.run()
        for k, v in enumerate(variables):
            np.testing.assert_array_equal(session.get_tensor_data(v), data[k] + 2 * (1 + k))


def test_masks_differ_by_layer_and_replica_and_the_gradient_has_the_same():
    ir = popxl.Ir(replication=2)

    def drop(x, seed):
        first, second = ops.split_random_seed(seed)
        return ops.dropout(ops.dropout(x, first, 0.5), second, 0.5)

    with ir.main_graph:
        stream = popxl.h2d_stream((2,), popxl.uint32)
        seed = ops.host_load(stream)
        x = popxl.variable(np.ones((64,), np.float32))
        graph = ir.create_graph(drop, x, seed)
        info = popxl.transforms.autodiff(graph, grads_required=[graph.inputs[0]])
        site = ops.call_with_info(graph, x, seed)
        (grad,) = ops.call(info.graph, popxl.constant(np.ones(64, np.float32)), inputs_dict=info.inputs_dict(site))
        sinks = [popxl.d2h_stream((64,), popxl.float32) for _ in range(2)]
        ops.host_store(sinks[0], site.outputs[0])
        ops.host_store(sinks[1], grad)
    seeds = popxl.create_seeds(3, replicas=2)
    with popxl.Session(ir, "ipu_hw") as session:
        a, b = (session.run({stream: seeds}) for _ in range(2))
    out, back = a[sinks[0]], a[sinks[1]]
    np.testing.assert_array_equal(out, b[sinks[0]])
    np.testing.assert_allclose(out, back)  # ones in, ones back: the same elements survive
    assert not np.array_equal(out[0], out[1])
    assert set(np.unique(out)) <= {0.0, 4.0}
    assert 0.1 < (out > 0).mean() < 0.4


def test_two_parents_share_the_gradient_of_a_graph():
    ir = popxl.Ir()
    with ir.main_graph:
        x, w = (
            popxl.variable(rng(0).normal(size=(2, 3)).astype(np.float32)),
            popxl.variable(np.eye(3, dtype=np.float32)),
        )
        shared = ir.create_graph(lambda x, w: ops.tanh(x @ w), x, w)
        info = popxl.transforms.autodiff(shared)
        results = []
        for factor in (2.0, 3.0):
            parent = ir.create_graph(lambda x, w, f=factor: ops.call(shared, x, w)[0] * f, x, w)
            every = popxl.transforms.autodiff(
                parent, called_graphs_grad_info={shared: info}, return_all_grad_graphs=True
            )
            assert every[shared] is info
            mine, site = every[parent], ops.call_with_info(parent, x, w)
            ones = popxl.constant(np.ones((2, 3), np.float32))
            back = ops.call_with_info(mine.graph, ones, inputs_dict=mine.inputs_dict(site))
            assert info.graph in mine.graph.called_graphs
            results.append(mine.fwd_parent_ins_to_grad_parent_outs(site, back)[w])
        sinks = [popxl.d2h_stream((3, 3), popxl.float32) for _ in results]
        for sink, t in zip(sinks, results, strict=True):
            ops.host_store(sink, t)
    with popxl.Session(ir) as session:
        sent = session.run()
    leaf = torch.eye(3, requires_grad=True)
    torch.tanh(torch.tensor(x._host) @ leaf).sum().backward()
    for sink, factor in zip(sinks, (2, 3), strict=True):
        np.testing.assert_allclose(sent[sink], factor * leaf.grad, rtol=1e-5)
