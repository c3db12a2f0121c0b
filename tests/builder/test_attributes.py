"""Attributes on nodes and context managers (semantics 2.5)."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from popart_jax import (
    Builder,
    CommGroup,
    CommGroupType,
    RecomputeType,
    ReplicatedTensorSharding,
    TensorLocation,
    TensorStorage,
    popart_exception,
)


@pytest.fixture
def builder() -> Builder:
    return Builder()


@pytest.fixture
def x(builder) -> str:
    return builder.addInputTensor("FLOAT", [4, 4])


def test_every_attribute_type(builder, x):
    out = builder.aiOnnx.relu([x])
    values = {"i": 3, "l": [1, 2], "f": 1.5, "fl": [1.0, 2.5], "s": "text", "sl": ["a", "b"]}
    for name, value in values.items():
        builder.addNodeAttribute(name, value, {out})
    assert builder.getInt64NodeAttribute("i", {out}) == 3
    assert builder.getInt64VectorNodeAttribute("l", {out}) == [1, 2]
    assert builder.getFloatNodeAttribute("f", {out}) == 1.5
    assert builder.getFloatVectorNodeAttribute("fl", {out}) == [1.0, 2.5]
    assert builder.getStringNodeAttribute("s", {out}) == "text"
    assert builder.getStringVectorNodeAttribute("sl", {out}) == ["a", "b"]
    assert builder.getAllNodeAttributeNames({out}) == ["__debug_info_id", *values]
    single = [float(np.float32(v)) for v in (0.1, 1e39)]
    builder.addNodeAttribute("d", 0.1, {out})
    builder.addNodeAttribute("dl", [0.1, 1e39], {out})
    assert builder.getFloatNodeAttribute("d", {out}) == single[0]  # the file has single precision
    assert builder.getFloatVectorNodeAttribute("dl", {out}) == single
    constant = builder.aiOnnx.constant(np.ones(2, np.float32))
    assert builder.getAllNodeAttributeNames({constant}) == ["value", "__debug_info_id"]
    assert builder.nodeHasAttribute("i", {out})
    builder.removeNodeAttribute("i", {out})
    assert not builder.nodeHasAttribute("i", {out})


@pytest.mark.parametrize(
    ("method", "more", "name", "default"),
    [
        ("groupnormalization", (2,), "epsilon", 1e-5),
        ("batchnormalization", (1,), "momentum", 0.9),
        ("shapeddropout", ([1, 4],), "ratio", 0.5),
        ("scaledadd", (), "scale1", 1.0),
        ("normalize_image", (), "scale", 1.0),
        ("printtensor", (), "title", ""),
    ],
)
def test_floats_and_texts_are_written_unless_they_are_the_default(builder, x, method, more, name, default):
    """Programs add such attributes to the node themselves, which fails if they are there."""
    inputs = [x] * {"groupnormalization": 3, "batchnormalization": 5, "scaledadd": 2, "normalize_image": 3}.get(
        method, 1
    )
    add = getattr(builder.aiGraphcore, method)

    def written(**given):
        outputs = add(inputs, *more, **given)
        return name in builder.getAllNodeAttributeNames({outputs} if isinstance(outputs, str) else set(outputs))

    assert not written()
    assert not written(**{name: default})
    assert written(**{name: "a" if default == "" else 0.25})


def test_errors_of_attributes(builder, x):
    out = builder.aiOnnx.relu([x])
    builder.addNodeAttribute("a", 1, {out})
    for bad in (
        lambda: builder.addNodeAttribute("a", 2, {out}),
        lambda: builder.removeNodeAttribute("b", {out}),
        lambda: builder.getInt64NodeAttribute("b", {out}),
        lambda: builder.getFloatNodeAttribute("a", {out}),
        lambda: builder.addNodeAttribute("c", 1, {"nowhere"}),
        lambda: builder.addNodeAttribute("c", 1, {x}),
    ):
        with pytest.raises(popart_exception):
            bad()


def test_all_outputs_of_a_node_must_be_named(builder, x):
    first, second = builder.aiOnnx.split([x], 2)
    with pytest.raises(popart_exception):
        builder.addNodeAttribute("a", 1, {first})
    builder.addNodeAttribute("a", 1, {first, second})
    builder.virtualGraph([first, second], 1)
    assert builder.getVirtualGraph({second, first}) == 1


def test_placement_contexts_nest_and_reach_the_nodes(builder, x):
    for what in ("Virtual graph", "Pipeline stage", "Execution phase"):
        getter = {"V": builder.getVirtualGraph, "P": builder.getPipelineStage, "E": builder.getExecutionPhase}[what[0]]
        with pytest.raises(popart_exception, match=rf"^{what} not set in current scope\.$"):
            getter()
    with builder.virtualGraph(1), builder.pipelineStage(2), builder.executionPhase(3):
        assert (builder.getVirtualGraph(), builder.getPipelineStage(), builder.getExecutionPhase()) == (1, 2, 3)
        assert builder.hasVirtualGraph()
        assert builder.hasPipelineStage()
        assert builder.hasExecutionPhase()
        with builder.virtualGraph(5):
            inner = builder.aiOnnx.relu([x])
        outer = builder.aiOnnx.relu([x])
    free = builder.aiOnnx.relu([x])
    assert builder.getVirtualGraph(inner) == 5
    assert builder.getVirtualGraph(outer) == 1
    assert builder.getInt64NodeAttribute("__pipeline_stage", {outer}) == 2
    assert builder.getInt64NodeAttribute("__execution_phase", {outer}) == 3
    assert builder.getAllNodeAttributeNames({free}) == ["__debug_info_id"]
    assert not builder.hasVirtualGraph()


def test_placement_of_nodes_that_exist(builder, x):
    out = builder.aiOnnx.relu([x])
    builder.virtualGraph(out, 3)
    builder.pipelineStage(out, 1)
    builder.executionPhase({out}, 2)
    builder.recomputeOutputInBackwardPass(out)
    assert builder.getRecomputeOutputInBackwardPass(out) is True
    assert builder.getInt64NodeAttribute("__recompute_output_in_backward_pass", {out}) == int(RecomputeType.Recompute)
    assert builder.getVirtualGraph(out) == 3
    with pytest.raises(popart_exception):
        builder.virtualGraph(out, 4)


def test_other_contexts(builder, x):
    location = TensorLocation(
        TensorStorage.OffChip, ReplicatedTensorSharding.On, CommGroup(CommGroupType.Consecutive, 2)
    )
    with (
        builder.schedulePriority(2.5),
        builder.recomputeOutput(RecomputeType.Recompute),
        builder.outputTensorLocation(location),
        builder.commGroup(1, 4),
        builder.outlineAttributes({"block": "a", "n": 1}),
        builder.outlineAttributes({"n": 2}),
    ):
        out = builder.aiOnnx.relu([x])
    assert builder.getFloatNodeAttribute("__schedule_priority", {out}) == 2.5
    assert builder.getInt64NodeAttribute("__recompute_output_in_backward_pass", {out}) == 2
    assert builder.getInt64VectorNodeAttribute("__output_tensor_location", {out}) == [1, 0, 0, 1, 1, 2]
    assert builder.getInt64VectorNodeAttribute("__collectiveCommGroup", {out}) == [1, 4]
    assert builder.getStringVectorNodeAttribute("__outline", {out}) == ["block", "a", "n", "2"]
    proto = onnx.load_model_from_string(builder.getModelProto())
    onnx.checker.check_model(proto)


def test_hints_of_matmul_and_conv(builder, x):
    product = builder.aiOnnx.matmul([x, x])
    other = builder.aiOnnx.relu([x])
    assert builder.getPartialsType(product) == "FLOAT"
    builder.setPartialsType(product, "HALF")
    with pytest.raises(popart_exception, match="Bad partialsType 'QUARTER'"):
        builder.setPartialsType(product, "QUARTER")
    assert builder.getPartialsType(product) == "HALF"
    for what, call in (
        ("setPartialsType", lambda: builder.setPartialsType(other, "HALF")),
        ("getPartialsType", lambda: builder.getPartialsType(other)),
    ):
        with pytest.raises(popart_exception) as caught:
            call()
        text = f"Builder::{what} should only be called on operators: Conv, MatMul; but was given: Relu"
        assert str(caught.value) == text
    with pytest.raises(popart_exception):
        builder.setEnableConvDithering(product, 1)
    for bad in (0.0, -0.5, 1.5):
        with pytest.raises(popart_exception, match=r"^availableMemoryProportion must be in \(0,1\]$"):
            builder.setAvailableMemoryProportion(product, bad)
    builder.setAvailableMemoryProportion(product, 0.5)
    builder.setAvailableMemoryProportion({product}, 0.25)
    assert builder.getFloatNodeAttribute("__available_memory", {product}) == 0.25


def test_serialised_matmul(builder, x):
    product = builder.aiOnnx.matmul([x, x])
    with pytest.raises(popart_exception) as caught:
        builder.setSerializeMatMul({product}, "rows", 2)
    assert str(caught.value) == (
        "Unsupported mat mul serialization mode 'rows'. Supported modes are 'input_channels', 'reducing_dim', "
        "'output_channels' or 'none'"
    )
    builder.setSerializeMatMul({product}, "none")
    assert builder.getAllNodeAttributeNames({product}) == ["__debug_info_id"]
    builder.setSerializeMatMul({product}, "output_channels", 2, True)
    assert builder.getStringNodeAttribute("__serialize_matmul_mode", {product}) == "output_channels"
    assert builder.getInt64NodeAttribute("__serialize_matmul_factor", {product}) == 2
    assert builder.getInt64NodeAttribute("__serialize_matmul_precision", {product}) == 1
    other = builder.aiOnnx.relu([x])
    builder.setSerializeMatMul({other}, "output_channels", 2)  # of no effect, as in PopART
    assert builder.getInt64NodeAttribute("__serialize_matmul_factor", {other}) == 2


def test_remaining_hints(builder, x):
    out = builder.aiOnnx.relu([x])
    builder.setInplacePreferences(out, {"ReluInplace": 10.0, "Other": -1})
    builder.excludePatterns(out, ["InPlace"])
    assert builder.getStringVectorNodeAttribute("__inplace_op_names", {out}) == ["ReluInplace", "Other"]
    assert builder.getFloatVectorNodeAttribute("__inplace_op_priorities", {out}) == [10.0, -1.0]
    assert builder.getStringVectorNodeAttribute("__exclude_patterns", {out}) == ["InPlace"]


def test_checkpoint_output(builder, x):
    outs = builder.checkpointOutput([builder.aiOnnx.relu([x]), x])
    assert [builder.getTensorShape(o) for o in outs] == [[4, 4], [4, 4]]
    nodes = onnx.load_model_from_string(builder.getModelProto()).graph.node
    assert [(n.op_type, n.name) for n in nodes][-2:] == [("Identity", "Checkpoint")] * 2
    assert builder.getInt64NodeAttribute("__recompute_output_in_backward_pass", {outs[0]}) == int(
        RecomputeType.Checkpoint
    )


def test_annotations_do_not_change_results(builder, x):
    from popart_jax import to_jax

    with builder.virtualGraph(1), builder.pipelineStage(1):
        out = builder.aiOnnx.relu([x])
    builder.addOutputTensor(out)
    fn, params = to_jax(builder.getModelProto())
    value = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(fn(params, {x: value})[out], np.maximum(value, 0))
