"""Inputs, initializers and their data fields, outputs, queries (semantics 2.3)."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import popart_jax
from popart_jax import (
    Builder,
    CommGroup,
    CommGroupType,
    ExchangeStrategy,
    InputSettings,
    ReplicatedStreamMode,
    TensorInfo,
    TileSet,
    VariableRetrievalMode,
    VariableSettings,
    popart_exception,
    to_jax,
)


def proto_of(builder: Builder) -> onnx.ModelProto:
    return onnx.load_model_from_string(builder.getModelProto())


def metadata(builder: Builder) -> dict[str, str]:
    return {p.key: p.value for p in proto_of(builder).metadata_props}


def test_every_form_of_add_input_tensor():
    builder = Builder()
    forms = [
        builder.addInputTensor(TensorInfo("FLOAT", [2])),
        builder.addInputTensor(TensorInfo("FLOAT", [2]), "a"),
        builder.addInputTensor("FLOAT16", (2, 3), "b"),
        builder.addInputTensor(dataType="INT32", shape=[], debugContext="c"),
        builder.addInputTensor(tensorInfo=TensorInfo(np.zeros((2, 3), np.int8)), settings=InputSettings()),
    ]
    assert [builder.getTensorDtypeString(f) for f in forms] == ["float32", "float32", "float16", "int32", "int8"]
    assert [builder.getTensorShape(f) for f in forms] == [[2], [2], [2, 3], [], [2, 3]]
    assert builder.getInputTensorIds() == forms
    with pytest.raises(TypeError):
        builder.addInputTensor("FLOAT")
    with pytest.raises(TypeError):
        builder.addInputTensor("FLOAT", [1.5])


def test_settings_are_written_for_tensor_infos_only():
    builder = Builder()
    settings = InputSettings(TileSet.IO, ExchangeStrategy.OverlapLoops)
    builder.addInputTensor(TensorInfo("FLOAT", [2]), settings, "a")
    builder.addInputTensor("FLOAT", [2], settings, "b")
    builder.addInputTensor(TensorInfo("FLOAT", [2]), InputSettings(ReplicatedStreamMode.Broadcast), "c")
    found = metadata(builder)
    assert found["__tile_set/a"] == "1"
    assert found["__exchange_strategy/a"] == "2"
    assert found["__replicated_stream_mode/c"] == "0"
    assert not any(k.endswith("/b") and not k.startswith("__debug") for k in found)


def test_data_go_into_typed_fields():
    builder = Builder()
    values = {
        "f": np.array([1.5, -2, 3], np.float32),
        "i": np.array([7, -8], np.int32),
        "l": np.array([2**40, -1], np.int64),
        "b": np.array([True, False]),
        "s": np.array([-3, 4], np.int8),
        "u": np.array([2**31 + 5], np.uint32),
    }
    for name, value in values.items():
        builder.addInitializedInputTensor(value, name)
    tensors = {t.name: t for t in proto_of(builder).graph.initializer}
    assert all(not t.HasField("raw_data") for t in tensors.values())
    assert list(tensors["f"].float_data) == [1.5, -2, 3]
    assert list(tensors["i"].int32_data) == [7, -8]
    assert list(tensors["l"].int64_data) == [2**40, -1]
    for name, value in values.items():
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensors[name]), value)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.bool_, np.uint32, np.float16])
@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_raw_copies_in_typed_fields_are_read(dtype, count):
    """PopART fills the typed field of small types with a copy of memory; such files are read as they are meant."""
    value = (np.random.default_rng(count).integers(0, 2 if dtype is np.bool_ else 100, count)).astype(dtype)
    value = -value if dtype in (np.int8, np.int16, np.float16) else value
    field, wide = ("uint64_data", np.uint64) if dtype is np.uint32 else ("int32_data", np.int32)
    memory = np.zeros(-(-value.nbytes // np.dtype(wide).itemsize) * np.dtype(wide).itemsize, np.uint8)
    memory[: value.nbytes] = value.view(np.uint8)
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    tensor = onnx.TensorProto(name="w", data_type=kind, dims=[count])
    getattr(tensor, field).extend(memory.view(wide).tolist())
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["w"], ["y"])], "g", [],
        [onnx.helper.make_tensor_value_info("y", kind, [count])], [tensor],
    )  # fmt: skip
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 10)], ir_version=4)
    fn, params = to_jax(proto.SerializeToString())
    np.testing.assert_array_equal(np.asarray(fn(params, {})["y"]), value)
    assert Builder(proto.SerializeToString()).getTensorShape("w") == [count]


@pytest.mark.parametrize("shape", [(1,), (2, 3), (5,), ()])
def test_halves_are_packed_two_to_an_entry_and_read_back(shape):
    builder = Builder()
    value = np.arange(1, 1 + np.prod(shape, dtype=int)).astype(np.float16).reshape(shape)
    w = builder.addInitializedInputTensor(value, "w")
    builder.addOutputTensor(builder.aiOnnx.identity([w]))
    tensor = proto_of(builder).graph.initializer[0]
    assert len(tensor.int32_data) == (value.size + 1) // 2
    unpacked = np.asarray(tensor.int32_data, np.int32).view(np.float16)[: value.size]
    np.testing.assert_array_equal(unpacked, value.ravel())
    _, params = to_jax(builder.getModelProto())
    np.testing.assert_array_equal(np.asarray(params["w"]), value)
    again = Builder(builder.getModelProto())
    assert again.getTensorShape("w") == list(shape)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_other_types_are_refused(dtype):
    with pytest.raises(popart_exception, match=r"^Unsupported data type for initialized data"):
        Builder().addInitializedInputTensor(np.zeros(2, dtype))


def test_non_contiguous_arrays_are_copied():
    builder = Builder()
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    builder.addInitializedInputTensor(array, "w")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(proto_of(builder).graph.initializer[0]), array)


def test_variable_settings_are_written():
    builder = Builder()
    settings = VariableSettings(CommGroup(CommGroupType.Consecutive, 2), VariableRetrievalMode.AllReplicas)
    builder.addInitializedInputTensor(np.zeros((2, 3), np.float32), settings, "w")
    found = metadata(builder)
    assert (found["__comm_group_type/w"], found["__comm_group_size/w"], found["__variable_settings/w"]) == (
        "1",
        "2",
        "2",
    )
    builder.embedReplicationFactor(4)
    assert metadata(builder)["__replicationFactor"] == "4"


def test_untyped_inputs_are_for_subgraphs():
    builder = Builder()
    with pytest.raises(popart_exception):
        builder.addUntypedInputTensor("x")
    child = builder.createSubgraphBuilder()
    assert child.addUntypedInputTensor("x") == "x"
    x = builder.addInputTensor("FLOAT", [2], "outer")
    child.addInputTensorFromParentGraph(x)
    assert child.getInputTensorIds() == ["x", "outer"]
    with pytest.raises(popart_exception, match="nowhere"):
        child.addInputTensorFromParentGraph("nowhere")


def test_queries_and_their_errors():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    w = builder.addInitializedInputTensor(np.zeros((3, 4), np.float32))
    hidden = builder.aiOnnx.matmul([x, w])
    out = builder.aiOnnx.relu([hidden])
    builder.addOutputTensor(out)
    assert builder.getInputTensorIds() == [x, w]
    assert builder.getOutputTensorIds() == [out]
    assert builder.getValueTensorIds() == [hidden, out]
    assert builder.getTrainableTensorIds() == [w]
    assert builder.isInitializer(w)
    assert not builder.isInitializer(x)
    with pytest.raises(popart_exception, match=x):
        builder.getTensorShape("unknown")
    custom = builder.customOp("Foo", 1, "com.acme", [x], {"alpha": 1.5})[0]
    with pytest.raises(popart_exception):
        builder.getTensorShape(custom)


def test_external_initializers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    builder = Builder()
    a = builder.addInitializedInputTensor(np.array([1, 2], np.float32), "a")
    b = builder.addInitializedInputTensor(np.array([3, 4, 5], np.int32), "b")
    h = builder.addInitializedInputTensor(np.array([6, 7, 8], np.float16), "h")
    builder.addOutputTensor(builder.aiOnnx.identity([a]))
    with pytest.raises(popart_exception, match="parent directory does not exist"):
        builder.saveInitializersExternally([a], "missing/data.bin")
    with pytest.raises(popart_exception, match="is not an initializer"):
        builder.saveInitializersExternally(["nope"], "data.bin")
    builder.saveInitializersExternally([b, a, h], "data.bin")
    data = (tmp_path / "data.bin").read_bytes()
    assert (
        data
        == np.array([3, 4, 5], "<i4").tobytes()
        + np.array([1, 2], "<f4").tobytes()
        + np.array([6, 7, 8], "<f2").tobytes()
    )
    tensor = next(t for t in proto_of(builder).graph.initializer if t.name == "a")
    assert tensor.data_location == onnx.TensorProto.EXTERNAL
    assert {e.key: e.value for e in tensor.external_data} == {"location": "data.bin", "length": "8", "offset": "12"}
    with pytest.raises(popart_exception, match="already has an external data_location"):
        builder.saveInitializersExternally([a], "other.bin")
    builder.saveModelProto("m.onnx")
    assert Builder("m.onnx").getTensorShape("h") == [3]


def test_wrong_attribute_values_of_custom_operators():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    good = {"s": "text", "i": 3, "l": [1, 2], "f": 1.5, "fl": [1.0, 2.0], "e": []}
    assert builder.customOp("Foo", 1, "com.acme", [x], good, 2, "named") == ["Foo:0", "Foo:1"]
    node = proto_of(builder).graph.node[0]
    assert {a.name: a.type for a in node.attribute} == {
        "s": 3,
        "i": 2,
        "l": 7,
        "f": 1,
        "fl": 6,
        "e": 7,
    }
    assert node.name == "named"
    for bad in ([1, 2.5], [[1], [2]], {"a": 1}, None):
        with pytest.raises(popart_exception):
            builder.customOp("Foo", 1, "com.acme", [x], {"a": bad})


def test_sparse_constants_are_refused():
    builder = Builder()
    builder.aiOnnxOpset11.constant(np.zeros(2, np.float32), False)
    with pytest.raises(popart_jax.popart_exception, match="sparse_value"):
        builder.aiOnnxOpset11.constant(np.zeros(2, np.float32), True)


def test_debug_ids_and_subgraph_variables():
    builder = Builder()
    builder.addInputTensor("FLOAT", [2], "a")
    builder.addInputTensor("FLOAT", [2], "b")
    found = metadata(builder)
    assert int(found["__debug_id/input/b"]) > int(found["__debug_id/input/a"])
    with pytest.raises(popart_exception, match="top-level builder"):
        builder.createSubgraphBuilder().addInitializedInputTensor(np.zeros(2, np.float32))


def test_errors_are_logged(capsys):
    with pytest.raises(popart_exception):
        Builder().aiOnnx.relu(["nowhere"])
    assert "Unknown tensor 'nowhere'" in capsys.readouterr().err
