"""Equal functions on equal specs share a graph."""

from __future__ import annotations

import numpy as np

from popart_jax import popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl import ops
from popart_jax.popxl_addons.ops import host_store


def double(x: popxl.Tensor) -> popxl.Tensor:
    return x * 2.0


def test_specs_placement_and_ir_make_the_key():
    cache, kept = addons.GraphCache(), []
    for _ in range(2):
        with popxl.Ir().main_graph:
            a, b = (popxl.variable(np.zeros(n, np.float32)) for n in (3, 3))
            first = cache.create_graph(double, a)
            assert cache.create_graph(double, b) is first
            assert cache.create_graph(double, popxl.variable(np.zeros(4, np.float32))) is not first
            with popxl.ipu(1):
                assert cache.create_graph(double, a) is not first
            kept.append(first)
    assert kept[0].ir != kept[1].ir


def test_the_decorator_outlines():
    outlined = addons.function(double)
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.arange(3, dtype=np.float32))
        (y,) = outlined(x)
        (z,) = outlined(y)
        stream = host_store(z)
    assert [op.opType() for op in ir.main_graph._pb_graph.getOps()] == ["Call", "Call", "HostStore"]
    assert len(ir.main_graph.called_graphs) == 1
    with popxl.Session(ir, "ipu_hw") as session:
        np.testing.assert_array_equal(session.run()[stream], [0, 4, 8])


class Dense(addons.Module):
    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        return ops.relu(x @ self.add_variable_input("w", lambda: np.ones((3, 3), np.float32), x.dtype))


def test_a_cached_module_gives_the_same_graph_and_names():
    with popxl.Ir().main_graph:
        module, x = Dense(cache=True), popxl.TensorSpec((2, 3), popxl.float32)
        (f1, g1), (f2, g2) = module.create_graph(x), module.create_graph(x)
        assert g1.graph is g2.graph
        assert f1.keys() == f2.keys() == g1.args.keys() == g2.args.keys() == ["w"]
        assert module.create_graph(popxl.TensorSpec((4, 3), popxl.float32))[1].graph is not g1.graph
