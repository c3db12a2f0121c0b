"""Gradient graphs against torch's gradients, and their interface."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.errors import popart_exception
from popart_jax.popxl import ops

from .run import gradients, rng

torch = pytest.importorskip("torch")
F = torch.nn.functional


def data(*shape, low=-2.0, high=2.0, seed=0):
    return rng(seed).uniform(low, high, shape).astype(np.float32)


def check(fn, reference, *arrays, wanted=None, tol=2e-4):
    """Gradients of `fn` equal torch's of `reference`."""
    which = list(range(len(arrays))) if wanted is None else wanted
    tensors = [torch.tensor(a, requires_grad=i in which) for i, a in enumerate(arrays)]
    out = reference(*tensors)
    seed = data(*out.shape, seed=9) if out.shape else np.float32(1.5)
    out.backward(torch.tensor(seed))
    found = gradients(fn, arrays, seed, which)
    for i, got in zip(which, found, strict=True):
        np.testing.assert_allclose(got, tensors[i].grad.numpy(), rtol=tol, atol=tol)


X, Y = data(3, 4), data(3, 4, seed=1)
INDEX = np.array([2, 0, 2], np.int32)

CASES = {
    "add": (ops.add, torch.add, X, Y[0]),
    "sub": (ops.sub, torch.sub, X, Y[:, :1]),
    "mul": (ops.mul, torch.mul, X, Y[0]),
    "div": (ops.div, torch.div, X, Y + 3),
    "pow": (ops.pow, torch.pow, X + 3, Y),
    "abs": (ops.abs, torch.abs, X),
    "exp": (ops.exp, torch.exp, X),
    "log": (ops.log, torch.log, X + 3),
    "sin": (ops.sin, torch.sin, X),
    "cos": (ops.cos, torch.cos, X),
    "tanh": (ops.tanh, torch.tanh, X),
    "sqrt": (ops.sqrt, torch.sqrt, X + 3),
    "relu": (ops.relu, torch.relu, X),
    "gelu": (ops.gelu, lambda x: F.gelu(x, approximate="tanh"), X),
    "geluerf": (ops.geluerf, F.gelu, X),
    "swish": (ops.swish, F.silu, X),
    "negate": (ops.negate, torch.neg, X),
    "ceil": (ops.ceil, torch.ceil, X),
    "clip": (lambda a: ops.clip(a, -1, 1), lambda a: torch.clip(a, -1, 1), X),
    "softmax": (lambda a: ops.softmax(a, 1), lambda a: torch.softmax(a, 1), X),
    "sum": (lambda a: ops.sum(a, 0), lambda a: a.sum(0), X),
    "mean": (lambda a: ops.mean(a, 1, True), lambda a: a.mean(1, True), X),
    "max": (lambda a: ops.max(a, 1), lambda a: a.max(1).values, X),
    "min": (lambda a: ops.min(a), lambda a: a.min(), X),
    "prod": (lambda a: ops.prod(a, 1), lambda a: a.prod(1), X),
    "l1": (lambda a: ops.l1(a, 1), lambda a: a.abs().sum(1), X),
    "l2": (lambda a: ops.l2(a, 1), lambda a: a.norm(dim=1), X),
    "sumsquare": (lambda a: ops.sumsquare(a, 1), lambda a: (a * a).sum(1), X),
    "logsum": (lambda a: ops.logsum(a, 1), lambda a: a.sum(1).log(), X + 3),
    "logsum of no axes": (lambda a: ops.logsum(a, ()), lambda a: a.log(), X + 3),
    "sumsquare of no axes": (lambda a: ops.sumsquare(a, (), True), lambda a: a * a, X),
    "logsumexp": (lambda a: ops.logsumexp(a, 1), lambda a: a.logsumexp(1), X),
    "median": (lambda a: ops.median(a, 1), lambda a: a.median(1).values, X),
    "topk": (lambda a: ops.topk(a, 2, 1, True, True), lambda a: a.topk(2, 1).values, X),
    "cumsum": (lambda a: ops.cumsum(a, 1), lambda a: a.cumsum(1), X),
    "maximum": (ops.maximum, torch.maximum, X, Y),
    "where": (
        lambda a, b: ops.where(popxl.constant(X > Y), a, b),
        lambda a, b: torch.where(torch.tensor(X > Y), a, b),
        X,
        Y,
    ),
    "matmul": (lambda a, b: a @ b.T, lambda a, b: a @ b.T, X, Y),
    "reshape": (lambda a: ops.reshape_(a, (4, 3)), lambda a: a.reshape(4, 3), X),
    "slice": (lambda a: a[1:, 0:3:2], lambda a: a[1:, 0:3:2], X),
    "split": (lambda a: ops.split(a, 2, 1)[1], lambda a: a.split(2, 1)[1], X),
    "concat": (lambda a, b: ops.concat([a, b, a], 1), lambda a, b: torch.cat([a, b, a], 1), X, Y),
    "cast": (lambda a: ops.cast(ops.cast(a, popxl.float16), popxl.float32), lambda a: a, X),
    "scatter_reduce into more": (
        lambda a, v: ops.scatter_reduce(a, popxl.constant(INDEX), "sum", v),
        lambda a, v: v + F.pad(torch.zeros(5, 4).index_add(0, torch.tensor(INDEX), a), (0, 2)),
        X,
        data(5, 6),
    ),
    "scatter_reduce": (
        lambda a: ops.scatter_reduce(a, popxl.constant(INDEX), "sum", axis_size=4),
        lambda a: torch.zeros(4, 4).index_add(0, torch.tensor(INDEX), a),
        X,
    ),
    "gather": (lambda a: ops.gather(a, popxl.constant(INDEX)), lambda a: a[torch.tensor(INDEX).long()], X),
    "onehot": (
        lambda v: ops.onehot(popxl.constant(INDEX), popxl.constant(np.int32(4)), v, 0),
        lambda v: v[0] + (v[1] - v[0]) * F.one_hot(torch.tensor(INDEX).long(), 4).T,
        data(2),
    ),
    "groupnorm": (
        lambda x, s, b: ops.group_norm(x, s, b, 2),
        lambda x, s, b: F.group_norm(x, 2, s, b),
        data(3, 4, 5),
        data(4, seed=1),
        data(4, seed=2),
    ),
    "conv": (
        lambda x, w: ops.conv(x, w, padding=(1, 1, 1, 1)),
        lambda x, w: F.conv2d(x, w, padding=1),
        data(2, 3, 5, 5),
        data(4, 3, 3, 3, seed=1),
    ),
    "max_pool": (lambda x: ops.max_pool(x, (2, 2), (2, 2)), lambda x: F.max_pool2d(x, 2), data(1, 2, 4, 4)),
    "average_pool": (lambda x: ops.average_pool(x, (2, 2), (2, 2)), lambda x: F.avg_pool2d(x, 2), data(1, 2, 4, 4)),
    "interpolate": (
        lambda x: ops.interpolate(x, (1.0, 1.0, 2.0, 2.0), "nearest"),
        lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
        data(1, 2, 3, 3),
    ),
    "nll": (
        lambda x: ops.nll_loss(ops.softmax(x, -1), popxl.constant(INDEX)),
        lambda x: F.cross_entropy(x, torch.tensor(INDEX).long()),
        X,
    ),
    "many_uses": (lambda a: a * a + ops.exp(a) - a, lambda a: a * a + a.exp() - a, X),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_gradient(name):
    fn, reference, *arrays = CASES[name]
    check(fn, reference, *arrays)


def _linear():
    def fn(x, w, b):
        return x @ w + b

    return fn


def test_interface_of_a_linear_graph():
    ir = popxl.Ir()
    with ir.main_graph:
        specs = [popxl.TensorSpec(s, popxl.float32) for s in ((2, 3), (3, 4), (4,))]
        graph = ir.create_graph(_linear(), *specs)
        info = popxl.transforms.autodiff(graph)
    x, w, b = graph.inputs
    assert info.graph.id == f"{graph.id}_bwd"
    assert info.forward_graph == graph
    assert [t.name for t in info.graph.inputs] == ["Gradient___add_out", "w", "x"]
    assert [t.name for t in info.graph.outputs] == ["Gradient___x", "Gradient___w", "Gradient___b"]
    assert info.outputs == (x, w, b)
    kinds = [e.connection_type.name for e in info.expected_inputs]
    assert kinds == ["FwdGrad", "Fwd", "Fwd"]
    assert len(graph.outputs) == 1
    assert repr(info).startswith(
        f"GradGraphInfo[\n  graph={info.graph.id}\n  expected_inputs=[\n    (ExpectedConnectionType."
    )


def test_inner_tensors_become_outputs_of_existing_calls():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X, name="x")
        graph = ir.create_graph(lambda x: ops.tanh(ops.exp(x)), x)
        site = ops.call_with_info(graph, x)
        info = popxl.transforms.autodiff(graph)
    assert len(graph.outputs) == 2
    assert [t.name for t in site.outputs][1].startswith("autodiff_output__t")
    assert set(info.inputs_dict(site).values()) == set(site.outputs)


