"""Adding operators: argument conversion, checks, inferred shapes (semantics 2.3, 2.4)."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import onnx
import pytest

from popart_jax import (
    Builder,
    DataFlow,
    DeviceManager,
    InferenceSession,
    ReductionType,
    ScatterReduction,
    popart_exception,
)


@pytest.fixture
def builder() -> Builder:
    return Builder()


def attributes(builder: Builder) -> dict:
    node = onnx.load_model_from_string(builder.getModelProto()).graph.node[-1]
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def test_argument_conversions(builder):
    x = builder.addInputTensor("FLOAT", (2, 3, 4))
    builder.aiOnnx.transpose((x,), perm=(2, 0, 1))
    assert attributes(builder)["perm"] == [2, 0, 1]
    builder.aiOnnx.reducesum([x], [1], True)
    assert attributes(builder) == {"axes": [1], "keepdims": 1}
    builder.aiOnnx.elu([x], np.float32(0.5))
    assert attributes(builder) == {"alpha": 0.5}
    builder.aiOnnx.leakyrelu(args=[x], alpha=1, debugContext="d")
    assert attributes(builder) == {"alpha": 1.0}
    for bad in (
        lambda: builder.aiOnnx.transpose([x], perm=[1.5]),
        lambda: builder.aiOnnx.relu(x),
        lambda: builder.aiOnnx.relu([x], nothing=1),
        lambda: builder.aiOnnx.relu(),
        lambda: builder.aiOnnx.relu([x], "", 3),
    ):
        with pytest.raises(TypeError):
            bad()


def test_lists_or_single_names(builder):
    x = builder.addInputTensor("FLOAT", [4, 4])
    assert isinstance(builder.aiOnnx.dropout([x], 1), list)
    assert isinstance(builder.aiOnnx.split([x], 2, 0), list)
    assert isinstance(builder.aiOnnx.relu([x]), str)
    assert builder.aiGraphcore.abort() is None


def test_checks_of_inputs(builder):
    x = builder.addInputTensor("FLOAT", [2])
    with pytest.raises(popart_exception, match=r"Add has invalid number of inputs 3\. Must be between 2\.\.2"):
        builder.aiOnnx.add([x, x, x])
    with pytest.raises(popart_exception, match=r"Unknown tensor 'q' \(valid tensors are input"):
        builder.aiOnnx.relu(["q"])
    with pytest.raises(popart_exception, match="outputs"):
        builder.aiOnnx.dropout([x], 3)
    with pytest.raises(popart_exception, match="Gelu has invalid number of inputs"):
        builder.aiGraphcore.gelu([x, x])


def test_optional_inputs_may_be_empty(builder):
    x = builder.addInputTensor("FLOAT", [2])
    low = builder.aiOnnxOpset11.constant(np.array(0, np.float32))
    out = builder.aiOnnxOpset11.clip([x, low, ""])
    assert builder.getTensorShape(out) == [2]


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"strides": [1]}, "Length of strides vector 1 != number of spatial dimensions 2"),
        ({"dilations": [1, 1, 1]}, "Length of dilations vector 3 != number of spatial dimensions 2"),
        ({"pads": [1, 1]}, "does not have 2 values for each spatial dimension"),
        ({"kernel_shape": [5, 5]}, "does not match inferred shape from weight input"),
        ({"dilations": [9, 9]}, "Window parameter values combine to give invalid spatial output shape"),
    ],
)
def test_window_checks(builder, parameters, text):
    x = builder.addInputTensor("FLOAT", [1, 2, 8, 8])
    w = builder.addInitializedInputTensor(np.zeros((4, 2, 3, 3), np.float32))
    with pytest.raises(popart_exception, match=text):
        builder.aiOnnx.conv([x, w], **parameters)
    if "combine" not in text:
        turned = builder.addInitializedInputTensor(np.zeros((2, 4, 3, 3), np.float32))
        with pytest.raises(popart_exception, match=text):
            builder.aiOnnx.convtranspose([x, turned], **parameters)


def test_windows_need_spatial_dimensions(builder):
    x = builder.addInputTensor("FLOAT", [1, 2])
    w = builder.addInitializedInputTensor(np.zeros((4, 2), np.float32))
    with pytest.raises(popart_exception, match="Input tensor has no spatial dimensions"):
        builder.aiOnnx.conv([x, w])


def test_negative_inferred_dimensions(builder):
    x = builder.addInputTensor("FLOAT", [2, 3])
    with pytest.raises(popart_exception, match="invalid shape"):
        builder.aiOnnx.pad([x], [0, -2, 0, -2])


def test_encoded_attributes(builder):
    x = builder.addInputTensor("FLOAT", [4, 5])
    labels = builder.addInputTensor("INT32", [4])
    builder.aiOnnx.cast([x], "FLOAT16")
    assert attributes(builder)["to"] == onnx.TensorProto.FLOAT16
    builder.aiGraphcore.nllloss([x, labels], ReductionType.NoReduction, ignoreIndex=3, inputIsLogProbability=True)
    assert attributes(builder) == {"reduction": b"None", "ignoreIndex": 3, "inputIsLogProbability": 1}
    builder.aiGraphcore.l1loss([x], 0.25, ReductionType.Sum)
    assert attributes(builder) == {"lambda": 0.25, "reduction": b"Sum"}
    builder.aiGraphcore.l1loss([x], **{"lambda": 0.5})
    assert attributes(builder)["lambda"] == 0.5
    index = builder.addInputTensor("INT32", [4, 5])
    builder.aiGraphcore.scatterreduce([x, index], axis_size=7, axis=0, reduction=ScatterReduction.NoReduction)
    assert attributes(builder)["reduction"] == b"none"


@pytest.mark.parametrize(
    ("method", "kinds", "shapes", "expected"),
    [
        ("add", ("FLOAT16", "FLOAT"), ([2, 1], [3]), ("float16", [2, 3])),
        ("matmul", ("FLOAT", "FLOAT16"), ([2, 4], [4, 3]), ("float32", [2, 3])),
        ("less", ("INT32", "FLOAT"), ([3], [2, 3]), ("bool", [2, 3])),
        ("max", ("FLOAT", "FLOAT16", "INT32"), ([3], [2, 1], [1]), ("float32", [2, 3])),
        ("conv", ("FLOAT", "FLOAT16"), ([1, 1, 5, 5], [2, 1, 3, 3]), ("float32", [1, 2, 3, 3])),
        ("logical_and", ("FLOAT", "INT32"), ([3], [2, 1]), ("bool", [2, 3])),
    ],
)
def test_shapes_are_known_whatever_the_types(builder, method, kinds, shapes, expected):
    """Types are judged when a session is made: until then a result has the first operand's, or its operator's own."""
    inputs = [builder.addInputTensor(kind, shape) for kind, shape in zip(kinds, shapes, strict=True)]
    made = getattr(builder.aiOnnx, method)(inputs)
    assert (builder.getTensorDtypeString(made), builder.getTensorShape(made)) == expected


def test_indices_of_own_operators_have_32_bits(builder):
    """In the builder and in the session (PopART's table of operators: INT32)."""
    x, edges = builder.addInputTensor("FLOAT", [4, 2]), builder.addInputTensor("FLOAT", [3])
    sizes, opened = (builder.aiOnnx.constant(np.ones(2, kind)) for kind in (np.int32, np.uint8))
    own = builder.aiGraphcore
    indices = [
        own.splinebasis([x, sizes, opened], 1)[1],
        own.sort([x])[1],
        own.reducemedian([x])[1],
        own.bucketize([x, edges]),
    ]
    assert {builder.getTensorDtypeString(name) for name in indices} == {"int32"}
    flow = DataFlow(1, indices)
    session = InferenceSession(builder.getModelProto(), flow, DeviceManager().createCpuDevice())
    assert {session.getInfo(name).data_type() for name in indices} == {"INT32"}


GRAPHCORE_SHAPES = {
    "nllloss": (lambda g, t: g.nllloss([t["x"], t["labels"]]), [[]]),
    "nllloss none": (lambda g, t: g.nllloss([t["x"], t["labels"]], ReductionType.NoReduction), [[4]]),
    "l1loss none": (lambda g, t: g.l1loss([t["x"]], 1.0, ReductionType.NoReduction), [[4, 6]]),
    "ctcloss": (lambda g, t: g.ctcloss([t["seq"], t["targets"], t["n"], t["n"]], ReductionType.NoReduction), [[3]]),
    "beam": (lambda g, t: g.ctcbeamsearchdecoder([t["seq"], t["n"]], top_paths=2), [[3, 2], [3, 2], [3, 2, 7]]),
    "group norm": (lambda g, t: g.groupnormalization([t["image"], t["c"], t["c"]], 2), [[2, 4, 8, 8], [4], [4]]),
    "dynamic slice": (lambda g, t: g.dynamicslice([t["x"], t["o"]], [1], [2]), [[4, 2]]),
    "reshape": (lambda g, t: g.reshape(t["x"], [0, 2, -1]), [[4, 2, 3]]),
    "slice": (lambda g, t: g.slice([t["x"]], [3], [1], [0]), [[2, 6]]),
    "subsample": (lambda g, t: g.subsample([t["x"]], [2, 4]), [[2, 1]]),
    "init": (lambda g, t: g.init([2, 5], 11, 1), [[2, 5]]),
    "init axis": (lambda g, t: g.init([2, 5], 11, 1, 0), [[2, 5]]),
    "median": (lambda g, t: g.reducemedian([t["x"]], [1], 0), [[4], [4]]),
    "sort": (lambda g, t: g.sort([t["x"]]), [[4, 6], [4, 6]]),
    "scatter": (lambda g, t: g.scatterreduce([t["x"], t["i"]], 9, 0), [[9, 6]]),
    "gather": (lambda g, t: g.groupedgather([t["x"], t["labels"]]), [[4, 6]]),
    "depth to space": (lambda g, t: g.depthtospace([t["image"]], 2, "DCR"), [[2, 1, 16, 16]]),
    "normalize": (lambda g, t: g.normalize_image([t["rgb"], t["c3"], t["c3"]]), [[5, 4]]),
    "multiconv": (
        lambda g, t: g.multiconv(
            [[t["image"], t["w"]], [t["image"], t["w"]]], strides=[[1, 1], [2, 2]], pads=[[1] * 4, [0] * 4]
        ),
        [[2, 3, 8, 8], [2, 3, 3, 3]],
    ),
    "lstm": (lambda g, t: g.lstm([t["seq"], t["gates"]]), [[7, 3, 2], [3, 2]]),
    "lstm last": (lambda g, t: g.lstm([t["seq"], t["gates"]], 0), [[3, 2], [3, 2]]),
    "atan2": (lambda g, t: g.atan2([t["x"], t["row"]]), [[4, 6]]),
    "swish": (lambda g, t: g.swish([t["x"]]), [[4, 6]]),
}


@pytest.mark.parametrize("case", GRAPHCORE_SHAPES)
def test_shapes_of_graphcore_operators(builder, case):
    def inp(dtype: str, *shape: int) -> str:
        return builder.addInputTensor(dtype, list(shape))

    tensors = {
        "x": inp("FLOAT", 4, 6),
        "row": inp("FLOAT", 6),
        "labels": inp("INT32", 4),
        "o": inp("UINT32", 1),
        "i": inp("INT32", 4, 6),
        "image": inp("FLOAT", 2, 4, 8, 8),
        "c": inp("FLOAT", 4),
        "seq": inp("FLOAT", 7, 3, 5),
        "n": inp("UINT32", 3),
        "targets": inp("UINT32", 3, 4),
        "rgb": inp("FLOAT", 5, 3),
        "c3": inp("FLOAT", 3),
        "w": inp("FLOAT", 3, 4, 3, 3),
        "gates": inp("FLOAT", 4, 7, 2),
    }
    call, shapes = GRAPHCORE_SHAPES[case]
    out = call(builder.aiGraphcore, tensors)
    assert [builder.getTensorShape(o) for o in ([out] if isinstance(out, str) else out)] == shapes


def test_types_of_graphcore_operators(builder):
    x = builder.addInputTensor("FLOAT16", [4])
    assert builder.getTensorDtypeString(builder.aiGraphcore.bucketize([x, x])) == "int32"
    assert [builder.getTensorDtypeString(o) for o in builder.aiGraphcore.sort([x])] == ["float16", "int32"]
    logits = builder.addInputTensor("FLOAT16", [4, 2, 3])
    ids = builder.addInputTensor("UINT32", [2, 1])
    n = builder.addInputTensor("UINT32", [2])
    loss = builder.aiGraphcore.ctcloss([logits, ids, n, n], outDataType="FLOAT")
    assert builder.getTensorDtypeString(loss) == "float32"


@pytest.mark.parametrize(
    ("groups", "options", "text"),
    [
        ([], {}, "has no input tensors"),
        ([["x"]], {}, "must have at least two inputs - data and weights"),
        ([["x", "w", "b", "b"]], {}, "can have at most three inputs - data, weights, and bias"),
        (
            [["x", "w"]],
            {"strides": [[1, 1], [1, 1]]},
            r"number of strides parameter sets \(2\) does not match the number of input sets \(1\)",
        ),
        ([["x", "w"]], {"dilations": [[1]]}, "Length of dilations vector 1 != number of spatial dimensions 2"),
        ([["x", "w"]], {"inDilations": [[1]]}, "Length of inDilations vector 1 != number of spatial dimensions 2"),
    ],
)
def test_multiconv_checks(builder, groups, options, text):
    builder.addInputTensor("FLOAT", [1, 2, 8, 8], "x")
    builder.addInputTensor("FLOAT", [4, 2, 3, 3], "w")
    builder.addInputTensor("FLOAT", [4], "b")
    with pytest.raises(popart_exception, match=text):
        builder.aiGraphcore.multiconv(groups, **options)


@pytest.mark.parametrize("version", [6, 7, 8, 9, 10, 11])
def test_split_and_batch_norm_shapes(version):
    builder = Builder(opsets={"ai.onnx": version, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [2, 6, 4, 4])
    c = [builder.addInitializedInputTensor(np.ones(6, np.float32)) for _ in range(4)]
    assert [builder.getTensorShape(o) for o in builder.aiOnnx.split([x], 2, 1)] == [[2, 3, 4, 4]] * 2
    assert [builder.getTensorShape(o) for o in builder.aiOnnx.split([x], 2, 1, [2, 4])] == [[2, 2, 4, 4], [2, 4, 4, 4]]
    outs = builder.aiOnnx.batchnormalization([x, *c], 5)
    assert [builder.getTensorShape(o) for o in outs] == [[2, 6, 4, 4], *[[6]] * 4]


def test_computed_shapes_are_known_while_building(builder):
    x = builder.addInputTensor("FLOAT", [2, 3, 4])
    assert builder.getTensorShape(builder.reshape_const(builder.aiOnnx, [x], (6, 4))) == [6, 4]
    shape = builder.aiOnnx.shape([x])
    assert builder.getTensorShape(shape) == [3]
    assert builder.getTensorDtypeString(shape) == "int64"


@pytest.mark.parametrize("version", [6])
def test_upsample_six(version):
    builder = Builder(opsets={"ai.onnx": version, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [1, 1, 2, 3])
    out = builder.aiOnnx.upsample([x], 2.0, 3.0)
    assert builder.getTensorShape(out) == [1, 1, 4, 9]


def test_building_is_linear():
    def seconds(n: int) -> float:
        builder = Builder()
        x = builder.addInputTensor("FLOAT", [4])
        start = time.perf_counter()
        for _ in range(n):
            x = builder.aiOnnx.add([x, x])
        builder.getModelProto()
        return time.perf_counter() - start

    seconds(100)
    assert seconds(8000) / seconds(1000) < 24


UNARY = (
    "Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Identity", "LeakyRelu", "Log", "LogSoftmax", "Neg",
    "Reciprocal", "Relu", "Sigmoid", "Sign", "Sin", "Softmax", "Softplus", "Sqrt", "Tanh",
)  # fmt: skip
BINARY = ("Add", "Div", "Mul", "Pow", "Sub")


@pytest.mark.parametrize("version", [6, 7, 9, 11])
def test_types_of_single_nodes_agree_with_those_of_the_finished_model(version):
    from popart_jax.builder.table import methods

    builder = Builder(opsets={"ai.onnx": version, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [3, 4])
    available = {m.op: m.name for ms in methods("ai.onnx", version).values() for m in ms}
    outs = [getattr(builder.aiOnnx, available[op])([x]) for op in UNARY if op in available]
    outs += [getattr(builder.aiOnnx, available[op])([x, x]) for op in BINARY]
    proto = onnx.load_model_from_string(builder.getModelProto())
    del proto.graph.value_info[:]
    inferred = {v.name: v.type.tensor_type for v in onnx.shape_inference.infer_shapes(proto).graph.value_info}
    for out in outs:
        assert [d.dim_value for d in inferred[out].shape.dim] == builder.getTensorShape(out), out
        assert inferred[out].elem_type == onnx.TensorProto.FLOAT


@pytest.mark.parametrize("version", [9, 10, 11])
def test_methods_of_operators_that_onnx_has_deprecated(version):
    builder = Builder(opsets={"ai.onnx": version, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [1, 1, 2, 3])
    scales = builder.aiOnnx.constant(np.array([1, 1, 2, 2], np.float32))
    assert builder.getTensorShape(builder.aiOnnx.upsample([x, scales])) == [1, 1, 4, 6]
    index = builder.addInputTensor("INT32", [1, 1, 2, 3])
    assert builder.getTensorShape(builder.aiOnnx.scatter([x, index, x])) == [1, 1, 2, 3]


def test_a_refused_operator_does_not_stay_in_the_model():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    before = builder.getModelProto()
    with pytest.raises(popart_exception, match="invalid shape"):
        builder.aiOnnx.pad([x], pads=[0, -4, 0, 0])
    assert builder.getModelProto() == before


def test_of_an_unknown_size_the_type_is_known_all_the_same():
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, ["batch", 3])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT16, ["batch", 3])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 10)], ir_version=4)
    builder = Builder(model.SerializeToString())
    out = builder.aiGraphcore.gelu(["y"])
    assert builder.getTensorDtypeString(out) == "float16"
    with pytest.raises(popart_exception, match="is not an known tensor") as caught:
        builder.getTensorShape(out)
    assert caught.value.__notes__ == [
        f"'{out}' is there, but its shape follows from open dimensions: {{'x': '[batch,3]'}}"
    ]


