"""Values of `popart._internal.ir` that need no program: Irs and graphs of one's own, scopes, tensor infos, float8."""

from __future__ import annotations

import io
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import popart_jax as popart
from popart_jax import popxl
from popart_jax.popxl._internal import ir as _ir

KINDS = {
    popart.DataType.FLOAT8_143: ml_dtypes.float8_e4m3fnuz,
    popart.DataType.FLOAT8_152: ml_dtypes.float8_e5m2fnuz,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("scale", [-1, 0, 2])
def test_float8_bytes_of_arrays(kind, width, scale):
    given = np.random.default_rng(3).standard_normal((4, 3)).T.astype(f"float{width}")
    found = getattr(_ir, f"convertFromFloat{width}ToFloat8AsUInt8")(kind, given, scale, True)
    wanted = (given.astype(np.float64) * 2.0**scale).astype(KINDS[kind])
    np.testing.assert_array_equal(found, np.ascontiguousarray(wanted).view(np.uint8).reshape(-1))
    back = getattr(_ir, f"convertFromFloat8AsUInt8ToFloat{width}")(kind, found, np.dtype(f"float{width}"), -scale)
    assert back.dtype == given.dtype
    np.testing.assert_array_equal(back, (wanted.astype(np.float64) * 2.0**-scale).reshape(-1))


@pytest.mark.parametrize("kind", KINDS)
def test_values_beyond_a_float8_type(kind):
    given = np.array([1e9, -1e9, np.inf, np.nan], np.float32)
    largest = float(ml_dtypes.finfo(KINDS[kind]).max)
    for throws, wanted in ((True, [np.nan] * 4), (False, [largest, -largest, np.nan, np.nan])):
        found = _ir.convertFromFloat32ToFloat8AsUInt8(kind, given, 0, throws)
        np.testing.assert_array_equal(found.view(KINDS[kind]).astype(np.float32), np.array(wanted, np.float32))


def test_the_scale_brings_data_into_range():
    small = np.random.default_rng(1).random(64).astype(np.float32) * 2.0**-20
    scale = _ir.calculateScaleFromFloat32ToFloat8(small, popart.DataType.FLOAT8_143)
    assert 10 <= scale <= 31
    assert _ir.calculateScaleFromFloat16ToFloat8(small.astype(np.float16) * 8, popart.DataType.FLOAT8_143) < 31
    with pytest.raises(popart.popart_exception, match="is no float8 type"):
        _ir.calculateScaleFromFloat32ToFloat8(small, popart.DataType.FLOAT)


def test_irs_and_graphs_of_ones_own():
    ir = _ir.Ir()
    assert ir != _ir.Ir()
    graph = _ir.Graph(ir, _ir.GraphId("sub"))
    assert ir.hasGraph(_ir.GraphId("sub"))
    assert ir.getGraph(_ir.GraphId("sub")) == graph
    assert graph.getIr() == ir
    assert not ir.getDataFlow().isAnchored("out")
    with pytest.raises(popart.popart_exception, match="Tensor out is not an anchor"):
        ir.getDataFlow().art("out")


def test_tensor_infos_need_no_arguments():
    assert _ir.TensorInfo().dataType() is popart.DataType.UNDEFINED
    assert _ir.TensorInfo(popart.DataType.FLOAT, [2, 3]) == popart.TensorInfo("FLOAT", [2, 3])


def test_scopes():
    base = _ir.Scope() / "base"
    one, other = base / "a", base / "b"
    assert one.getCommonParent(other) == base != one
    assert one.isSubscope(base)
    assert not one.isSubscope(one)
    assert not base.isSubscope(one)


@pytest.mark.parametrize("kind", ["ActGrad", "Const", "Stream", "Unknown", "Variable"])
def test_tensors_of_ones_own(kind):
    """``Tensor(id, type, graph)``: no producer, no reader, no data, no place, whatever its type."""
    ir = _ir.Ir()
    graph, wanted = ir.getMainGraph(), _ir.TensorType[kind]
    tensor = _ir.Tensor("t", wanted, graph, _ir.DebugContext())
    assert (tensor.id, tensor.tensorType(), tensor.tensor_type(), tensor.getGraph()) == ("t", wanted, kind, graph)
    tensor.info = _ir.TensorInfo(popart.DataType.FLOAT16, [2, 3])
    copy = tensor.clone(graph)
    assert (copy.id, copy.tensorType(), copy.info) == ("clone_t", wanted, tensor.info)
    asked = ("OptimizerTensor", "RemoteArgTensor", "RandomSeedTensor", "OptimizerStateTensor", "AccumulatorTensor",
             "CheckpointTensor", "Anchored", "Modified", "Aliased")  # fmt: skip
    assert not any(getattr(tensor, f"is{name}")() for name in asked)
    assert tensor.isUnmodifiable() == (kind == "Const")
    assert tensor.isWeightTensor() == (kind == "Variable")
    assert (tensor.associatedOps(), tensor.hasTensorData(), tensor.getBatchAxis()) == ([], False, -1)
    assert tensor.getVirtualGraphIdAndTileSetUnsafe() == (-1, _ir.TileSet.Undefined)
    for call in (tensor.getProducer, tensor.getVirtualGraphId, tensor.getVirtualGraphIdAndTileSet):
        with pytest.raises(
            popart.popart_exception, match=r"No producer for tensor t|Invalid call to getVirtualGraphId"
        ):
            call()
    tensor.setReplicatedStreamMode(popart.ReplicatedStreamMode.Broadcast)
    assert tensor.getReplicatedStreamMode() is popart.ReplicatedStreamMode.Broadcast
    ir.addAnchor("t")
    assert tensor.isAnchored()
    assert "t" not in graph


@pytest.mark.parametrize(
    ("name", "role"),
    [("Accl___w", "OptimizerState"), ("scope/Step___w", "OptimizerState"), ("Accum___w", "Accumulator")],
)
def test_state_is_told_by_its_name(name, role):
    graph = _ir.Ir().getMainGraph()
    variable = _ir.Tensor(name, _ir.TensorType.Variable, graph)
    assert getattr(variable, f"is{role}Tensor")()
    assert not variable.isWeightTensor()
    with pytest.raises(popart.popart_exception, match="but it is not a Variable tensor"):
        getattr(_ir.Tensor(name, _ir.TensorType.ActGrad, graph), f"is{role}Tensor")()


@pytest.mark.parametrize("kind", ["addVarInit", "addConstInit"])
def test_data_become_a_constant_of_other_values(kind):
    graph = _ir.Ir().getMainGraph()
    tensors, info = _ir.Tensors(graph), _ir.TensorInfo(popart.DataType.FLOAT, [2])
    getattr(tensors, kind)("x", info, np.ones(2, np.float32))
    relu = graph.createConnectedOp_ReluOp({0: "x"}, {0: "out"}, settings=_ir.Settings(graph, "relu"))
    tensors.makeConstInit("x", np.full(2, 3, np.float32))
    assert tensors.getIds(_ir.TensorType.Const) == ["x"]
    assert relu.inTensor(0).hasTensorData()
    np.testing.assert_array_equal(relu.inTensor(0).dataAsFloat32(), [3, 3])


def test_an_input_of_a_taken_id_is_refused():
    graph = _ir.Ir().createGraph(_ir.GraphId("g"))
    info = _ir.TensorInfo(popart.DataType.FLOAT, [2])
    graph.addInput("g/x", info)
    with pytest.raises(popart.popart_exception, match="tensor g/x already in graph 'g'"):
        graph.addInput("g/x", info)
    assert graph.getInputIds() == ["g/x"]


def test_tensors_of_a_graph_and_neighbours_of_its_operators():
    graph = _ir.Ir().getMainGraph()
    tensors, info = _ir.Tensors(graph), _ir.TensorInfo(popart.DataType.FLOAT, [2])
    tensors.addVarInit("scope/x", info, np.ones(2, np.float32))
    graph.addActGrad("y")
    graph.getTensor("y").info = info
    tensors.makeConstInit("y", np.full(2, 3, np.float32))
    assert tensors.find("x", _ir.Scope() / "scope" / "inner") == "scope/x"
    assert tensors.contains("x", _ir.Scope() / "scope" / "inner")
    assert not tensors.contains("x", _ir.Scope() / "other")
    with pytest.raises(popart.popart_exception, match="Could not find tensor with name z"):
        tensors.find("z", _ir.Scope())
    add = graph.createConnectedOp_AddOp({0: "scope/x", 1: "y"}, {0: "sum"}, settings=_ir.Settings(graph, "add"))
    relu = graph.createConnectedOp_ReluOp({0: "sum"}, {0: "out"}, settings=_ir.Settings(graph, "relu"))
    graph.markAsOutput("out")
    np.testing.assert_array_equal(graph.getTensor("y").dataAsFloat32(), [3, 3])
    assert graph.getTensor("sum").associatedOps() == [add, relu]
    assert add.isParentOf(relu)
    assert relu.isChildOf(add)
    assert (add.producesGraphOutput(), relu.producesGraphOutput(), add.memOfOutputs()) == (False, True, 8)
    assert (add.inputUnmodifiable(0), add.inputUnmodifiable(1)) == (False, True)


@pytest.mark.parametrize(("stride", "size", "turned"), [(1, 2, (2, 4)), (2, 4, (1, 2)), (1, 8, (1, 1)), (2, 2, None)])
def test_groups_of_replicas(stride, size, turned):
    groups = _ir.ReplicaGrouping(8, stride, size)
    for group in range(groups.getNumGroups()):
        members = groups.getReplicasAt(group)
        assert [groups.getGroupAt(r) for r in members] == [group] * size
        assert [groups.getIndexInGroupAt(r) for r in members] == list(range(size))
    with pytest.raises(popart.popart_exception, match="replica index 8 is out of range"):
        groups.getGroupAt(8)
    if turned:
        assert groups.getTranspose() == _ir.ReplicaGrouping(8, *turned)
    else:
        with pytest.raises(popart.popart_exception, match="has no constant stride"):
            groups.getTranspose()


def test_groups_of_one_have_stride_one():
    assert _ir.ReplicaGrouping(num_replicas=8, stride=3, group_size=1) == _ir.ReplicaGrouping(8, 1, 1)


def test_isolated_tensors_may_be_kept_by_kind():
    graph = _ir.Ir().createGraph(_ir.GraphId("g"))
    tensors = _ir.Tensors(graph)
    info, one = _ir.TensorInfo(_ir.DataType.FLOAT, [2]), np.ones(2, np.float32)
    tensors.addVarInit("v", info, one)
    tensors.addConstInit("c", info, one)
    tensors.addActGrad("a")
    tensors.removeIsolated(retainVarTensors=True, retainConstTensors=True)
    ids = io.StringIO()
    tensors.append(ids)
    assert ids.getvalue() == "[v c]"
    graph.removeIsolatedTensors(retainVarTensors=True)
    assert tensors.getAllTensorIds() == ["v"]
    graph.getIr().removeIsolatedTensors()
    assert tensors.n() == 0


def test_variables_made_by_hand_say_how_they_are_updated():
    graph = _ir.Ir().createGraph(_ir.GraphId("g"))
    settings = popart.VariableSettings()
    gradient = _ir.Tensor("a", _ir.VariableUpdateType.Gradient, settings, graph)
    copied = _ir.Tensor("b", "a", settings, graph, "where from")
    assert [t.tensorType() for t in (gradient, copied)] == [_ir.TensorType.Variable] * 2
    assert (copied.getVariableUpdateType(), copied.getCopyFromTensor()) == (_ir.VariableUpdateType.Copy, "a")
    assert gradient.getVariableUpdateType() == _ir.VariableUpdateType.Gradient


def test_operators_say_where_they_write():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.ones((2, 3), np.float32))
        popxl.ops.relu(x)
        popxl.ops.add_(x, x)
    read, written = ir.main_graph._pb_graph.getOps()
    tensor = x._pb_tensor
    assert tensor.modifiedRegionsByOps([read]) == []
    assert [str(r) for r in tensor.modifiedRegionsByOps([read, written.id])] == ["L:[0, 0] U:[2, 3]"]


