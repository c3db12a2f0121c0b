"""Copies of operators and graphs through the internal IR, and values that follow from constants."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax as popart
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl._internal import ir as _ir

from .test_internal_ir import FUNCTIONS, SKIPPED, World, _call


def info_of(op):
    return [(t.info, t.info.metaShape()) for t in op.getOutputTensors()]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            n,
            marks=()
            if n in ("onehot", "collectives.replica_sharded_slice", "pow2scale_cast_to_fp8", "dynamic_update")
            else pytest.mark.sweep,
        )
        for n in sorted(set(FUNCTIONS) - SKIPPED)
    ],
)
def test_a_copy_that_reads_the_same_makes_the_same(name):
    w = World()
    try:
        graph = w.graph._pb_graph
        before = len(graph.getOps())
        _call(name, w)
        for op in graph.getOps()[before:]:
            copy = op.cloneIntoGraph(graph)
            for i, t in op.getInputIndexMap().items():
                copy.connectInTensor(i, t.id)
            for i, t in op.getOutputIndexMap().items():
                copy.createAndConnectOutTensor(i, f"{t.id}_copy")
            copy.setup()
            assert (type(copy), info_of(copy)) == (type(op), info_of(op))
    finally:
        w.done()


def test_a_copied_graph_computes_the_same():
    def both(x, y: popxl.TensorByRef):
        with popxl.in_sequence():
            total = ops.add_(y, x)
            return ops.exp(total) * popxl.constant(np.full((2, 3), 2.0, np.float32)), ops.slice(x, 0, 1, axis=0)

    ir = popxl.Ir()
    data = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(data)
        graph = ir.create_graph(both, x, x)
        copy = ir._pb_ir.createGraph(_ir.GraphId("copy"))
        copy.copyFrom(graph._pb_graph)
        assert [copy.getInputIds(), copy.getOutputIds()] == [
            [t.replace(f"{graph.id}/", "copy/") for t in ids]
            for ids in (graph._pb_graph.getInputIds(), graph._pb_graph.getOutputIds())
        ]
        results = ops.call(popxl.Graph._from_pb(copy), x, popxl.constant(data))
        streams = [popxl.d2h_stream(t.shape, t.dtype) for t in results]
        for stream, t in zip(streams, results, strict=True):
            ops.host_store(stream, t)
    with popxl.Session(ir, "ipu_model") as session:
        found = session.run()
    np.testing.assert_allclose(found[streams[0]], 2 * np.exp(2 * data), rtol=1e-6)
    np.testing.assert_array_equal(found[streams[1]], data[:1])


def test_a_copied_operator_keeps_its_identifier_and_is_settled_in_its_graph():
    main = _ir.Ir().getMainGraph()
    info = _ir.TensorInfo(popart.DataType.FLOAT, [2])
    main.addVarInit("x", info, np.ones(2, np.float32))
    main.addActGrad("y")
    given = _ir.OperatorIdentifier("ai.onnx", "Add", 7, _ir.NumInputs(2, 2), 1)
    op = main.createConnectedOp_AddOp({0: "x", 1: "x"}, {0: "y"}, given, _ir.Settings(main, "sum"))
    other = main.getIr().createGraph(_ir.GraphId("other"))
    copy = op.cloneIntoGraph(other)
    assert copy.debugName() == "Op(sum (ai.onnx.Add:7), inputs=[], outputs=[])"
    assert copy.getGraph() == copy.getSettings().graph == other
    assert op.getSettings().graph == main


def test_what_constants_tell():
    ir = popxl.Ir()
    with ir.main_graph:
        c, v = popxl.constant(np.float32([[1, 2], [3, 4]])), popxl.variable(np.float32(1))
        told = ops.transpose(ops.concat([c, c * 3.0]))._pb_tensor.getDataViaGraphTraversal()
        np.testing.assert_array_equal(told, [[1, 3, 3, 9], [2, 4, 6, 12]])
        for hidden in (v, v + 1.0):
            text = f"[Tensor::getDataViaGraphTraversal] Could not work out tensor data for {hidden.id}."
            with pytest.raises(popart.popart_exception) as caught:
                hidden._pb_tensor.getDataViaGraphTraversal()
            assert str(caught.value).replace(v.id, hidden.id) == text


@pytest.mark.parametrize(
    ("make", "form", "writes"),
    [(lambda v: v + 1.0, "AddLhsInplace", True), (lambda v: ops.reshape(v, (4,)), "ReshapeInplace", False)],
)
def test_forms_in_place(make, form, writes):
    ir = popxl.Ir()
    with ir.main_graph:
        op = make(popxl.variable(np.ones((2, 2), np.float32)))._pb_tensor.getProducer()
        found = op.getInplaceVariant(_ir.OperatorIdentifier("ai.graphcore", form, 1))
        assert (found.opType(), found.modifiesIndex(0), found.inTensorCount()) == (form, writes, 0)
        assert type(found) is not type(op)
        with pytest.raises(popart.popart_exception, match="no in-place form Exp"):
            op.getInplaceVariant(_ir.OperatorIdentifier("ai.onnx", "Exp", 6))


def test_variables_of_ones_own_have_settings():
    graph = _ir.Ir().createGraph(_ir.GraphId("graph"))
    settings = popart.VariableSettings(1, 2, popart.VariableRetrievalMode.AllReplicas)
    free = _ir.Tensor("free", settings, graph)
    graph.addVarInit("v", _ir.TensorInfo(_ir.DataType.FLOAT, [2]), np.zeros(2, np.float32), settings, "debug")
    for t in (free, graph.getTensor("v")):
        assert t.tensorType() == _ir.TensorType.Variable
        assert t.getVariableSettings() is settings
        assert str(t) == t.id
    assert graph.getTensor("v").returnedShape(4) == [4, 2]
    assert _ir.Tensor("plain", _ir.TensorType.Variable, graph).returnedShape(4) == []
    value = _ir.OptimizerValue((0.5, False))
    assert (value.val(), value.isConst()) == (0.5, False)


@pytest.mark.parametrize(
    ("group", "size"),
    [(_ir.CommGroup(), 8), (_ir.CommGroup(_ir.CommGroupType.Consecutive, 2), 2), (_ir.ReplicaGrouping(8, 1, 4), 4)],
)
@pytest.mark.parametrize("shard", [False, True])
def test_a_scatter_made_by_hand_knows_its_share(group, size, shard):
    ir = popxl.Ir(replication=8)
    with ir.main_graph:
        v = popxl.variable(np.zeros((3, 5), np.float32), name="v")
        opid = _ir.OperatorIdentifier("ai.graphcore", "ReplicatedReduceScatter", 1, _ir.NumInputs(1, 1), 1)
        op = ir.main_graph._pb_graph.createConnectedOp_ReplicatedReduceScatterOp(
            {0: v.id}, {0: "share"}, opid, op=_ir.CollectiveOperator.Add, group=group,
            configureOutputForReplicatedTensorSharding=shard,
            settings=_ir.Settings(ir.main_graph._pb_graph, "scatter"),
        )  # fmt: skip
    assert op.outShape(0) == [-(-15 // size)]
    assert op.outInfo(0).metaShape() == ([3, 5] if shard else [])
