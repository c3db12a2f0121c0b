"""Choice of opsets and loading of models (semantics 2.1)."""

from __future__ import annotations

import inspect
import typing

import numpy as np
import onnx
import pytest

import popart_jax
from popart_jax import Builder


def model(opset: int = 10, ir_version: int = 4) -> onnx.ModelProto:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    infos = [onnx.helper.make_tensor_value_info(n, 1, [2, 3]) for n in ("x", "y")]
    graph = onnx.helper.make_graph([node], "g", infos[:1], infos[1:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=ir_version)


def test_default_is_ten_and_first_use_pins():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    builder.aiOnnx.relu([x])
    builder.aiOnnxOpset10.relu([x])
    with pytest.raises(RuntimeError, match="already defined"):
        builder.aiOnnxOpset9.relu([x])
    with pytest.raises((KeyError, ValueError)):
        builder.aiOnnxOpset99  # noqa: B018
    with pytest.raises(AttributeError):
        builder.something  # noqa: B018


@pytest.mark.parametrize(("version", "ir_version"), [(6, 3), (7, 3), (8, 3), (9, 4), (10, 4), (11, 4)])
def test_pinned_version_is_written(version: int, ir_version: int):
    builder = Builder(opsets={"ai.onnx": version, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [2])
    builder.aiOnnx.relu([x])
    proto = onnx.load_model_from_string(builder.getModelProto())
    assert proto.ir_version == ir_version
    assert [(i.domain, i.version) for i in proto.opset_import] == [("", version)]
    assert proto.graph.node[0].domain == ""
    onnx.checker.check_model(proto)


def test_both_domains_are_needed():
    with pytest.raises(KeyError):
        Builder(opsets={"ai.onnx": 10})


def test_both_graphcore_names_are_one():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    assert builder.aiGraphcoreOpset1.gelu([x]) == "Gelu:0"
    assert builder.aiGraphcore.gelu([x]) == "Gelu:0/1"


def test_subgraph_builders_inherit_the_version():
    builder = Builder()
    builder.aiOnnxOpset9  # noqa: B018
    assert builder.createSubgraphBuilder().aiOnnx.version == 9


def test_loaded_models_go_on(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model().SerializeToString())
    for source in (str(path), path.read_bytes()):
        builder = Builder(source)
        assert builder.getTensorShape("y") == [2, 3]
        out = builder.aiOnnx.sigmoid(["y"])
        assert builder.getTensorShape(out) == [2, 3]
        with pytest.raises(RuntimeError):
            builder.aiOnnxOpset9.relu([out])


def test_adding_an_operator_of_another_opset_to_a_loaded_model():
    builder = Builder(model(9).SerializeToString())
    with pytest.raises(popart_jax.popart_exception, match="opset"):
        builder.customOp("Relu", 10, "ai.onnx", ["y"], {})


@pytest.mark.parametrize("version", [1, 5, 12, 18, 21, 24])
def test_models_of_any_opset_go_on(version: int):
    """Their namespace is that of their opset, and PopART's losses attach to any."""
    builder = Builder(model(version, 8).SerializeToString())
    out = builder.aiOnnx.sigmoid(["y"])
    assert builder.aiOnnx.version == version
    labels = builder.addInputTensor("INT32", [2])
    loss = builder.aiGraphcore.nllloss([out, labels])
    assert builder.getTensorShape(loss) == []
    proto = onnx.load_model_from_string(builder.getModelProto())
    assert {(i.domain, i.version) for i in proto.opset_import} == {("", version), ("ai.graphcore", 1)}


def test_methods_follow_the_opset():
    builder = Builder(model(18, 8).SerializeToString())
    axes = builder.aiOnnx.constant(np.array([1]))
    assert builder.getTensorShape(builder.aiOnnx.reducemean(["y", axes], keepdims=0)) == [2]  # axes are an operand
    assert "gelu" not in dir(builder.aiOnnx)  # an operator since opset 20
    assert Builder(model(20, 8).SerializeToString()).aiOnnx.gelu(["y"])


@pytest.mark.parametrize("version", [0, 99])
def test_opsets_that_nobody_knows_are_refused(version: int):
    with pytest.raises((popart_jax.popart_exception, RuntimeError), match=f"opset.* {version}|version {version}"):
        Builder(model(version, 8).SerializeToString())


@pytest.mark.parametrize("version", [5, 99])
@pytest.mark.usefixtures("popart_names")
def test_programs_of_popart_have_its_range_of_opsets(version: int):
    with pytest.raises(popart_jax.popart_exception) as caught:
        Builder(model(version, 8).SerializeToString())
    assert caught.value.args[0] == (
        f"Encountered ONNX opset version {version}, Maximimum supported opset is 11, minimum 6 and default 10."
    )


def test_unreadable_models():
    with pytest.raises(popart_jax.popart_exception) as caught:
        Builder(b"no model")
    assert str(caught.value).startswith("Failed to load a ModelProto from the string '")
    assert str(caught.value).endswith(
        "Check that it is either a valid path to an existing onnx model file, or is a valid onnx ModelProto string."
    )


def test_the_checker_raises_runtime_error_and_nothing_else(tmp_path, monkeypatch):
    proto = model()
    proto.graph.node[0].input[0] = "nowhere"
    with pytest.raises(RuntimeError) as caught:
        Builder(proto.SerializeToString())
    assert type(caught.value) is RuntimeError

    monkeypatch.chdir(tmp_path)
    builder = Builder()
    w = builder.addInitializedInputTensor(np.ones(4, np.float32), "w")
    builder.addOutputTensor(builder.aiOnnx.relu([w]))
    builder.saveInitializersExternally([w], "data.bin")
    builder.saveModelProto("m.onnx")
    (tmp_path / "data.bin").unlink()
    with pytest.raises(RuntimeError, match="doesn't exist or is not accessible") as caught:
        Builder("m.onnx")
    assert type(caught.value) is RuntimeError


def test_a_loaded_model_keeps_its_opset():
    """`aiOnnx` is the opset of the model; an operator of another one is refused when it is added."""
    first = Builder()
    x = first.addInputTensor("FLOAT", [2], "x")
    first.addOutputTensor(first.aiOnnxOpset9.relu([x]))
    assert Builder(first.getModelProto()).aiOnnx.version == 9
    later = Builder(first.getModelProto()).aiOnnxOpset10
    with pytest.raises(popart_jax.popart_exception, match="Invalid opset 10 used to add an operation"):
        later.relu([x])


@pytest.mark.usefixtures("popart_names")
def test_in_programs_of_popart_the_default_is_ten_for_loaded_models_too():
    later = Builder(model(9).SerializeToString()).aiOnnx
    with pytest.raises(popart_jax.popart_exception) as caught:
        later.relu(["y"])
    assert caught.value.args[0] == (
        "Invalid opset 10 used to add an operation. Opset for domain ai.onnx already defined as 9"
    )
    assert Builder(model(9).SerializeToString()).aiOnnxOpset9.relu(["y"])
    assert Builder(model(18, 8).SerializeToString()).aiOnnx.relu(["y"])  # no opset of PopART's: nothing to refuse


def test_the_namespaces_that_tools_look_up():
    hint = inspect.signature(Builder.__getattr__).return_annotation
    assert typing.get_args(hint)[0] is popart_jax.AiGraphcoreOpset1
