"""Operators and tensors made through `popart._internal.ir` alone, as programs for PopART's bindings make them."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax as popart
from popart_jax import popxl
from popart_jax.popxl._internal import ir as _ir

FLOAT = popart.DataType.FLOAT


@pytest.fixture
def main():
    return _ir.Ir().getMainGraph()


def opid(name, domain="ai.onnx", version=1):
    return _ir.OperatorIdentifier(domain, name, version, _ir.NumInputs(1, 1), 1)


def act(graph, name, *shape, dtype=FLOAT):
    graph.addActGrad(name)
    graph.getTensor(name).info = _ir.TensorInfo(dtype, list(shape))
    return graph.getTensor(name)


def test_tensors_are_added_by_id(main):
    main.addVarInit("v", _ir.TensorInfo(FLOAT, [2]), np.arange(2.0), "")
    _ir.Tensors(main).addConstInit("c", _ir.TensorInfo(popart.DataType.INT64, []), np.array(10))
    main.addStream("s", _ir.TensorInfo(FLOAT, [3]))
    act(main, "a", 4, 5)
    kinds = {t.id: t.tensorType() for t in _ir.Tensors(main).getAll()}
    kind = _ir.TensorType
    assert kinds == {"v": kind.Variable, "c": kind.Const, "s": kind.Stream, "a": kind.ActGrad}
    np.testing.assert_array_equal(main.getTensor("v").dataAsFloat32(), [0, 1])
    assert main.getTensor("c").dataAsInt64() == 10
    assert main.getTensor("a").info == _ir.TensorInfo(FLOAT, [4, 5])
    with pytest.raises(popart.popart_exception) as caught:
        main.addActGrad("v")
    assert str(caught.value) == "tensor v already in graph ''"


def test_an_operator_of_no_class_is_asked_and_connected(main):
    one = _ir.Op(opid("dummy"), _ir.Settings(main, "n"))
    two = _ir.Op(opid("dummy"), _ir.Settings(main, ""))
    assert (one.id, two.id) == (100, 101)
    assert one.getGraph() == main
    assert one.getSettings().getIr() == main.getIr()
    assert one.str() == "100 (ai.onnx.dummy:1)"
    one.createAndConnectOutTensor(2, "x")
    assert (one.hasOutput(0), one.hasOutput(2), one.outTensorCount(), one.outShape(2)) == (False, True, 1, [])
    assert one.debugName() == "Op(n (ai.onnx.dummy:1), inputs=[], outputs=[x])"
    assert two.debugName() == "Op(ai.onnx.dummy:1, inputs=[], outputs=[])"
    assert one.prettyNpOut([8, 1, 6, 1], [7, 1, 5]) == [8, 7, 6, 5]
    assert one.prettyNpOut(_ir.TensorInfo(FLOAT, [5, 4]), _ir.TensorInfo(FLOAT, [4])) == _ir.TensorInfo(FLOAT, [5, 4])
    with pytest.raises(popart.popart_exception) as caught:
        one.prettyNpOut([2], [3])
    assert str(caught.value) == (
        "np broadcasting failed on '100 (ai.onnx.dummy:1)', frames [2] and [3] are not aligned"
    )
    with pytest.raises(RuntimeError, match="pure virtual function"):
        one.clone()


@pytest.mark.parametrize("attribute", ["VirtualGraphId", "PipelineStage", "ExecutionPhase", "BatchSerializedPhase"])
def test_numbers_that_place_an_operator(main, attribute):
    op = _ir.Op(opid("Identity"), _ir.Settings(main, "n"))
    short = {"VirtualGraphId": "VGraphId"}.get(attribute, attribute)
    optional = getattr(_ir, f"Optional{short}")
    assert not getattr(op, f"has{attribute}")()
    with pytest.raises(popart.popart_exception, match=f"^Cannot return {attribute} for Op"):
        getattr(op, f"get{attribute}")()
    getattr(op, f"set{attribute}")(optional(0))
    assert getattr(op, f"has{attribute}")()
    assert getattr(op, f"getOptional{short}")() == optional(0)
    getattr(op, f"set{attribute}")(optional())
    assert not getattr(op, f"has{attribute}")()


def test_views_and_optional_operands_follow_from_the_table():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.ones((2, 3), np.float32))
        plain, inplace = popxl.ops.reshape(x, (6,)), popxl.ops.reshape_(x, (6,))
        total = popxl.ops.scaled_add(x, x)
    op = {t: t._pb_tensor.getProducer() for t in (plain, inplace, total)}
    assert (op[plain].isOutplaceViewChange(), op[plain].isInplaceViewChange()) == (True, False)
    assert (op[inplace].isOutplaceViewChange(), op[inplace].isInplaceViewChange()) == (False, True)
    assert op[total].optionalInputs() == {2, 3}
    assert op[plain].calcAutoVirtualGraphCost(set()) == 6


def test_identifiers_are_shown_as_given_and_types_follow_from_the_class(main):
    a, b = act(main, "a", 4, 6), act(main, "b", 6, 12)
    settings = _ir.Settings(main, "product")
    given = (opid("Anything"), settings, _ir.OptionalFloat(0.5), _ir.op.SerialiseSettings(),
             _ir.OptionalDataType(FLOAT), _ir.op.MatMulPartialsType.HALF)  # fmt: skip
    op = main.createConnectedOp_MatMulOp({0: a.id, 1: b.id}, {0: "y"}, *given)
    assert (op.opType(), type(op)) == ("Anything", _ir.op.MatMulOp)
    assert op.outInfo(0) == _ir.TensorInfo(FLOAT, [4, 12])
    assert (op.getAvailableMemoryProportion(), op.getPartialsType()) == (0.5, _ir.op.MatMulPartialsType.HALF)


def test_keywords_may_have_the_underscores_of_popart(main):
    x = act(main, "x", 2, 3)
    op = main.createConnectedOp_TransposeOp({0: x.id}, {0: "y"}, opid=opid("T"), settings=_ir.Settings(main, ""),
                                            perm_=[1, 0])  # fmt: skip
    assert op.outShape(0) == [3, 2]
    with pytest.raises(popart.popart_exception, match="no parameter is known for the positional argument 7"):
        main.createOp_DropoutOp(opid("D"), 0.5, 7, 7, 7, 7)


def test_declared_outputs_stay_where_operands_do_not_fit(main):
    act(main, "data", 8)
    act(main, "index", 16, 4)  # no integers
    declared = act(main, "y", 8, 4)
    make = main.createConnectedOp_GatherOp
    op = make({0: "data", 1: "index"}, {0: declared.id}, opid("G"), settings=_ir.Settings(main, ""), axis_=5)
    assert op.outShape(0) == [8, 4]
    with pytest.raises(popart.popart_exception):
        make({0: "data", 1: "index"}, {0: "new"}, opid("G"), settings=_ir.Settings(main, ""), axis_=5)


def test_updates_made_by_hand_write_their_first_operand(main):
    main.addVarInit("w", _ir.TensorInfo(FLOAT, [4]), np.ones(4), "")
    act(main, "g", 4)
    op = main.createConnectedOp_AccumulateOp(
        {0: "w", 1: "g"}, {0: "new"}, _ir.AccumulationType.DampenedAdd, _ir.OptimizerValue(0.5),
        settings=_ir.Settings(main, ""),
    )  # fmt: skip
    assert op.modifiesIndex(0)
    assert op.getAccumulationType() is _ir.AccumulationType.DampenedAdd
    assert op.getFactor().val() == 0.5
    assert isinstance(main.createOp_VarUpdateOp(opid("V"), settings=_ir.Settings(main, "")), _ir.op.VarUpdateOp)


def test_a_copy_between_ipus_may_be_connected_later(main):
    x = act(main, "x", 2)
    op = main.createOp_IpuCopyOp(opid("IpuCopy"), 4, _ir.Settings(main, ""))
    op.connectInTensor(0, x.id, 2)
    op.createAndConnectOutTensor(0, "y")
    op.setup()
    assert (op.getSourceIpu(), op.getSourceIpu("x"), op.getDestIpu(), op.outShape(0)) == (2, 2, 4, [2])


def test_a_program_made_by_hand_runs():
    """Init, HostLoad, Add with a remote entry, RemoteStore, HostStore: the same steps as through `popxl.ops`."""
    ir = popxl.Ir()
    main, info = ir.main_graph._pb_graph, _ir.TensorInfo(FLOAT, [3])
    with ir.main_graph:
        h2d, d2h = popxl.h2d_stream((3,), popxl.float32), popxl.d2h_stream((3,), popxl.float32)
        stored = popxl.remote_variable(np.full(3, 5, np.float32), popxl.remote_buffer((3,), popxl.float32))
    settings = _ir.Settings(main, "")
    for name in ("start", "place"):
        kind, zero = _ir.TensorType.ActGrad, popart.InitType.Zero
        main.createConnectedOp_InitOp({}, {0: name}, opid("Init"), info, kind, zero, settings, 0)
    main.createConnectedOp_HostLoadOp({0: "start"}, {0: "x"}, opid("HostLoad"), settings, h2d.tensor_id)
    main.createConnectedOp_RemoteLoadOp({0: "place"}, {0: "r"}, opid("RemoteLoad"), settings, 1)
    main.createConnectedOp_AddOp({0: "x", 1: "r"}, {0: "y"}, opid("Add"), settings)
    main.createConnectedOp_RemoteStoreOp({0: "y"}, {}, opid("RemoteStore"), settings, 1)
    main.createConnectedOp_HostStoreOp({0: "y"}, {}, opid("HostStore"), settings, d2h.tensor_id)
    with popxl.Session(ir, "ipu_model") as session:
        for wanted in ([6, 7, 8], [7, 9, 11]):
            np.testing.assert_array_equal(session.run({h2d: np.array([1, 2, 3], np.float32)})[d2h], wanted)
    np.testing.assert_array_equal(session.get_tensor_data(stored), [7, 9, 11])


def test_buffers_may_be_numbered_by_hand():
    ir = _ir.Ir()
    ir.setRemoteBufferInfo(42, _ir.RemoteBufferInfo(_ir.TensorInfo(FLOAT, [1, 2]), 7))
    ir.setRemoteBufferInfo(42, _ir.RemoteBufferInfo(_ir.TensorInfo(FLOAT, [1, 3]), 8))
    found = ir.getRemoteBufferInfo(42)
    assert (found.TensorInfo.shape(), found.repeats) == ([1, 3], 8)
    with pytest.raises(popart.popart_exception, match=r"no remote buffer 1: this Ir has \[42\]"):
        ir.getRemoteBufferInfo(1)


def test_loops_and_calls_give_what_their_graph_gives():
    ir = _ir.Ir()
    main, body = ir.getMainGraph(), ir.createGraph(_ir.GraphId("body"))
    for name, kind, shape in (("i", "INT32", []), ("go", "BOOL", []), ("x", "FLOAT", [2])):
        body.addInput(name, _ir.TensorInfo(kind, shape))
    body.createConnectedOp_AddOp({0: "x", 1: "x"}, {0: "y"}, opid("Add"), _ir.Settings(body, ""))
    body.markAsOutput("go")
    body.markAsOutput("y")
    act(main, "start", 2)
    loop = main.createConnectedOp_LoopOp({2: "start"}, {0: "end"}, opid("Loop"), _ir.Settings(main, ""), body)
    assert loop.getCalledGraphs() == [body]
    assert loop.outInfo(0) == _ir.TensorInfo(FLOAT, [2])
    assert loop.debugName() == ("Op(ai.onnx.Loop:1, subgraphs=[body(i, go, x; go, y)], inputs=[start], outputs=[end])")


def test_pattern_selections_are_those_of_sessions():
    assert _ir.patterns.Patterns is popart.Patterns
    assert popart.Patterns.isMandatory("MulArgGradOp")
    assert not popart.Patterns.isMandatory("SumToAdd")
    assert "InPlace" not in popart.Patterns.getAllPreAliasPatternNames()