def test_inputs_and_outputs_have_places():
    """With an index they stand before what stands there, or instead of it."""
    graph, info = _ir.Graph(_ir.Ir(), _ir.GraphId("sub")), _ir.TensorInfo(popart.DataType.FLOAT, [2])
    for where in (("a", info), (0, "b", info, False), (1, "c", info, True)):
        graph.addInput(*where)
    assert (graph.getInputIds(), graph.getInputIndex("c"), graph.hasInputId("a")) == (["b", "c"], 1, False)
    for name in "xyz":
        graph.addActGrad(name)
    for where in (("x",), (0, "y", False), (0, "z", True)):
        graph.markAsOutput(*where)
    assert (graph.getOutputIds(), graph.getOutputIndex("x")) == (["z", "x"], 1)
    with pytest.raises(popart.popart_exception, match=r"'y' is no output of subgraph 'sub'; they are \['z', 'x'\]"):
        graph.getOutputIndex("y")


def test_source_locations_go_into_debug_contexts():
    where = popxl.context.get_source_location()
    assert (where.functionName, Path(where.fileName)) == (
        "test_source_locations_go_into_debug_contexts",
        Path(__file__),
    )
    assert _ir.DebugContext("name", where).getPathName() == "name"
    assert popxl.context.get_source_location(1).functionName != where.functionName


