"""GraphTransformer (semantics 13), compared with NumPy casts and ONNX's own reading of the results."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from popart_jax import Builder, GraphTransformer, popart_exception

FLOATS = np.array([0.1, -1e6, 65504, 1e-9], np.float32)


def model(array: np.ndarray, used: bool = True) -> bytes:
    """x + w with a Constant of the same values."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    infos = [onnx.helper.make_tensor_value_info(n, kind, array.shape) for n in ("x", "w", "y")]
    constant = onnx.helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(array, "c"))
    add = onnx.helper.make_node("Add", ["x", "w" if used else "c"], ["y"])
    graph = onnx.helper.make_graph(
        [constant, add], "g", infos[:2], infos[2:], [onnx.numpy_helper.from_array(array, "w")]
    )
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 10)], ir_version=4
    ).SerializeToString()


def result(transformer: GraphTransformer) -> onnx.ModelProto:
    return onnx.load_model_from_string(transformer.getModelProto())


@pytest.mark.parametrize(
    ("method", "array", "expected"),
    [
        ("convertFloatsToHalfs", FLOATS, np.array([0.1, -np.inf, 65504, 0], np.float16)),
        ("convertDoublesToFloats", FLOATS.astype(np.float64), FLOATS),
        ("convertDoublesToHalfs", np.array([1e300, 0.1]), np.array([np.inf, 0.1], np.float16)),
        (
            "convertBFloats16ToFloat32",
            FLOATS.astype(ml_dtypes.bfloat16),
            FLOATS.astype(ml_dtypes.bfloat16).astype(np.float32),
        ),
        ("convertUINT8ToINT32", np.array([0, 255], np.uint8), np.array([0, 255], np.int32)),
        ("convertUINT16ToINT32", np.array([0, 65535], np.uint16), np.array([0, 65535], np.int32)),
        ("convertINT8ToINT32", np.array([-128, 127], np.int8), np.array([-128, 127], np.int32)),
        ("convertINT16ToINT32", np.array([-3, 3], np.int16), np.array([-3, 3], np.int32)),
        ("convertINT64ToINT32", np.array([-3, 2**31 - 1]), np.array([-3, 2**31 - 1], np.int32)),
    ],
)
def test_conversions(method, array, expected):
    if method == "convertBFloats16ToFloat32":
        pytest.importorskip("ml_dtypes")
    with np.errstate(over="ignore"):
        transformer = GraphTransformer(model(array))
        getattr(transformer, method)()
    proto = result(transformer)
    kind = onnx.helper.np_dtype_to_tensor_dtype(expected.dtype)
    tensors = [proto.graph.initializer[0], proto.graph.node[0].attribute[0].t]
    for tensor in tensors:
        assert tensor.data_type == kind
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), expected)
        field = {np.float16: "raw_data", np.float32: "float_data", np.int32: "int32_data"}[expected.dtype.type]
        assert len(getattr(tensor, field))
    assert {i.type.tensor_type.elem_type for i in (*proto.graph.input, *proto.graph.output)} == {kind}


def test_large_integers():
    array = np.array([2**31, -(2**31) - 1, 5])
    with pytest.raises(popart_exception, match=r"cannot cast int64 to int32: number is too large\. If you"):
        GraphTransformer(model(array)).convertINT64ToINT32()
    transformer = GraphTransformer(model(array))
    transformer.convertINT64ToINT32(clip=True)
    values = onnx.numpy_helper.to_array(result(transformer).graph.initializer[0])
    assert values.tolist() == [2**31 - 1, -(2**31), 5]


@pytest.mark.parametrize(
    ("method", "where"),
    [("convertFloatsToHalfs", "convertFloatToHalf"), ("convertUINT8ToINT32", "convertUINT8ToINT32")],
)
def test_graph_attributes_are_refused(method, where):
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    cond = builder.aiOnnx.constant(np.array(True))
    branches = [builder.createSubgraphBuilder() for _ in range(2)]
    for branch in branches:
        branch.addOutputTensor(branch.aiOnnx.relu([x]))
    builder.addOutputTensor(builder.aiOnnx.logical_if([cond], 1, *branches)[0])
    with pytest.raises(popart_exception) as caught:
        getattr(GraphTransformer(builder.getModelProto()), method)()
    assert caught.value.args[0] == f"Attributes of type GRAPH and GRAPHS : need impl in {where}"


def test_unused_inputs_go():
    transformer = GraphTransformer(model(FLOATS, used=False))
    transformer.removeUnusedInputs()
    graph = result(transformer).graph
    assert [i.name for i in graph.input] == ["x"]
    assert len(graph.initializer) == 0


def test_constants_instead_of_initializers():
    transformer = GraphTransformer(model(FLOATS))
    with pytest.raises(popart_exception, match="nope"):
        transformer.convertInitializersToConstants(["nope"])
    transformer.convertInitializersToConstants(["w"])
    graph = result(transformer).graph
    assert [i.name for i in graph.input] == ["x"]
    assert len(graph.initializer) == 0
    made = next(n for n in graph.node if n.output[0] == "w")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(made.attribute[0].t), FLOATS)
    onnx.checker.check_model(result(transformer))


def test_all_integers_become_constants():
    builder = Builder()
    table = builder.addInitializedInputTensor(np.ones((4, 2), np.float32), "table")
    rows = builder.addInitializedInputTensor(np.array([1, 2], np.int32), "rows")
    builder.addOutputTensor(builder.aiOnnx.gather([table, rows]))
    transformer = GraphTransformer(builder.getModelProto())
    transformer.convertAllFixedPointInitializersToConstants()
    assert [t.name for t in result(transformer).graph.initializer] == ["table"]


def test_batch_norm_gets_five_outputs():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2, 3, 4, 4])
    stats = [builder.addInitializedInputTensor(np.ones(3, np.float32)) for _ in range(4)]
    builder.addOutputTensor(builder.aiOnnx.batchnormalization([x, *stats], 1)[0])
    transformer = GraphTransformer(builder.getModelProto())
    transformer.prepareNodesForTraining()
    node = result(transformer).graph.node[0]
    assert len(set(node.output)) == 5
    onnx.checker.check_model(result(transformer))


def test_external_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    transformer = GraphTransformer(model(FLOATS))
    transformer.saveInitializersExternally(["w"], "w.bin")
    assert (tmp_path / "w.bin").read_bytes() == FLOATS.tobytes()


def test_broken_models():
    with pytest.raises(popart_exception, match="Failed to load a ModelProto from the string"):
        GraphTransformer(b"nothing")
    proto = onnx.load_model_from_string(model(FLOATS))
    proto.graph.node[1].input[0] = "nowhere"
    with pytest.raises(RuntimeError):
        GraphTransformer(proto.SerializeToString())
