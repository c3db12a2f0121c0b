"""Calls, by-reference inputs, loops and branches."""

from __future__ import annotations

from typing import List  # noqa: UP035 - programs write it so

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.errors import popart_exception
from popart_jax.popxl import ops

ONES = np.ones((2,), np.float32)


def final(build, *, runs=1):
    """Value of the variable that `build(ir)` returns after some runs."""
    ir = popxl.Ir()
    with ir.main_graph:
        v = build(ir)
    session = popxl.Session(ir)
    with session:
        for _ in range(runs):
            session.run()
    return session.get_tensor_data(v)


def test_inputs_are_values():
    def build(ir):
        v = popxl.variable(ONES, name="v")
        g = ir.create_graph(lambda x: ops.add_(x, popxl.constant(ONES)), v)
        ops.call(g, v)
        return v

    np.testing.assert_array_equal(final(build), ONES)


def by_ref(x: popxl.TensorByRef):
    return ops.add_(x, popxl.constant(ONES))


def by_ref_list(xs: List[popxl.TensorByRef]):  # noqa: UP006
    for x in xs:
        ops.add_(x, popxl.constant(ONES))


by_ref.__annotations__["x"] = popxl.TensorByRef
by_ref_list.__annotations__["xs"] = List[popxl.TensorByRef]  # noqa: UP006


def test_by_reference():
    def build(ir):
        v = popxl.variable(ONES, name="v")
        g = ir.create_graph(by_ref, v)
        with popxl.in_sequence():
            info = ops.call_with_info(g, v)
            ops.call(g, v)
        assert info._op.modifiesIndex(0)
        assert g._by_ref_inputs == {g.inputs[0]}
        return v

    np.testing.assert_array_equal(final(build, runs=2), ONES * 5)


def test_by_reference_lists():
    def build(ir):
        a, b = popxl.variable(ONES, name="a"), popxl.variable(ONES, name="b")
        g = ir.create_graph(by_ref_list, [a, b])
        assert [t.name for t in g.inputs] == ["xs_0", "xs_1"]
        ops.call(g, a, b)
        return b

    np.testing.assert_array_equal(final(build), ONES * 2)


def test_set_parent_input_modified_and_nested_calls():
    def build(ir):
        v = popxl.variable(ONES, name="v")
        inner = ir.create_graph(lambda x: ops.add_(x, popxl.constant(ONES)), v)

        def middle(x):
            ops.call_with_info(inner, x).set_parent_input_modified(x)

        outer = ir.create_graph(middle, v)
        info = ops.call_with_info(outer, v)
        info.set_parent_input_modified(v)
        return v

    np.testing.assert_array_equal(final(build), ONES * 2)


def test_site_info_maps():
    ir = popxl.Ir()
    with ir.main_graph:
        a, b = popxl.variable(ONES, name="a"), popxl.variable(ONES * 2, name="b")
        g = ir.create_graph(lambda x, y: (x + y, x), a, b)
        info = ops.call_with_info(g, a, inputs_dict={g.inputs[1]: b})
        assert info.inputs == (a, b)
        assert [t.name for t in info.outputs] == ["add_out", "x"]
        assert info.graph_to_parent(g.inputs[1]) == b
        assert info.graph_to_parent(g.outputs[0]) == info.outputs[0]
        assert info.graph_to_parent(g.outputs[1]) == a
        assert info.parent_to_graph(b) == g.inputs[1]
        assert info.called_graph is g
        with pytest.raises(IndexError):
            info.parent_input(2)
        with pytest.raises(ValueError):
            info.parent_to_graph(info.outputs[0])


def test_bad_inputs():
    ir = popxl.Ir()
    with ir.main_graph:
        a = popxl.variable(ONES, name="a")
        g = ir.create_graph(lambda x, y: x + y, a, a)
        with pytest.raises(ValueError, match="Missing inputs"):
            ops.call(g, a)
        with pytest.raises(ValueError):
            ops.call(g, a, a, a)
        with pytest.raises(ValueError):
            ops.call(g, a, inputs_dict={g.inputs[0]: a})
        with pytest.raises(popart_exception):
            ops.call(g, a, popxl.constant(np.ones(3, np.float32)))
        with pytest.raises(ValueError):
            ops.call(g, a, g.inputs[0])
        (out,) = ops.call(g, a, [[1.0, 2.0]])
        assert out.shape == (2,)


def test_create_graph_arguments():
    ir = popxl.Ir()
    with ir.main_graph:
        a = popxl.variable(ONES, name="a")

        def many(x, flag, *rest, k=3, **named):
            assert flag == "yes"
            assert k == 3
            assert sorted(named) == ["p", "q"]
            return x + rest[0] + named["p"]

        g = ir.create_graph(many, a, "yes", a, a, p=a, q=a)
        assert [t.name for t in g.inputs] == ["x", "rest_0", "rest_1", "p", "q"]
        assert g.id == "test_create_graph_arguments.many_subgraph(0)"
        with pytest.raises(TypeError):
            ir.create_graph(lambda xs: xs, [a, 1])
        with pytest.raises(ValueError, match="do not match the signature"):
            ir.create_graph(lambda x: x)
        with pytest.raises(ValueError):
            ir.create_graph(lambda x: 3, a)
        import functools

        with pytest.raises(TypeError):
            ir.create_graph(functools.partial(lambda x: x, a))