def test_tensor_data_take_other_shapes_and_overwrite_an_array_of_the_same():
    info = _ir.TensorInfo(popart.DataType.FLOAT, [2])
    data = _ir.TensorData(info, np.ones(2, np.float32))
    seen = data.array
    data.resetData(info, np.full(2, 3, np.float32))
    np.testing.assert_array_equal(seen, [3, 3])
    data.resetData(_ir.TensorInfo(popart.DataType.INT32, [2, 2]), np.arange(4))
    np.testing.assert_array_equal(data.array, [[0, 1], [2, 3]])


def test_a_removed_input_or_output_stays_a_tensor_of_the_graph():
    ir = _ir.Ir()
    graph, info = _ir.Graph(ir, _ir.GraphId("g")), _ir.TensorInfo(popart.DataType.FLOAT, [2])
    for name in ("g/a", "g/b"):
        graph.addInput(name, info)
    graph.removeInput("g/a")
    assert (graph.getInputIds(), graph.getTensor("g/a").info) == (["g/b"], info)
    graph.markAsOutput("g/a")
    graph.markAsInput("g/a")
    assert (graph.getInputIds(), graph.getOutputIds()) == (["g/b", "g/a"], ["g/a"])
    graph.addInput(0, "g/c", info, True)
    graph.removeOutput(0)
    assert (graph.getInputIds(), graph.getOutputIds()) == (["g/c", "g/a"], [])
    graph.markAsOutput("g/b")
    assert graph.getOutputTensor(0).id == "g/b"


