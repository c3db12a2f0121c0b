"""Models as sessions read them (semantics 3)."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from popart_jax import Builder, InputShapeInfo, TensorInfo, popart_exception
from popart_jax.model.session_model import read_session_model


def model(shape=(2, 3), name: str = "x", out: str = "y", initializers=(), inputs=1) -> bytes:
    infos = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in ((name, shape), (out, None))]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", [name], [out])], "g", infos[:1] * inputs, infos[1:], list(initializers)
    )
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 10)], ir_version=4
    ).SerializeToString()


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (
            ("N", 3),
            (
                "Input tensor 'x' must be specified in InputShapeInfo, as it has shape [N, 3], "
                "which uses an unknown value 'N'."
            ),
        ),
        (
            (2, -1),
            (
                "Input tensor 'x' must be specified in InputShapeInfo, as it has shape [2, -1], "
                "which uses an unknown value '-1'."
            ),
        ),
    ],
)
def test_unknown_shapes(shape, text):
    with pytest.raises(popart_exception) as caught:
        read_session_model(model(shape), InputShapeInfo())
    assert str(caught.value) == text


def test_input_shape_info_wins():
    infos = InputShapeInfo()
    infos.add("x", TensorInfo("FLOAT16", [5, 3]))
    assert infos.has("x")
    assert infos.get("x").shape() == [5, 3]
    for shape in (("N", 3), (2, 3), None):
        value = read_session_model(model(shape), infos).model.graph.inputs[0]
        assert (list(value.shape), value.dtype.name) == ([5, 3], "FLOAT16")
    with pytest.raises(popart_exception):
        infos.get("y")
    with pytest.raises(popart_exception, match="InputShapeInfo"):
        read_session_model(model(None), InputShapeInfo())


def test_names():
    with pytest.raises(popart_exception, match="clash with reserved prefix"):
        read_session_model(model(name="Gradient___x"), InputShapeInfo())
    with pytest.raises(popart_exception, match="clash with reserved prefix"):
        read_session_model(model(out="Step___y"), InputShapeInfo())
    with pytest.raises(popart_exception, match="repeated name"):
        read_session_model(model(inputs=2), InputShapeInfo())
    infos = InputShapeInfo()
    infos.add("UpdatedVar___w", TensorInfo("FLOAT", [1]))
    with pytest.raises(popart_exception, match="clash with reserved prefix"):
        read_session_model(model(), infos)


def test_unused_initializers_are_dropped_and_optimizer_state_is_found():
    extra = [onnx.numpy_helper.from_array(np.ones(2, np.float32), n) for n in ("unused", "Accl___w", "Step___w")]
    read = read_session_model(model(initializers=extra), InputShapeInfo())
    assert dict(read.model.graph.initializers) == {}
    assert set(read.optimizer_state) == {"Accl___w", "Step___w"}
    bad = onnx.numpy_helper.from_array(np.ones(2, np.float32), "Gradient___w")
    with pytest.raises(popart_exception, match="clash"):
        read_session_model(model(initializers=[bad]), InputShapeInfo())


def external(tmp_path, monkeypatch, change=lambda tensor: None) -> bytes:
    monkeypatch.chdir(tmp_path)
    builder = Builder()
    w = builder.addInitializedInputTensor(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    builder.addOutputTensor(builder.aiOnnx.relu([w]))
    builder.saveInitializersExternally([w], "data.bin")
    proto = onnx.load_model_from_string(builder.getModelProto())
    change(proto.graph.initializer[0])
    return proto.SerializeToString()


def test_external_data_are_found_from_the_current_directory(tmp_path, monkeypatch):
    data = external(tmp_path, monkeypatch)
    value = read_session_model(data, InputShapeInfo()).model.graph.initializers["w"]
    np.testing.assert_array_equal(value.const_value.numpy(), np.arange(6).reshape(2, 3))
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    with pytest.raises(popart_exception, match=r"Unrecognised file name 'data.bin' for externally stored tensor 'w'"):
        read_session_model(data, InputShapeInfo())


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("location", None, "No location information for externally stored tensor"),
        ("length", "7", "Invalid 'length' information"),
        ("length", "x", "Invalid 'length' information"),
        ("offset", "x", "Invalid 'offset' information"),
        ("offset", "8", "length"),
    ],
)
def test_wrong_external_information(tmp_path, monkeypatch, key, value, text):
    def change(tensor: onnx.TensorProto) -> None:
        kept = [e for e in tensor.external_data if e.key != key]
        del tensor.external_data[:]
        tensor.external_data.extend(kept)
        if value is not None:
            tensor.external_data.add(key=key, value=value)

    with pytest.raises(popart_exception, match=text):
        read_session_model(external(tmp_path, monkeypatch, change), InputShapeInfo())
