"""Inference in phases: while a layer computes, the weights of the next come from remote memory, on the IO tiles."""

from __future__ import annotations

import numpy as np

from popart_jax import popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl import ops
from popart_jax.popxl_addons import NamedTensors
from popart_jax.popxl_addons.layers import Linear
from popart_jax.popxl_addons.remote import load_remote_graph, named_variable_buffers

LAYERS, SPEC = 4, popxl.TensorSpec((3, 5), popxl.float32)


class Layer(addons.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = Linear(5)

    def build(self, x):
        return x + ops.tanh(self.dense(x))


def test_weights_of_the_next_layer_are_loaded_while_this_one_computes():
    ir = popxl.Ir()
    ir._pb_ir.getSessionOptions().numIOTiles = 32
    with ir.main_graph, popxl.in_sequence():
        source, sink = (make(SPEC.shape, SPEC.dtype) for make in (popxl.h2d_stream, popxl.d2h_stream))
        factories, graph = Layer().create_graph(SPEC)
        buffers = named_variable_buffers(factories, LAYERS)
        layers = [factories.init_remote(buffers, n, f"layer.{n}", empty=True) for n in range(LAYERS)]
        load, names = load_remote_graph(buffers, LAYERS, use_io_tiles=True)

        def step(n, x, weights):
            with popxl.in_sequence(False):
                n = n + 1
                row = ops.io_tile_copy(n)
                with popxl.transforms.io_tile_exchange():
                    loaded = [ops.remote_load(buffers.get(name), row, name) for name in names]
                (y,) = graph.bind(NamedTensors.pack(names, weights)).call(x)
                return n, y, *(ops.io_tile_copy(t) for t in loaded)

        n, x, first = popxl.constant(0), ops.host_load(source), load.call(0)
        _, x, *last = ops.repeat(ir.create_graph(step, n, x, list(first)), LAYERS - 1, n, x, *first)
        ops.host_store(sink, graph.bind(NamedTensors.pack(names, last)).call(x)[0])
    rng = np.random.default_rng(0)
    given = {t: rng.normal(size=t.shape).astype(np.float32) for layer in layers for t in layer.tensors}
    x = rng.normal(size=SPEC.shape).astype(np.float32)
    with popxl.Session(ir, "ipu_hw") as session:
        session.write_variables_data(given)
        found = session.run({source: x})[sink]
    for layer in layers:
        x = x + np.tanh(x @ given[layer.dense.weight] + given[layer.dense.bias])
    np.testing.assert_allclose(found, x, rtol=1e-4, atol=1e-5)
