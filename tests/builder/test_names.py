"""Names of tensors and nodes (semantics 2.2)."""

from __future__ import annotations

import numpy as np
import onnx

from popart_jax import Builder


def node_names(builder: Builder) -> list[str]:
    return [n.name for n in onnx.load_model_from_string(builder.getModelProto()).graph.node]


def test_outputs_are_named_by_type_and_index_not_by_debug_context():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [4, 4])
    assert builder.aiOnnx.relu([x], debugContext="mine") == "Relu:0"
    assert builder.aiOnnx.relu([x], debugPrefix="older") == "Relu:0/1"
    assert node_names(builder) == ["mine", "older"]
    assert builder.aiOnnx.relu([x]) == "Relu:0/2"
    k = builder.aiOnnx.constant(np.array([2], np.int64))
    assert builder.aiOnnx.topk([x, k]) == ["TopK:0", "TopK:1"]
    assert builder.aiGraphcore.gelu([x]) == "Gelu:0"


def test_inputs_take_the_debug_context_or_a_default():
    builder = Builder()
    assert builder.addInputTensor("FLOAT", [1]) == "input"
    assert builder.addInputTensor("FLOAT", [1]) == "input/1"
    assert builder.addInputTensor("FLOAT", [1], "data") == "data"
    assert builder.addInputTensor("FLOAT", [1], debugContext="data") == "data/1"
    assert builder.addInitializedInputTensor(np.zeros(1, np.float32)) == "init_input"
    assert builder.addInitializedInputTensor(np.zeros(1, np.float32), "w") == "w"


def test_scopes_prefix_tensors_and_nodes():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [4, 4])
    with builder.nameScope("layer1"):
        assert builder.aiOnnx.matmul([x, x]) == "layer1/MatMul:0"
        assert builder.addInputTensor("FLOAT", [1]) == "layer1/input"
        with builder.nameScope("inner"):
            assert builder.getNameScope("z") == "layer1/inner/z"
            assert builder.aiOnnx.relu([x], "mine") == "layer1/inner/Relu:0"
    assert builder.getNameScope() == ""
    builder.aiOnnx.relu([x])
    assert node_names(builder) == ["layer1/MatMul", "layer1/inner/mine", ""]


def test_related_builders_do_not_share_names_siblings_may():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [4])
    left, right = builder.createSubgraphBuilder(), builder.createSubgraphBuilder()
    assert left.aiOnnx.relu([x]) == "Relu:0"
    assert right.aiOnnx.relu([x]) == "Relu:0"
    assert builder.aiOnnx.relu([x]) == "Relu:0/1"
    deeper = left.createSubgraphBuilder()
    assert deeper.aiOnnx.relu([x]) == "Relu:0/2"


def test_suffixes_are_found_in_constant_time():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [4])
    for _ in range(3000):
        x = builder.aiOnnx.relu([x])
    assert x == "Relu:0/2999"


def test_graph_names_are_unique_and_settable():
    first, second = Builder(), Builder()
    names = {onnx.load_model_from_string(b.getModelProto()).graph.name for b in (first, second)}
    assert len(names) == 2
    assert all(n.startswith("BuilderGraph_") for n in names)
    first.setGraphName("mine")
    assert onnx.load_model_from_string(first.getModelProto()).graph.name == "mine"
    first.setGraphName("")
    assert onnx.load_model_from_string(first.getModelProto()).graph.name.startswith("BuilderGraph_")