def test_the_slices_of_a_reduction_have_no_size_before_the_replicas_are_known(builder):
    out = builder.aiGraphcore.replicatedreducescatter([builder.addInputTensor("FLOAT", [24])])
    assert builder.getTensorDtypeString(out) == "float32"
    with pytest.raises(popart_exception, match="is not an known tensor"):
        builder.getTensorShape(out)


def test_more_outputs_than_an_operator_of_graphcore_has(builder):
    x, c = builder.addInputTensor("FLOAT", [2, 3]), builder.addInputTensor("FLOAT", [3])
    with pytest.raises(popart_exception, match=r"an invalid number of outputs 6\. Must be between 0\.\.5"):
        builder.aiGraphcore.batchnormalization([x, c, c, c, c], 6)


@pytest.mark.processes
def test_a_builder_alone_does_not_import_jax():
    code = (
        "import sys\n"
        "from popart_jax import Builder\n"
        "builder = Builder()\n"
        "x = builder.addInputTensor('FLOAT', [2, 3, 8, 8])\n"
        "w = builder.addInputTensor('FLOAT', [4, 3, 3, 3])\n"
        "y = builder.aiOnnx.relu([builder.aiOnnx.conv([x, w])])\n"
        "assert builder.getTensorShape(y) == [2, 4, 6, 6]\n"
        "builder.aiGraphcore\n"
        "print('jax' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


NEW_OPERATOR = """
import jax.numpy as jnp
from popart_jax import Builder
from popart_jax.ops import lowers
from popart_jax.ops.builder_methods import builder_method

builder_method("Halves", "halves(args, axis:int=0) -> 2")

@lowers("Halves", domain="ai.graphcore")
def halves(x, /, *, axis=0):
    return tuple(jnp.split(x, 2, axis))

builder = Builder()
x = builder.addInputTensor("FLOAT", [4, 6])
first, second = builder.aiGraphcore.halves([x], axis=1)
print(builder.getTensorShape(second), "halves" in dir(builder.aiGraphcore))
"""


@pytest.mark.processes
def test_a_new_operator_declares_its_method_beside_its_translation():
    done = subprocess.run([sys.executable, "-c", NEW_OPERATOR], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[4, 3] True"


def test_sequences_have_no_shape():
    builder = Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    out = builder.aiOnnx.sequenceconstruct([x, x])
    with pytest.raises(popart_exception, match="is not an known tensor"):
        builder.getTensorShape(out)