def test_required_gradients_are_chosen_or_missing():
    ir = popxl.Ir()
    with ir.main_graph:
        graph = ir.create_graph(
            lambda x, i: ops.gather(x, i), popxl.TensorSpec((3, 4), popxl.float32), popxl.TensorSpec((2,), popxl.int32)
        )
        with pytest.raises(popart_exception, match="Unable to provide required gradient output"):
            popxl.transforms.autodiff(graph)
        info = popxl.transforms.autodiff(graph, grads_required=graph.inputs[:1])
    assert len(info.graph.outputs) == 1


def test_in_place_graphs_can_not_be_differentiated():
    ir = popxl.Ir()
    with ir.main_graph:
        graph = ir.create_graph(lambda x: ops.relu_(x), popxl.TensorSpec((3,), popxl.float32))
        with pytest.raises(popart_exception):
            popxl.transforms.autodiff(graph)


def test_called_graphs_are_differentiated_once():
    ir = popxl.Ir()
    with ir.main_graph:
        spec = popxl.TensorSpec((3, 3), popxl.float32)
        inner = ir.create_graph(lambda x, w: ops.tanh(x @ w), spec, spec)
        outer = ir.create_graph(lambda x, w: ops.call(inner, *ops.call(inner, x, w), w), spec, spec)
        infos = popxl.transforms.autodiff(outer, return_all_grad_graphs=True)
    assert set(infos) == {inner, outer}
    calls = [op for op in infos[outer].graph._pb_graph.getOps() if op.opType() == "Call"]
    assert [op.getCalledGraph().id for op in calls] == [infos[inner].graph.id] * 2


