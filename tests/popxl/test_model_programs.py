"""Programs on popxl_addons, as model code writes them: optimisers, parallel layers, checkpoints.

Annotations are objects here, not strings: PopXL only knows `TensorByRef` itself.
"""

from functools import partial

import numpy as np
import pytest

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons.ops import replicated_all_reduce_TP as tp

from .run import rng

torch = pytest.importorskip("torch")
SPEC = popxl.TensorSpec((4, 6), popxl.float32)


class Linear(addons.Module):
    """x @ weight + bias, the weight the same in every run of the program."""

    def __init__(self, width, cache=False, grouping=None):
        super().__init__(cache=cache)
        self.width, self.grouping = width, grouping

    def build(self, x):
        shape, groups = (x.shape[-1], self.width), 1 if self.grouping is None else self.grouping.num_groups
        draws = iter(np.random.default_rng(7).normal(0, 0.3, (groups + 2, *shape)).astype(np.float32))
        w = self.add_variable_input("weight", partial(next, draws), x.dtype, replica_grouping=self.grouping)
        return x @ w + self.add_variable_input("bias", partial(np.zeros, self.width), x.dtype)


class Adam(addons.Module):
    """One step of Adam; the rate is a number or a tensor."""

    @popxl.in_sequence()
    def build(self, w: popxl.TensorByRef, g, rate):
        zeros = partial(np.zeros, w.shape)
        m = self.add_variable_input("m", zeros, popxl.float32, by_ref=True)
        v = self.add_variable_input("v", zeros, popxl.float32, by_ref=True)
        step = self.add_variable_input("step", partial(np.zeros, ()), popxl.float32, by_ref=True)
        ops.var_updates.accumulate_moving_average_(m, g, 0.9)
        ops.var_updates.accumulate_moving_average_square_(v, g, 0.99)
        update = ops.var_updates.adam_updater(m, v, time_step=step, beta1=0.9, beta2=0.99, epsilon=1e-6)
        ops.scaled_add_(w, update, b=-rate)


