"""An outlined transformer: one layer graph called many times, its gradient graph, and an optimizer graph per shape."""

from __future__ import annotations

import numpy as np

from popart_jax import popxl
from popart_jax.popxl import ops


class Layer(popxl.Module):
    """Pre-norm attention and feed-forward block on (tokens, hidden)."""

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self.weights: list[popxl.Tensor] = []

    def weight(self, name, *shape):
        t = popxl.graph_input(shape, popxl.float32, name)
        self.weights.append(t)
        return t

    def build(self, x):
        n, d = x.shape
        h = self.heads
        y = ops.layer_norm(x, self.weight("g1", d), self.weight("b1", d))
        qkv = y @ self.weight("qkv", d, 3 * d)
        q, k, v = (t.reshape((n, h, d // h)).transpose((1, 0, 2)) for t in ops.split(qkv, 3, 1))
        scores = ops.softmax((q @ k.transpose((0, 2, 1))) * (1 / np.sqrt(d // h)), -1)
        x = x + (scores @ v).transpose((1, 0, 2)).reshape((n, d)) @ self.weight("out", d, d)
        y = ops.layer_norm(x, self.weight("g2", d), self.weight("b2", d))
        y = ops.gelu(y @ self.weight("up", d, 4 * d)) @ self.weight("down", 4 * d, d)
        return x + y


def adam(w, g, m, v):
    ops.var_updates.accumulate_moving_average_(m, g, 0.9)
    ops.var_updates.accumulate_moving_average_square_(v, g, 0.99)
    u = ops.var_updates.adam_updater(m, v, epsilon=1e-5)
    ops.scaled_add_(w, u, b=-0.001)


for _name in ("w", "m", "v"):
    adam.__annotations__[_name] = popxl.TensorByRef


def program(layers=2, tokens=8, hidden=16, heads=2, replication=1):
    """(ir, stream, loss stream): mean of squares of the output, minimised by Adam."""
    ir = popxl.Ir(replication=replication)
    rng = np.random.default_rng(0)
    with ir.main_graph, popxl.in_sequence():
        source = popxl.h2d_stream((tokens, hidden), popxl.float32)
        x = ops.host_load(source)
        layer = Layer(heads)
        graph = ir.create_graph(layer, x)
        info = popxl.transforms.autodiff(graph)
        sites, weights = [], []
        for i in range(layers):
            mine = {
                t: popxl.variable(rng.normal(0, 0.1, t.shape).astype(np.float32), name=f"{t.name}{i}")
                for t in layer.weights
            }
            sites.append(ops.call_with_info(graph, x, inputs_dict=mine))
            weights.append(mine)
            x = sites[-1].outputs[0]
        loss = ops.mean(x * x)
        sink = popxl.d2h_stream((), popxl.float32)
        ops.host_store(sink, loss)
        grad = x * (2.0 / x.nelms)
        optimizers = {}
        for site, mine in reversed(list(zip(sites, weights, strict=True))):
            back = ops.call_with_info(info.graph, grad, inputs_dict=info.inputs_dict(site))
            found = info.fwd_graph_ins_to_grad_parent_outs(back)
            grad = found[graph.inputs[0]]
            for t, w in mine.items():
                state = [popxl.variable(np.zeros(w.shape, np.float32), name=f"{w.name}_{k}") for k in "mv"]
                if w.shape not in optimizers:
                    optimizers[w.shape] = ir.create_graph(adam, w, found[t], *state)
                ops.call(optimizers[w.shape], w, found[t], *state)
    return ir, source, sink
