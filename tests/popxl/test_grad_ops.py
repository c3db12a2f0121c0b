"""`getGradOps` of the internal IR: the gradient operators of one operator, and what their inputs and outputs are."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.errors import popart_exception
from popart_jax.popxl import ops
from popart_jax.popxl._internal import ir as _ir

IN, OUT, GRADIENT = "In", "Out", "GradOut"
X, Y = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32)

# What PopART 3.4 declares: class, its inputs as kind and index, {output: forward input}.
ROWS = {
    "matmul": (
        lambda x, y: ops.matmul(x, y),
        [
            ("MatMulLhsGradOp", [(GRADIENT, 0), (IN, 1)], {0: 0}),
            ("MatMulRhsGradOp", [(GRADIENT, 0), (IN, 0)], {0: 1}),
        ],
    ),
    "relu": (lambda x, y: ops.relu(x), [("ReluGradOp", [(GRADIENT, 0), (OUT, 0)], {0: 0})]),
    "softmax": (lambda x, y: ops.softmax(x, 1), [("SoftmaxGradOp", [(GRADIENT, 0), (OUT, 0)], {0: 0})]),
    "add": (
        lambda x, y: ops.add(x, x),
        [("AddArg0GradOp", [(GRADIENT, 0)], {0: 0}), ("AddArg1GradOp", [(GRADIENT, 0)], {0: 1})],
    ),
    "gather": (
        lambda x, y: ops.gather(x, popxl.constant(np.array([0], np.uint32))),
        [("GatherGradOp", [(GRADIENT, 0), (IN, 1)], {0: 0})],
    ),
    "split": (
        lambda x, y: ops.split(x, 2, 0)[0],
        [("SplitGradOp", [(GRADIENT, 0), (GRADIENT, 1)], {0: 0})],
    ),
    "nll_loss": (
        lambda x, y: ops.nll_loss(x, popxl.constant(np.array([0, 1], np.int32))),
        [("NllGradOp", [(GRADIENT, 0), (IN, 0), (IN, 1)], {0: 0})],
    ),
    "cast of floats": (lambda x, y: ops.cast(x, popxl.float16), [("CastGradOp", [(GRADIENT, 0)], {0: 0})]),
    "argmax": (lambda x, y: ops.argmax(x), []),
    "detach": (lambda x, y: ops.detach(x), []),
}


def _described(op):
    return type(op).__name__, [(m.type.name, m.iNonGrad) for m in op.gradInputInfo()], op.gradOutToNonGradIn()


@pytest.mark.parametrize("name", ROWS)
def test_gradient_operators(name):
    make, expected = ROWS[name]
    ir = popxl.Ir()
    with ir.main_graph:
        op = make(popxl.variable(X), popxl.variable(Y))._pb_tensor.getProducer()
        before = ir.main_graph._pb_graph.getOpIds()
        found = op.getGradOps()
    assert [_described(g) for g in found] == expected
    assert [[m.iGrad for m in g.gradInputInfo()] for g in found] == [list(range(len(e[1]))) for e in expected]
    assert ir.main_graph._pb_graph.getOpIds() == before  # they are in no graph, and read nothing
    assert all(g.inTensorCount() == g.outTensorCount() == 0 for g in found)


def test_operators_of_a_gradient_graph_tell_the_same():
    ir = popxl.Ir()
    with ir.main_graph:
        x, y = popxl.variable(X), popxl.variable(Y)
        graph = ir.create_graph(lambda a, b: ops.softmax(ops.matmul(a, b), 1), x, y)
        gradient = popxl.transforms.autodiff(graph).graph
    forward, backward = graph._pb_graph.getOps(), gradient._pb_graph.getOps()
    expected = {type(g).__name__: _described(g) for op in forward for g in op.getGradOps()}
    grown = {type(op).__name__: _described(op) for op in backward if op.opType() != "Sum"}
    assert grown == expected
    assert len(grown) == 3
    assert {op.getNonGradInIndex(0) for op in backward if op.opType().startswith("MatMul")} == {0, 1}
    with pytest.raises(popart_exception, match="is not a gradient op"):
        forward[0].gradInputInfo()


def _with_infos(view, graph):
    strategy = _ir.transforms.AutodiffStitchStrategy.RecomputeMinimal
    outputs = [t.id for t in graph.outputs]
    return _ir.transforms.Autodiff().apply(view, graph._pb_graph.id, outputs, _ir.OptionalTensors(), {}, strategy)


def test_calls_need_the_gradient_graphs_of_what_they_call():
    ir = popxl.Ir()
    with ir.main_graph:
        x, y = popxl.variable(X), popxl.variable(Y)
        graph = ir.create_graph(lambda a, b: ops.exp(ops.matmul(a, b)), x, y)
        op = ops.call(graph, x, y)[0]._pb_tensor.getProducer()
        with pytest.raises(popart_exception, match="whose gradient graph it does not know"):
            op.getGradOps()
        op.setCalledSubgraphGradInfo(_with_infos(ir._pb_ir, graph))
        (gradient,) = op.getGradOps()
    name, inputs, outputs = _described(gradient)
    assert (name, outputs) == ("CallOp", {0: 0, 1: 1})
    assert inputs[0] == (GRADIENT, 0)
    assert set(inputs[1:]) >= {(IN, 0), (IN, 1)}


def test_conditionals_take_the_gradient_graphs_of_both_branches():
    ir = popxl.Ir()
    with ir.main_graph:
        x, flag = popxl.variable(X), popxl.variable(np.array(True))
        graphs = [ir.create_graph(f, x) for f in (ops.exp, ops.relu)]
        op = ops.conditional(flag, *graphs, then_inputs=[x], else_inputs=[x])[0]._pb_tensor.getProducer()
        op.setCalledSubgraphGradInfo({k: v for g in graphs for k, v in _with_infos(ir._pb_ir, g).items()})
        (gradient,) = op.getGradOps()
    _, inputs, outputs = _described(gradient)
    assert gradient.opType() == "IfGrad"
    # the condition, then what the gradient graph of each branch takes: these compute the branch's result again
    assert inputs == [(IN, 0), (GRADIENT, 0), (IN, 1), (GRADIENT, 0), (IN, 2)]
    assert outputs == {0: 1, 1: 2}


def test_refusals():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X)
        op = ops.equal(x, x)._pb_tensor.getProducer()
    with pytest.raises(popart_exception) as caught:
        op.getGradOps()
    assert str(caught.value) == "PopART does not have a valid grad op corresponding to EqualOp"
    by_hand = _ir.Op(_ir.OperatorIdentifier("ai.onnx", "Foo", 1), _ir.Settings(ir.main_graph._pb_graph, "foo"))
    assert by_hand.getGradOps() == []
    missing = _ir.BwdGraphInfo("nowhere", [], [])
    with pytest.raises(popart_exception, match="No graph with id 'nowhere'"):
        op.setCalledSubgraphGradInfo({"": missing})
    with pytest.raises(popart_exception, match="differentiates the main graph from its loss"):
        _ir.transforms.Autodiff().applyToIr(ir._pb_ir)