def test_unsafe_graphs_need_their_info():
    ir = popxl.Ir()
    with ir.main_graph:
        spec = popxl.TensorSpec((3,), popxl.float32)
        inner = ir.create_graph(lambda x: ops.exp(x), spec)
        inner._pb_graph.setCanBeRecursivelyAutodiffed(False)
        outer = ir.create_graph(lambda x: ops.call(inner, x), spec)
        with pytest.raises(popart_exception, match="marked as unsafe to autodiff"):
            popxl.transforms.autodiff(outer)


def test_gradient_through_a_conditional():
    cond = np.array(True)

    def fn(x):
        ir = popxl.gir()
        yes = ir.create_graph(lambda a: ops.exp(a), x)
        no = ir.create_graph(lambda a: ops.sin(a), x)
        (out,) = ops.conditional(popxl.constant(cond), yes, no, [x], [x])
        return out

    check(fn, torch.exp, X)


def test_a_called_graph_may_return_a_tensor_twice():
    def twice(x):
        y = ops.exp(x)
        return y, y

    def fn(x):
        first, second = ops.call(popxl.gir().create_graph(twice, x), x)
        return ops.sin(first) + ops.cos(second) * 2.0

    check(fn, lambda x: torch.sin(torch.exp(x)) + torch.cos(torch.exp(x)) * 2, X)


def test_a_branch_may_return_a_tensor_twice():
    def twice(x):
        y = ops.exp(x)
        return y, y

    def fn(x):
        yes = popxl.gir().create_graph(twice, x)
        no = popxl.gir().create_graph(lambda a: (ops.sin(a), ops.cos(a)), x)
        first, second = ops.conditional(popxl.constant(np.array(True)), yes, no, [x], [x])
        return ops.sin(first) + second * 2.0

    check(fn, lambda x: torch.sin(torch.exp(x)) + torch.exp(x) * 2, X)


@pytest.mark.parametrize("by_itself", [True, False])
def test_gradients_of_a_tensor_that_is_an_output_twice_are_summed(by_itself):
    """By itself: called with both gradients; else: as the called graph of another one, with the info given."""

    def twice(x):
        y = ops.exp(x)
        return y, y

    ir = popxl.Ir()
    with ir.main_graph:
        x, one = popxl.variable(X), popxl.constant(np.ones_like(X))
        graph = ir.create_graph(twice, x)
        info = popxl.transforms.autodiff(graph)
        if by_itself:
            site = ops.call_with_info(graph, x)
            (found,) = ops.call(info.graph, one, one * 2.0, inputs_dict=info.inputs_dict(site))
        else:
            outer = ir.create_graph(lambda x: (lambda a, b: a + b * 2.0)(*ops.call(graph, x)[:2]), x)
            whole = popxl.transforms.autodiff(outer, called_graphs_grad_info={graph: info})
            site = ops.call_with_info(outer, x)
            (found,) = ops.call(whole.graph, one, inputs_dict=whole.inputs_dict(site))
        sink = popxl.d2h_stream(found.shape, found.dtype)
        ops.host_store(sink, found)
    assert [e.fwd_tensor for e in info.expected_inputs[:2]] == [graph.outputs[0]] * 2
    with popxl.Session(ir) as session:
        np.testing.assert_allclose(session.run()[sink], 3 * np.exp(X), rtol=1e-5)


def test_dropout_gradient_uses_the_forward_mask():
    seed = np.array([3, 4], np.uint32)
    fn = lambda x: ops.dropout(x, popxl.constant(seed), 0.5)  # noqa: E731
    (got,) = gradients(fn, [np.ones((64,), np.float32)], np.ones((64,), np.float32))
    assert set(np.unique(got)) == {0.0, 2.0}
