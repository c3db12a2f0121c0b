"""Clean-up patterns on PopXL graphs: the operators they leave, and that values stay."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax import popxl_addons as addons
from popart_jax.errors import popart_exception
from popart_jax.popxl import ops
from popart_jax.popxl._internal import ir as _ir

from .run import differentiated, rng

X = rng().uniform(0.5, 2.0, (3, 4)).astype(np.float32)
Y = rng(1).uniform(0.5, 2.0, (3, 4)).astype(np.float32)
LABELS = np.array([0, 3, 1], np.int32)


def loss(a: popxl.Tensor) -> popxl.Tensor:
    return ops.nll_loss(ops.softmax(a, 1), popxl.constant(LABELS))


def parts(a: popxl.Tensor) -> popxl.Tensor:
    left, right = ops.split(a, 2, 1)
    return left * right


PRODUCTS = ["MulRhsInplace", "MulLhsInplace"]
CASES = {
    "product": (lambda a, b: a * b, [X, Y], PRODUCTS),
    "broadcast": (lambda a, b: a * b, [X, Y[0]], ["Mul", "MulLhsInplace", "ReduceSum"]),
    "quotient": (lambda a, b: a / b, [X, Y], ["Div", "MulLhsInplace", "Square", "Div", "Neg"]),
    "power": (
        ops.pow,
        [X, Y],
        ["Add", "Pow", *PRODUCTS[::-1], "Log", "MulLhsInplace", "MulLhsInplace"],
    ),
    "square": (lambda a: a**2, [X], ["Cast", "AddLhsInplace", "PowLhsInplace", "MulRhsInplace", "MulLhsInplace"]),
    "exp": (ops.exp, [X], ["MulLhsInplace"]),
    "log": (ops.log, [X], ["Div"]),
    "cos": (ops.cos, [X], ["Sin", "MulLhsInplace", "Neg"]),
    "sqrt": (ops.sqrt, [X], ["Scale", "Div"]),
    "matmul": (lambda a, b: a @ b, [X, Y.T.copy()], ["TransposeInplace", "MatMul", "TransposeInplace", "MatMul"]),
    "loss": (loss, [X], ["SoftmaxGradDirect"]),
    "parts": (parts, [X], [*PRODUCTS, "ConcatInplace"]),
    "reshape": (lambda a: ops.reshape(a, (12,)), [X], ["ReshapeInplace"]),
}


def cleaned_up(graph, provided, required):
    return addons.autodiff(graph, provided, required).grad_graph_info


def seed(shape):
    return rng(2).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("name", sorted(CASES))
def test_gradient_graphs_after_the_clean_up(name):
    fn, arrays, wanted = CASES[name]
    plain, before = differentiated(fn, arrays, seed)
    cleaned, types = differentiated(fn, arrays, seed, autodiff=cleaned_up)
    assert types == wanted
    assert all(t.endswith("Grad") or t == "Sum" for t in before)
    for a, b in zip(plain, cleaned, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_session_applies_the_mandatory_patterns_only():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X)
        graph = ir.create_graph(lambda a: ops.identity(ops.exp(a)), x)
        info = popxl.transforms.autodiff(graph)
        site = ops.call_with_info(graph, x)
        ops.call(info.graph, popxl.constant(Y), inputs_dict=info.inputs_dict(site))
    types = lambda g: [op.opType() for op in g._pb_graph.getOps()]  # noqa: E731
    assert types(info.graph) == ["IdentityGrad", "Sum", "ExpGrad", "Sum"]
    popxl.Session(ir)
    assert types(info.graph) == ["IdentityGrad", "Sum", "Sum", "Mul"]
    assert types(graph) == ["Exp", "Identity"]


LEFT = {"minimal": ["Split", "Identity", "Add"], "default": ["Slice", "Slice", "Add"]}


@pytest.mark.parametrize("level", sorted(LEFT))
def test_levels(level):
    ir = popxl.Ir()
    with ir.main_graph as main:
        a, b = ops.split(popxl.variable(X[:2]), 2)
        total = ops.identity(a) + b
        sink = popxl.d2h_stream(total.shape, total.dtype)
        ops.host_store(sink, total)
    addons.apply_pre_alias_patterns(ir, level)
    types = [op.opType() for op in main._pb_graph.getOpSchedule() if op.opType() != "HostStore"]
    assert types == LEFT[level]
    assert total in main
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], X[:1] + X[1:2])
    with pytest.raises(KeyError):
        addons.apply_pre_alias_patterns(ir, "everything")


def test_copies_that_a_write_depends_on_stay():
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(X)
        copy = ops.identity(x)
        ops.var_updates.accumulate_(x, popxl.constant(Y))
        sink = popxl.d2h_stream(copy.shape, copy.dtype)
        ops.host_store(sink, copy)
    addons.apply_pre_alias_patterns(ir)
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], X)


def test_operators_made_through_the_view():
    ir = popxl.Ir()
    with ir.main_graph as g, popxl.in_sequence():
        a, _ = popxl.variable(X, name="a"), popxl.variable(Y, name="b")
        view, settings = g._pb_graph, popxl.context.get_current_context()._get_op_settings("mine")
        new = g._create_tensor_id
        view.createConnectedOp_TransposeOp({0: "a"}, {0: new("turned")}, [1, 0], settings)
        view.createConnectedOp_ReduceSumOp({0: "a"}, {0: new("total")}, [0], False, settings)
        assert (g.get_tensor("turned").shape, g.get_tensor("total").shape) == ((4, 3), (4,))
        sink = popxl.d2h_stream(a.shape, a.dtype)
        ops.host_store(sink, a)
        op = view.createConnectedOp_MulLhsInplaceOp({0: "a", 1: "b"}, {0: new("product")}, settings)
        assert op.modifiesIndex(0)
        assert not op.modifiesIndex(1)
        with pytest.raises(popart_exception, match=r"positional argument 2\.0"):
            view.createConnectedOp_AddOp({0: "a", 1: "b"}, {0: new("s")}, 2.0, settings)
        with pytest.raises(popart_exception, match="positional argument 'NOTSET'"):
            view.createConnectedOp_ConvOp({0: "a", 1: "b"}, {0: new("s")}, "NOTSET", settings)
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], X)
        np.testing.assert_allclose(session.get_tensor_data(a), X * Y)


def test_outputs_of_loops_come_and_go():
    ir = popxl.Ir()
    with ir.main_graph as g:
        a, b = popxl.variable(1.0), popxl.variable(2.0)
        info = ops.repeat_with_info(ir.create_graph(lambda x, y: x + y, a, b), 3, a, b)
        op, extra = info._op, g._create_tensor_id("extra")
        op.addLoopOutput(1, extra, info.called_graph.inputs[3].id)
        assert (op.outTensorCount(), op.outId(1)) == (2, extra)
        sink = popxl.d2h_stream((), popxl.float32)
        ops.host_store(sink, g.get_tensor(extra))
    with popxl.Session(ir) as session:
        assert session.run()[sink] == 2.0
    op.removeLoopOutput(0)
    assert (op.outTensorCount(), op.outId(0)) == (1, extra)


def test_replicas_are_a_session_option_too():
    ir = popxl.Ir(replication=2)
    options = ir._pb_ir.getSessionOptions()
    assert (options.replicatedGraphCount, options.enableReplicatedGraphs) == (2, True)
    options.replicatedGraphCount = 4
    assert ir.replication_factor == ir.instance_replication_factor == 4


def test_selections_of_patterns():
    level = _ir.patterns.PatternsLevel
    default, minimal = (_ir.patterns.Patterns(k) for k in (level.Default, level.Minimal))
    assert default.isPatternEnabled("SumToAdd")
    assert default.isPatternEnabled("TransposeToIdentityOrReshapePattern")
    assert not minimal.isPatternEnabled("SumToAdd")
    assert minimal.isPatternEnabled("MulArgGradOp")
    assert minimal.isMandatory("MulArgGradOp")
    chosen = _ir.patterns.Patterns(level.NoPatterns).enablePattern("SumToAdd", True)
    ir = popxl.Ir()
    with ir.main_graph as main:
        a, b = popxl.variable(X, name="a"), popxl.variable(Y, name="b")
        same = ops.identity(a)
        name = main._create_tensor_id("total")
        main._pb_graph.createConnectedOp_SumOp({0: same.id, 1: b.id}, {0: name})
        turned = ops.transpose(ops.transpose(main.get_tensor(name)))
        sink = popxl.d2h_stream(turned.shape, turned.dtype)
        ops.host_store(sink, turned)
    types = lambda: [op.opType() for op in main._pb_graph.getOpSchedule()]  # noqa: E731
    ir._pb_ir.setPatterns(chosen)
    ir._pb_ir.applyPreAliasPatterns(main._pb_graph)
    assert types() == ["Identity", "Add", "Transpose", "Transpose", "HostStore"]
    ir._pb_ir.setPatterns(default)
    ir._pb_ir.applyPreAliasPatterns(main._pb_graph)
    assert types() == ["Add", "HostStore"]
    with popxl.Session(ir) as session:
        np.testing.assert_allclose(session.run()[sink], X + Y)


def test_what_is_overwritten_was_read_by_all_before():
    """In-place forms follow the schedule, and so do the nodes when they run."""

    def several_readers(a, b):
        first = ops.identity(a)
        return first + first * b + a * 0.01 + b * 0.02

    plain, _ = differentiated(several_readers, [X, Y], seed)
    cleaned, types = differentiated(several_readers, [X, Y], seed, autodiff=cleaned_up)
    assert any(t.endswith("Inplace") for t in types)
    for a, b in zip(plain, cleaned, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