def test_places_and_input_settings_are_assigned_to_a_tensor():
    tensor = _ir.Tensor("t", _ir.TensorType.Stream, _ir.Ir().getMainGraph())
    place = _ir.TensorLocationInfo()
    assert (place.isRemote(), place.getRemoteBufferInfo()) == (False, (0, 0))
    assert place == tensor.tensorLocationInfo
    place.setRemoteBufferInfo(3, 4)
    assert place != tensor.tensorLocationInfo
    tensor.tensorLocationInfo = place
    assert tensor.tensorLocationInfo == place
    assert tensor.tensorLocationInfo.getRemoteBufferInfo() == (3, 4)
    place.setRemoteBufferInfo(5, 6)
    assert tensor.tensorLocationInfo.getRemoteBufferInfo() == (3, 4)
    tensor.inputSettings = popart.InputSettings(popart.ReplicatedStreamMode.Broadcast)
    assert tensor.getReplicatedStreamMode() == popart.ReplicatedStreamMode.Broadcast


@pytest.mark.parametrize("name", ["MultiConvOptions", "SerialiseSettings", "ReceptiveOpAttributes"])
def test_options_that_do_not_exist_are_refused(name):
    with pytest.raises(AttributeError, match=f"^'{name}' object has no attribute 'stride'"):
        getattr(_ir.op, name)().stride = 2


def test_a_graph_is_created_once():
    handle = _ir.Ir()
    handle.createGraph(_ir.GraphId("g")).addActGrad("t")
    with pytest.raises(popart.popart_exception, match=r"^Graph\(g\) is already in Ir$"):
        handle.createGraph(_ir.GraphId("g"))
    assert "t" in handle.getGraph(_ir.GraphId("g"))


def test_patterns_keep_operators_that_nobody_read():
    ir = _ir.Ir()
    graph, info = ir.getMainGraph(), _ir.TensorInfo(popart.DataType.FLOAT, [2])
    graph.addVarInit("x", info, np.ones(2, np.float32))
    for kind, read, made in (("IdentityOp", "x", "i"), ("ReluOp", "i", "last")):
        getattr(graph, f"createConnectedOp_{kind}")({0: read}, {0: made}, settings=_ir.Settings(graph, kind))
    ir.applyPreAliasPatterns(graph)
    assert [(op.opType(), op.inId(0), op.outId(0)) for op in graph.getOps()] == [("Relu", "x", "last")]