@pytest.mark.parametrize("compiled", [True, False])
def test_an_optimiser_of_ones_own(compiled):
    """Programs 28 and 36: a cached optimiser module, one graph per shape, over a list of layers."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        feed = popxl.h2d_stream((4, 6), popxl.float32)
        x, rate = ops.host_load(feed), 0.01 if compiled else popxl.constant(0.01)
        layers = addons.Module.from_list([Linear(6), Linear(6), Linear(2)])

        class Net(addons.Module):
            def __init__(self):
                super().__init__()
                self.layers = layers

            def build(self, x):
                for layer in self.layers:
                    x = ops.tanh(layer(x))
                return x

        factories, forward = Net().create_graph(x)
        backward = addons.autodiff(forward, grads_required=forward.args.tensors)
        variables = factories.init()
        assert list(factories.to_dict()) == [f"layers.{i}.{n}" for i in range(3) for n in ("weight", "bias")]
        assert variables.layers[-1].weight is variables.layers[2].weight
        site = forward.bind(variables).call_with_info(x)
        ones = popxl.constant(np.ones((4, 2), np.float32))
        info = backward.grad_graph_info
        back = backward.call_with_info(ones, args=info.inputs_dict(site))
        grads = info.fwd_parent_ins_to_grad_parent_outs(site, back)
        optimiser, graphs, state = Adam(cache=True), set(), addons.NamedTensors()
        for name, w in variables.to_dict().items():
            facts, step = optimiser.create_graph(w, grads[w], rate)
            mine = facts.init(f"state.{name}")
            state.insert(name, mine, overwrite=True)
            graphs.add(step.graph)
            step.bind(mine).call(w, grads[w], *([] if compiled else [rate]))
    assert len(graphs) == len({w.shape for w in variables.tensors})
    text = step.print_schedule()
    assert "AdamUpdater" in text
    assert ("Neg" in text) is not compiled
    assert set(state.layers["0"].weight.to_dict()) == {"m", "v", "step"}
    data = rng(1).normal(size=(5, 4, 6)).astype(np.float32)
    initial = {n: t._host.copy() for n, t in variables.to_dict().items()}
    with popxl.Session(ir) as session:
        for batch in data:
            session.run({feed: batch})
        found = session.get_tensors_data(variables.tensors)
    leaves = {n: torch.tensor(a, requires_grad=True) for n, a in initial.items()}
    adam = torch.optim.Adam(leaves.values(), lr=0.01, betas=(0.9, 0.99), eps=1e-6)
    for batch in data:
        h = torch.tensor(batch)
        for i in range(3):
            h = torch.tanh(h @ leaves[f"layers.{i}.weight"] + leaves[f"layers.{i}.bias"])
        adam.zero_grad()
        h.sum().backward()
        adam.step()
    for name, t in variables.to_dict().items():
        np.testing.assert_allclose(found[t], leaves[name].detach(), rtol=1e-3, atol=2e-5)


class Block(addons.Module):
    """Two layers split over the replicas of a tensor-parallel group: columns of the first, rows of the second."""

    def __init__(self, grouping):
        super().__init__()
        self.grouping = grouping

    def build(self, x):
        ranks = self.grouping.transpose()
        x = tp.replicated_all_reduce_identical_inputs(x, group=ranks)
        groups, n = self.grouping.num_groups, 8
        first = rng(3).normal(0, 0.4, (6, n)).astype(np.float32)
        last = rng(4).normal(0, 0.4, (n, 6)).astype(np.float32)
        columns, rows = (iter(parts) for parts in (np.split(first, groups, 1), np.split(last, groups, 0)))
        w1 = self.add_variable_input("w1", columns, x.dtype, replica_grouping=self.grouping)
        w2 = self.add_variable_input("w2", rows, x.dtype, replica_grouping=self.grouping)
        return tp.replicated_all_reduce_identical_grad_inputs(ops.gelu(x @ w1) @ w2, group=ranks)


@pytest.mark.parametrize(("parallel", "data"), [(2, 1), (2, 2), (4, 2)])
def test_tensor_and_data_parallelism(parallel, data):
    """Program 32: the parts of a weight live on the ranks of a group, gradients are reduced over the other axis."""
    ir = popxl.Ir(replication=parallel * data)
    with ir.main_graph, popxl.in_sequence():
        owners = ir.replica_grouping(stride=parallel, group_size=data)  # replicas with the same part of the weights
        feed = popxl.h2d_stream((4, 6), popxl.float32)
        x = ops.host_load(feed)
        factories, forward = Block(owners).create_graph(x)
        backward = addons.autodiff(forward)
        variables = factories.init()
        site = forward.bind(variables).call_with_info(x)
        info = backward.grad_graph_info
        ones = popxl.constant(np.ones((4, 6), np.float32))
        back = backward.call_with_info(ones, args=info.inputs_dict(site))
        grads = info.fwd_parent_ins_to_grad_parent_outs(site, back)
        for w in variables.tensors:
            ops.scaled_add_(w, ops.collectives.replicated_all_reduce(grads[w], group=owners), b=-0.1)
        sinks = [popxl.d2h_stream((4, 6), popxl.float32) for _ in range(2)]
        ops.host_store(sinks[0], site.outputs[0])
        ops.host_store(sinks[1], grads[x])
    addons.apply_pre_alias_patterns(ir)
    batches = rng(5).normal(size=(data, 4, 6)).astype(np.float32)
    every = np.repeat(batches, parallel, 0)
    with popxl.Session(ir, "ipu_hw") as session:
        sent = session.run({feed: every})
        found = session.get_tensors_data(variables.tensors)
    w1 = torch.tensor(rng(3).normal(0, 0.4, (6, 8)).astype(np.float32), requires_grad=True)
    w2 = torch.tensor(rng(4).normal(0, 0.4, (8, 6)).astype(np.float32), requires_grad=True)
    x = torch.tensor(batches, requires_grad=True)
    y = torch.nn.functional.gelu(x @ w1, approximate="tanh") @ w2
    y.sum().backward()
    np.testing.assert_allclose(sent[sinks[0]], np.repeat(y.detach().numpy(), parallel, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sent[sinks[1]], np.repeat(x.grad.numpy(), parallel, 0), rtol=1e-4, atol=1e-5)
    joined = [np.concatenate(list(found[variables[n]]), axis) for n, axis in (("w1", 1), ("w2", 0))]
    for array, leaf in zip(joined, (w1, w2), strict=True):
        np.testing.assert_allclose(array, (leaf - 0.1 * leaf.grad).detach(), rtol=1e-4, atol=1e-5)


def test_a_task_is_saved_and_resumed(tmp_path):
    """Program 40: named streams and state, checkpoints, and weights of another task."""

    def task():
        ir = popxl.Ir()
        with ir.main_graph, popxl.in_sequence():
            inputs = addons.InputStreams(x=((4, 6), popxl.float32))
            factories, graph = Linear(3).create_graph(SPEC)
            state = factories.init()
            y = ops.host_load(inputs.x)
            (y,) = graph.bind(state).call(y)
            ops.var_updates.accumulate_(state.bias, ops.sum(y, 0))
            outputs = addons.OutputStreams(y=(y.shape, y.dtype))
            ops.host_store(outputs.y, y)
        return addons.TaskSession(inputs, outputs, state, 2, ir)

    x = rng(2).normal(size=(4, 6)).astype(np.float32)
    first, second, third = task(), task(), task()
    with first:
        for _ in range(3):
            first.run({first.inputs.x: x})
        first.save_checkpoint(str(tmp_path / "three"))
        expected = first.run({first.inputs.x: x})[first.outputs.y]
    with second:
        second.load_checkpoint(str(tmp_path / "three"))
        assert second.session_state["steps"] == 3
        np.testing.assert_array_equal(second.run({second.inputs.x: x})[second.outputs.y], expected)
    third.load_from_session(first)
    mine, theirs = third.get_named_tensors_data().to_dict(), first.get_named_tensors_data().to_dict()
    assert list(mine) == list(theirs)
    for name, data in mine.items():
        np.testing.assert_array_equal(data, theirs[name])


def test_weights_live_in_files(tmp_path):
    """Program 41: variables made in files are trained there, and read back without being written."""

    def make(read_only):
        ir = popxl.Ir()
        with ir.main_graph:
            factories, graph = Linear(3).create_graph(SPEC)
            variables = factories.init(memmap_dir=str(tmp_path), read_only_if_exists=read_only)
            x = popxl.constant(np.ones((4, 6), np.float32))
            (y,) = graph.bind(variables).call(x)
            if not read_only:
                ops.var_updates.accumulate_(variables.bias, ops.sum(y, 0))
            sink = popxl.d2h_stream(y.shape, y.dtype)
            ops.host_store(sink, y)
        return popxl.Session(ir), variables, sink

    session, variables, sink = make(False)
    with session:
        first = session.run()[sink]
    trained = np.memmap(tmp_path / "bias.npy", np.float32, "r")
    np.testing.assert_allclose(trained, first.sum(0), rtol=1e-5)
    session, variables, sink = make(True)
    assert isinstance(variables.bias._host, np.memmap)
    with session:
        np.testing.assert_allclose(session.run()[sink], first + trained, rtol=1e-5)
        with pytest.raises(Exception, match="read-only"):
            session.weights_to_host()


def test_operations_are_counted_through_calls_and_loops():
    """Program 45."""
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        factories, graph = Linear(6).create_graph(SPEC)
        variables = factories.init()
        x = popxl.constant(np.ones((4, 6), np.float32))
        body = ir.create_graph(lambda x, w, b: ops.call(graph.graph, x, w, b)[0], x, *variables.tensors[::-1])
        ops.repeat(body, 5, x, *variables.tensors[::-1])
        graph.bind(variables).call(x)
    one = 2 * 6 * 24 + 24  # a product of [4, 6] and [6, 6], and a sum
    assert addons.evaluate_FLOPs(graph.graph)["TOT"] == one
    assert addons.total_FLOPs(ir) == 2 * 6 * one


def test_printing_by_level(monkeypatch, capfd):
    """Program 46."""
    monkeypatch.setenv("MODEL_LOG_LEVEL", "INFO")
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.array([1.5, 2.5], np.float32), name="x")
        quiet = addons.print_tensor(x, level="DEBUG")
        addons.print_tensor(x, "loud", level="WARN")
    assert quiet is x
    with popxl.Session(ir) as session:
        session.run()
    err = capfd.readouterr().err
    assert "loud" in err
    assert "1.5" in err
