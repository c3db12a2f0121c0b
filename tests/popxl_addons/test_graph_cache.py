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


class Scaled(popxl.Module):
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def build(self, x: popxl.Tensor, plus: float) -> popxl.Tensor:
        return x * self.factor + plus


def test_functions_that_are_gone_share_nothing_with_later_ones_at_their_address():
    cache, ir = addons.GraphCache(), popxl.Ir()
    with ir.main_graph:
        x = popxl.constant(1.0)
        found = [ops.call(cache.create_graph(Scaled(float(k)), x, 0.0), x)[0] for k in range(20)]
        found += [ops.call(cache.create_graph(lambda t, k=k: t * float(k), x), x)[0] for k in range(20)]
        streams = [host_store(t) for t in found]
    with popxl.Session(ir) as session:
        sent = session.run()
    assert [float(sent[s]) for s in streams] == [*range(20), *range(20)]


def test_arguments_of_one_hash_differ():
    """Python gives -1 and -2 the same hash, and 1, 1.0 and True too."""
    cache, module = addons.GraphCache(), Dense(cache=True)
    with popxl.Ir().main_graph:
        x = popxl.constant(1.0)
        graphs = [cache.create_graph(double_plus, x, n) for n in (-1, -2, 1, 1.0, True, (-1,), (-2,))]
        assert len({g.id for g in graphs}) == len(graphs)
        assert cache.create_graph(double_plus, x, -2) is graphs[1]
        module.build = lambda x, axis: ops.softmax(x, axis)
        spec = popxl.TensorSpec((2, 3), popxl.float32)
        assert module.create_graph(spec, -1)[1].graph is not module.create_graph(spec, -2)[1].graph


def double_plus(x: popxl.Tensor, n: object) -> popxl.Tensor:
    return x * 2.0 + n
