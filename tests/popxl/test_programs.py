"""Whole programs: training by hand, outlined transformers, several Irs in one script."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.popxl import ops

from .transformer import Layer, program


class Net(popxl.Module):
    """Two dense layers with weights of its own."""

    def build(self, x):
        self.w1 = popxl.graph_input((64, 32), popxl.float32, "w1")
        self.b1 = popxl.graph_input((32,), popxl.float32, "b1")
        self.w2 = popxl.graph_input((32, 10), popxl.float32, "w2")
        return ops.relu(x @ self.w1 + self.b1) @ self.w2


def _weights(net):
    rng = np.random.default_rng(0)
    return {
        t: popxl.variable(rng.normal(0, 0.1, t.shape).astype(np.float32), name=t.name) for t in (net.w1, net.b1, net.w2)
    }


def test_digits_by_hand():
    """Train in one Ir, copy the weights to another one, test there."""
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16).astype(np.float64)
    batch = 16
    ir = popxl.Ir()
    with ir.main_graph:
        image, label = popxl.h2d_stream((batch, 64), popxl.float32), popxl.h2d_stream((batch,), popxl.int32)
        x, y = ops.host_load(image), ops.host_load(label)
        net = Net()
        graph = ir.create_graph(net, x)
        info = popxl.transforms.autodiff(graph, grads_required=[net.w1, net.b1, net.w2])
        weights = _weights(net)
        site = ops.call_with_info(graph, x, inputs_dict=weights)
        loss, dx = ops.nll_loss_with_softmax_grad(ops.softmax(site.outputs[0], -1), y)
        sink = popxl.d2h_stream((), popxl.float32)
        ops.host_store(sink, loss)
        back = ops.call_with_info(info.graph, dx, inputs_dict=info.inputs_dict(site))
        for t, grad in info.fwd_parent_ins_to_grad_parent_outs(site, back).items():
            ops.scaled_add_(t, grad, b=-0.3)
    training = popxl.Session(ir, "ipu_hw")
    losses = []
    with training:
        for epoch in range(6):
            order = np.random.default_rng(epoch).permutation(1500)
            for k in range(0, 1488, batch):
                rows = order[k : k + batch]
                losses.append(float(training.run({image: images[rows], label: labels[rows]})[sink]))
    assert np.mean(losses[-50:]) < 0.2 < np.mean(losses[:20])

    test_ir = popxl.Ir()
    with test_ir.main_graph:
        source = popxl.h2d_stream((297, 64), popxl.float32)
        test_net = Net()
        x = ops.host_load(source)
        graph = test_ir.create_graph(test_net, x)
        mine = _weights(test_net)
        (out,) = ops.call(graph, x, inputs_dict=mine)
        sink = popxl.d2h_stream(out.shape, out.dtype)
        ops.host_store(sink, out)
    testing = popxl.Session(test_ir, "ipu_hw")
    trained = training.get_tensors_data(weights.values())
    pairs = zip(weights.values(), mine.values(), strict=True)
    testing.write_variables_data({m: trained[w].copy() for w, m in pairs})
    with testing:
        found = testing.run({source: images[1500:]})[sink]
    assert np.mean(found.argmax(-1) == labels[1500:]) > 0.9


def _reference(x, layers, heads, weights):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def norm(t, g, b):
        mean, var = t.mean(-1, keepdims=True), t.var(-1, keepdims=True)
        return (t - mean) / jnp.sqrt(var + 1e-5) * g + b

    def layer(x, w):
        n, d = x.shape
        q, k, v = (
            t.reshape(n, heads, -1).transpose(1, 0, 2) for t in jnp.split(norm(x, w["g1"], w["b1"]) @ w["qkv"], 3, 1)
        )
        scores = jax.nn.softmax(q @ k.transpose(0, 2, 1) / np.sqrt(d // heads), -1)
        x = x + (scores @ v).transpose(1, 0, 2).reshape(n, d) @ w["out"]
        return x + jax.nn.gelu(norm(x, w["g2"], w["b2"]) @ w["up"]) @ w["down"]

    for i in range(layers):
        x = layer(x, {name: weights[f"{name}{i}"] for name in ("g1", "b1", "qkv", "out", "g2", "b2", "up", "down")})
    return jnp.mean(x * x)


def test_outlined_transformer_against_jax():
    """Losses of three Adam steps equal those of the same network written in JAX."""
    jax = pytest.importorskip("jax")
    ir, source, sink = program(layers=2)
    names = ("g1", "b1", "qkv", "out", "g2", "b2", "up", "down")
    weights = {
        v.name: v._host.copy() for v in ir.main_graph.variables if v.name in {f"{n}{i}" for n in names for i in (0, 1)}
    }
    data = np.random.default_rng(3).normal(size=(8, 16)).astype(np.float32)
    with popxl.Session(ir) as session:
        losses = [float(session.run({source: data})[sink]) for _ in range(3)]
    state = {n: (np.zeros_like(w), np.zeros_like(w)) for n, w in weights.items()}
    value = jax.jit(jax.value_and_grad(lambda w: _reference(data, 2, 2, w)))
    for loss in losses:
        want, grads = value(weights)
        np.testing.assert_allclose(loss, want, rtol=1e-4)
        for n, g in grads.items():
            m, v = state[n]
            state[n] = (0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g)
            weights[n] = weights[n] - 0.001 * state[n][0] / (np.sqrt(state[n][1]) + 1e-5)
    assert losses[0] > losses[-1]


def test_each_outlined_graph_is_traced_once(monkeypatch):
    """Five layers translate no more nodes than two do, apart from the calls themselves."""
    from popart_jax.lowering import interpreter

    counts = []
    original = interpreter.run_step

    def counted(step, walk):
        counts.append(step.node.op_type)
        return original(step, walk)

    monkeypatch.setattr(interpreter, "run_step", counted)
    found = []
    for layers in (2, 5):
        counts.clear()
        popxl.Session(program(layers=layers)[0])
        found.append(sum(name not in ("Call", "MultiExchange") for name in counts))
    assert found[0] == found[1]


def test_layers_are_modules():
    ir = popxl.Ir()
    with ir.main_graph:
        layer = Layer(2)
        graph = ir.create_graph(layer, popxl.TensorSpec((4, 8), popxl.float32))
    assert graph.id == "Layer_subgraph(0)"
    assert [t.name for t in layer.weights] == ["g1", "b1", "qkv", "out", "g2", "b2", "up", "down"]


def test_sessions_of_several_irs_alternate():
    def make(factor):
        ir = popxl.Ir()
        with ir.main_graph:
            v, sink = popxl.variable(np.float32(1), name="v"), popxl.d2h_stream((), popxl.float32)
            ops.host_store(sink, ops.scaled_add_(v, popxl.constant(factor), b=1.0))
        return popxl.Session(ir), sink

    (one, a), (two, b) = make(1.0), make(10.0)
    for k in range(3):
        with one:
            assert one.run()[a] == 2 + k
        with two:
            assert two.run()[b] == 11 + 10 * k
