"""Rules of the supplement to PopXL's specification: call sites, autodiff, order of updates."""

from __future__ import annotations

import re

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.errors import popart_exception
from popart_jax.popxl import ops
from popart_jax.popxl.transforms import autodiff

from ..texts import says

ONES = np.ones((2, 3), np.float32)


def spec(*shape, dtype=popxl.float32):
    return popxl.TensorSpec(shape, dtype)


# --- call sites ----------------------------------------------------------------------------------------------------


def test_indices_of_call_sites_are_arithmetic():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(ONES)
        graph = ir.create_graph(lambda a: a + 1, x)
        call, loop = ops.call_with_info(graph, x), ops.repeat_with_info(graph, 2, x)
        for site, outputs in ((call, 0), (loop, 1)):
            assert site.graph_to_parent_input_index(7) == 7
            assert site.graph_to_parent_output_index(7) - 7 == -outputs
            assert site.parent_to_graph_input_index(site.graph_to_parent_input_index(9)) == 9
            assert site.parent_to_graph_output_index(site.graph_to_parent_output_index(9)) == 9
            with pytest.raises(IndexError):
                site.parent_input(9)
            with pytest.raises(IndexError):
                site.parent_output(9)


def test_indices_of_conditionals_are_checked():
    ir = popxl.Ir()
    with ir.main_graph:
        x, y = popxl.variable(ONES), popxl.variable(ONES)
        one, two = ir.create_graph(lambda a: a + 1, x), ir.create_graph(lambda a, b: a + b, x, y)
        site = ops.conditional_with_info(popxl.constant(True), one, two, [x], [x, y])
        assert [site.is_parent_index_in_then_branch(i) for i in (1, 2, 3)] == [True, False, False]
        for i in (0, 4):
            with says(IndexError, "Invalid parent graph input index"):
                site.is_parent_index_in_then_branch(i)
            with says(IndexError, "Invalid parent graph input index"):
                site.parent_to_graph_input_index(i)
        for act in (
            lambda: site.graph_to_parent_input_index(1, True),
            lambda: site.graph_to_parent_output_index(1),
            lambda: site.parent_to_graph_output_index(1),
        ):
            with says(IndexError, "Invalid graph input index"):
                act()
        assert site.graph_to_parent_input_index(1, False) == 3


def test_modified_regions_are_those_that_the_callee_writes():
    def unchanged(x: popxl.Tensor):
        return x + 1

    def changed(x: popxl.Tensor):
        ops.add_(x, popxl.constant(1.0))

    for fn, expected in ((unchanged, 1), (changed, 2)):
        ir = popxl.Ir()
        with ir.main_graph, popxl.in_sequence():
            x = popxl.variable(ONES)
            site = ops.call_with_info(ir.create_graph(fn, x), x)
            site.set_parent_input_modified(x, infer_modified_regions=True)
            with pytest.raises(ValueError):
                site.set_parent_input_modified(popxl.variable(ONES))
        with popxl.Session(ir) as session:
            session.run()
            np.testing.assert_array_equal(session.get_tensor_data(x), ONES * expected)


def test_a_repeated_graph_remembers_what_it_takes_by_reference():
    def step(x):
        ops.add_(x, popxl.constant(1.0))

    step.__annotations__["x"] = popxl.TensorByRef
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(ONES)
        site = ops.repeat_with_info(ir.create_graph(step, x), 2, x)
        assert len(site.called_graph._by_ref_inputs) == 1
    with popxl.Session(ir) as session:
        session.run()
        np.testing.assert_array_equal(session.get_tensor_data(x), ONES * 3)


# --- autodiff ------------------------------------------------------------------------------------------------------


def test_words_of_autodiff():
    ir = popxl.Ir()
    with ir.main_graph:
        x, labels = popxl.variable(ONES), popxl.variable(np.zeros(2, np.int32))

        def writes(a):
            return ops.exp_(a + 0)

        def reads(a, i):
            return ops.nll_loss(a, i)

        graph = ir.create_graph(writes, x)
        (op,) = [op for op in graph._ops.values() if op.opType() == "ExpInplace"]
        with says(
            popart_exception,
            f"The graph {graph.id} contains a modifying op: {op.debugName()}. Autodiff cannot be used on graphs with "
            "inplace modifying ops.",
        ):
            autodiff(graph)
        with pytest.raises(popart_exception, match=f"^The graph {re.escape(graph.id)} contains"):
            autodiff(ir.create_graph(lambda a: ops.call(graph, a), x))
        loss = ir.create_graph(reads, x, labels)
        with says(
            popart_exception,
            f"[Autodiff] Unable to provide required gradient output for fwd id '{loss.inputs[1].id}' in bwd graph",
        ):
            autodiff(loss)
        with pytest.raises(popart_exception, match=r"with defined but empty vector `gradsRequiredForFwdId`\. You must"):
            autodiff(loss, grads_required=[])
        for given in ({"grads_required": [x]}, {"grads_provided": [x]}):
            with says(
                popart_exception,
                f"[Autodiff] In call to Autodiff on forward graph `{loss.id}`, you have passed a tensor with id "
                f"`{x.id}` to parameter `gradsRequired`, but this tensor is not in the forward graph",
            ):
                autodiff(loss, **given)
        loss._can_autodiff = False
        with says(
            popart_exception,
            f"The graph contains a call to another graph {loss.id} which has been marked as unsafe to autodiff. Please "
            "provide a gradient graph via `called_graphs_grad_info` in PopXL or `FwdGraphToBwdGraphInfo` in C++.",
        ):
            autodiff(ir.create_graph(lambda a, b: ops.call(loss, a, b), x, labels))
        autodiff(loss, grads_required=loss.inputs[:1])