class Scale(popxl.Module):
    def __init__(self):
        self.w: popxl.Tensor = None

    def build(self, x):
        self.w = popxl.graph_input(x.shape, x.dtype, "w")
        return x * self.w


def test_module_with_its_own_input():
    ir = popxl.Ir()
    with ir.main_graph:
        a, b = popxl.variable(ONES * 3, name="a"), popxl.variable(ONES * 5, name="b")
        scale = Scale()
        g = ir.create_graph(scale, a)
        assert g.id == "Scale_subgraph(0)"
        outs = [ops.call(g, a, inputs_dict={scale.w: w})[0] for w in (a, b)]
        sink = popxl.d2h_stream((2,), popxl.float32)
        ops.host_store(sink, outs[0] + outs[1])
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], ONES * 24)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_repeat_carries_outputs(count):
    ir = popxl.Ir()
    with ir.main_graph:
        x, w = popxl.variable(ONES, name="x"), popxl.variable(ONES * 2, name="w")
        g = ir.create_graph(lambda x, w: x * w, x, w)
        info = ops.repeat_with_info(g, count, x, w)
        sink = popxl.d2h_stream((2,), popxl.float32)
        ops.host_store(sink, info.outputs[0])
        assert info.called_graph.id == f"{g.id}__loop_wrapper_subgraph(1)"
        assert info.graph_to_parent_input_index(2) == 2
        assert info.parent_to_graph_output_index(0) == 1
        assert info.outputs[0].name == "mul_out__t1"
        assert [t.name for t in info.called_graph.inputs] == ["Iterator___", "LoopCond___", "x", "w"]
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], ONES * 2.0**count)


def test_repeat_with_by_reference_input():
    def build(ir):
        v = popxl.variable(ONES, name="v")

        def fn(x):
            ops.add_(x, popxl.constant(ONES))

        fn.__annotations__["x"] = popxl.TensorByRef
        ops.repeat(ir.create_graph(fn, v), 7, v)
        return v

    np.testing.assert_array_equal(final(build), ONES * 8)


def test_repeat_with_streams_inside():
    ir = popxl.Ir()
    ir.num_host_transfers = 4
    with ir.main_graph:
        source, sink = popxl.h2d_stream((2,), popxl.float32), popxl.d2h_stream((2,), popxl.float32)
        w = popxl.variable(ONES * 3, name="w")

        def body(w):
            ops.host_store(sink, ops.host_load(source) * w)

        ops.repeat(ir.create_graph(body, w), 4, w)
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run({source: data})[sink], data * 3)
        with pytest.raises(ValueError):
            session.run({source: data[0]})


def test_repeat_errors():
    ir = popxl.Ir()
    with ir.main_graph:
        a = popxl.variable(ONES, name="a")
        g = ir.create_graph(lambda x: (x + 1.0, x), a)
        with pytest.raises(ValueError):
            ops.repeat(g, -1, a)
        with pytest.raises(ValueError):
            ops.repeat(g, 2, a)


def test_conditional():
    ir = popxl.Ir()
    with ir.main_graph:
        flag = popxl.h2d_stream((), popxl.bool)
        a, b = popxl.variable(ONES, name="a"), popxl.variable(ONES * 5, name="b")
        yes = ir.create_graph(lambda x, y: x + y, a, b)
        no = ir.create_graph(lambda x: ops.negate(x), a)
        info = ops.conditional_with_info(ops.host_load(flag), yes, no, [a, b], [a])
        assert info.outputs[0].name == "add_out_or_negate_out"
        assert info.graph_to_parent_input_index(0, then_branch=False) == 3
        with pytest.raises(NotImplementedError):
            info.set_parent_input_modified(a)
        sink = popxl.d2h_stream((2,), popxl.float32)
        ops.host_store(sink, info.outputs[0])
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run({flag: True})[sink], ONES * 6)
        np.testing.assert_array_equal(session.run({flag: False})[sink], -ONES)


def test_graphs_nested_deeper_than_python_calls():
    def build(ir):
        v = popxl.variable(ONES)
        graph = ir.create_graph(lambda x: ops.relu(x), v)
        for _ in range(80):
            inner = graph
            graph = ir.create_graph(lambda x, inner=inner: ops.call(inner, x)[0], v)
        ops.var_updates.copy_var_update_(v, ops.call(graph, v)[0])
        return v

    with pytest.raises(popart_exception, match="deeper than Python's limit of"):
        final(build)
