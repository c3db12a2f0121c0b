"""What sessions of PopART's programs say of annotations that can't be followed. Source: the specification's texts."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax as popart

from .nets import device, flow, make_options

STRICT = {"engineOptions": {"popart_jax.strict": "true"}}


RANKS = " must have rank 2 or 3 for matmul serialization. \nPlease squeeze or reshape for serialization."


def refused(builder, out, **options):
    builder.addOutputTensor(out)
    proto, settings = builder.getModelProto(), make_options(**STRICT, **options)
    with pytest.raises(popart.popart_exception) as caught:
        popart.InferenceSession(proto, flow(4, {out: "All"}), device(), userOptions=settings)
    return str(caught.value)


def one_add():
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 2]))
    return builder, x, builder.aiOnnx.add([x, x])


def test_excluded_patterns_exist():
    builder, _, out = one_add()
    builder.excludePatterns({out}, ["SumToAdd", "NoSuchPattern"])
    assert refused(builder, out) == "Invalid pattern name 'NoSuchPattern' in Op::excludePatterns"


def test_inplace_forms_come_with_priorities():
    builder, _, out = one_add()
    builder.addNodeAttribute("__inplace_op_names", ["AddLhsInplace"], {out})
    assert refused(builder, out) == (
        "Either BOTH or NEITHER of the fields __inplace_op_names and __inplace_op_priorities must be set, but only "
        "__inplace_op_names is set"
    )
    builder, _, out = one_add()
    builder.addNodeAttribute("__inplace_op_names", ["AddLhsInplace"], {out})
    builder.addNodeAttribute("__inplace_op_priorities", [1.0, 2.0], {out})
    assert refused(builder, out) == (
        "For fields __inplace_op_priorities, __inplace_op_names, the number of elements must be the same [ 2 != 1 ]"
    )


@pytest.mark.parametrize("inner", [None, 1])
def test_ops_of_subgraphs_stand_where_a_pipeline_calls_them(inner):
    builder, _, first = one_add()
    sub = builder.createSubgraphBuilder()
    sub.setGraphName("body")
    given = sub.addInputTensor(popart.TensorInfo("FLOAT", [2, 2]))
    made = sub.aiOnnx.mul([given, given])
    if inner is not None:
        sub.virtualGraph(made, inner)
    sub.addOutputTensor(made)
    (out,) = builder.aiGraphcore.call([first], 1, sub)
    builder.virtualGraph(first, 0)
    builder.virtualGraph(out, 0)
    text = refused(builder, out, enablePipelining=True, virtualGraphMode=popart.VirtualGraphMode.Manual)
    if inner is None:
        assert text.startswith("Op Op(ai.onnx.Mul:7, inputs=[")
        assert text.endswith(
            ') in subgraph "body" does not have a virtual graph id. When pipelining, subgraph ops must have a virtual '
            "graph id set."
        )
    else:
        assert text.startswith("The virtual graph id (1) for Op Op(ai.onnx.Mul:7, inputs=[")
        assert text.endswith("you will need to create a separate subgraph for each virtual graph.")


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        ([2, 3, 4, 5], [2, 3, 5, 6], RANKS),
        ([3, 4, 6], [6, 8], "matmuls must have equal rank for matmul serialization"),
    ],
)  # fmt: skip
def test_ranks_of_serialised_products(left, right, wanted):
    builder = popart.Builder()
    a, b = (builder.addInputTensor(popart.TensorInfo("FLOAT", shape)) for shape in (left, right))
    out = builder.aiOnnx.matmul([a, b])
    builder.setSerializeMatMul({out}, "output_channels", 2)
    assert refused(builder, out).endswith(wanted)


def test_modified_inputs_of_a_call_exist():
    builder, _, first = one_add()
    sub = builder.createSubgraphBuilder()
    sub.setGraphName("body")
    given = sub.addInputTensor(popart.TensorInfo("FLOAT", [2, 2]))
    sub.addOutputTensor(sub.aiOnnx.mul([given, given]))
    (out,) = builder.aiGraphcore.call([first], 1, sub)
    builder.addNodeAttribute("modifiedInputs", [3], {out})
    text = refused(builder, out)
    assert text.splitlines()[0] == "CallOp received invalid input index (3) for 'modifiedInputs' attribute"


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("linear", "Upsample op only supports the mode 'nearest' at this time."),
        ("cubic", "Unrecognised upsample mode cubic"),
    ],
)
def test_modes_of_upsample(mode, text):
    builder = popart.Builder(opsets={"ai.onnx": 9, "ai.graphcore": 1})
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1, 1, 2, 2]))
    out = builder.aiOnnx.upsample([x, builder.aiOnnx.constant(np.array([1, 1, 2, 2], np.float32))], mode=mode)
    assert refused(builder, out).splitlines()[0] == text


def test_shapes_that_nobody_says():
    infos = popart.InputShapeInfo()
    with pytest.raises(popart.popart_exception) as caught:
        infos.get("x")
    assert str(caught.value) == "No input shape info for Tensor `x' in InputShapeInfo::get"


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (np.float32([4]), "the tensor `Constant:0` is not the correct type, it is FLOAT"),
        (np.int64([[4]]), "the rank of tensor `Constant:0` is greater than 1"),
    ],
)
def test_constants_that_say_no_shape(shape, reason):
    builder, _, first = one_add()
    out = builder.aiOnnx.reshape([first, builder.aiOnnx.constant(shape)])
    assert refused(builder, out).splitlines()[0] == (
        "Need the value of the ai.onnx.Reshape:5 input 'shape' to determine the output shape, but was unable because "
        + reason
    )