def test_gradients_follow_connections_whatever_the_types():
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(np.arange(3, dtype=np.int32))
        info = autodiff(ir.create_graph(lambda a: a + a, x))
        assert info.graph.outputs[0].dtype == popxl.int32
        (g,) = ops.call(info.graph, popxl.constant(np.array([1, 2, 3], np.int32)))
        sink = popxl.d2h_stream(g.shape, g.dtype)
        ops.host_store(sink, g)
        with pytest.raises(popart_exception, match="Unable to provide"):
            autodiff(ir.create_graph(ops.detach, x))
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], [2, 4, 6])


def test_called_graphs_take_the_gradients_that_matter():
    """All graphs that are called are differentiated, those given are in the result too."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(ONES)

        def inner(a, b):
            return a * 2, ops.argmax(b, 1), ops.detach(a)

        graph = ir.create_graph(inner, x, x)
        outer = ir.create_graph(lambda a: ops.call(graph, a, a)[0], x)
        found = autodiff(outer, return_all_grad_graphs=True)
        assert set(found) == {outer, graph}
        given = [e.fwd_tensor.id for e in found[graph].expected_inputs if e.connection_type.name == "FwdGrad"]
        assert given == [graph.outputs[0].id]
        assert [e.fwd_tensor.id for e in found[graph].expected_outputs] == [graph.inputs[0].id]
        again = autodiff(
            ir.create_graph(lambda a: ops.call(graph, a, a)[0], x),
            called_graphs_grad_info={graph: found[graph]},
            return_all_grad_graphs=True,
        )
        assert again[graph] is found[graph]


def test_gradient_graphs_of_one_graph_are_numbered():
    ir = popxl.Ir()
    with ir.main_graph:
        graph = ir.create_graph(lambda a: a * 2, spec(2))
        names = [autodiff(graph).graph.id for _ in range(3)]
    assert names[0] == f"{graph.id}_bwd"
    numbers = [int(name.removeprefix(f"{graph.id}_bwd_")) for name in names[1:]]
    assert numbers[1] == numbers[0] + 1


def test_gradients_of_inner_tensors():
    ir = popxl.Ir()
    with ir.main_graph:
        x, kept = popxl.variable(ONES), []

        def fn(a):
            kept.append(ops.exp(a))
            return kept[0] * 3

        graph = ir.create_graph(fn, x)
        info = autodiff(graph, grads_required=kept)
        assert info.outputs == (kept[0],)
        provided = autodiff(graph, grads_provided=kept, grads_required=graph.inputs)
        assert provided.expected_inputs[0].fwd_tensor == kept[0]


def test_a_scattered_reduction_has_no_gradient():
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        text = (
            "ReplicatedReduceScatterOp: grad op is only implemented when CollectiveOperator==CollectiveOperator::Local"
        )
        with says(popart_exception, text):
            autodiff(ir.create_graph(ops.collectives.replicated_reduce_scatter, spec(4)))
        with pytest.raises(popart_exception, match="Unable to provide"):
            autodiff(ir.create_graph(ops.collectives.replicated_all_reduce, spec(4)))
        for fn in (ops.collectives.replica_sharded_slice, ops.collectives.replicated_slice):
            kinds = [op.opType() for op in autodiff(ir.create_graph(fn, spec(4))).graph._ops.values()]
            assert "ReplicatedAllGather" in kinds


# --- order of updates ----------------------------------------------------------------------------------------------


def by_ref(x):
    ops.add_(x, popxl.constant(1.0))


by_ref.__annotations__["x"] = popxl.TensorByRef


def test_calls_are_readers_only():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(ONES)
        graph = ir.create_graph(by_ref, x)
        ops.call(graph, x)
        ops.call(graph, x)
        sink = popxl.d2h_stream(x.shape, x.dtype)
        ops.host_store(sink, x * 1.0)
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], ONES * 3)
    for reader in (
        lambda x, graph, sink: ops.call(graph, x),
        lambda x, *_: ops.tanh(x),
        lambda x, _, s: ops.host_store(s, x),
    ):
        ir = popxl.Ir()
        with ir.main_graph:
            x = popxl.variable(ONES)
            graph = ir.create_graph(lambda a: a + 1, x)
            sink = popxl.d2h_stream(x.shape, x.dtype)
            ops.add_(x, popxl.constant(1.0))
            reader(x, graph, sink)
        with says(popart_exception, "Inplacing ambiguity detected. The tensor "):
            popxl.Session(ir)
        ir._pb_ir.getSessionOptions().enableInplaceAmbiguityChecking = False
        popxl.Session(ir)


def test_views_are_no_readers():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(ONES)
        ops.add_(x, popxl.constant(1.0))
        ops.reshape_(x, (6,))
    popxl.Session(ir)
