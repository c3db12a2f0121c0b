"""Whole texts of operators that are refused when a session is made: supplement 1.6, 3.5, 6.1 to 6.15."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

import popart_jax as popart

pytestmark = pytest.mark.usefixtures("popart_names")

X, ONES = "float[2,3] x", "k = Constant<value = int64[1] {1}>()"
NEED = "Need the value of the ai.onnx.{} input '{}' to determine the {}, but was unable because {}"
UNKNOWN = "[Tensor::getDataViaGraphTraversal] Could not work out tensor data for q."
SHAPE, WAY = "output shape", "slicing direction"
GATES = "float[5,2,4] x, float[1,{0},4] w, float[1,{0},3] r"
RNN, GRU, LSTM = GATES.format(3), GATES.format(9), GATES.format(12)
NEW = "Op([ai.onnx.RNN:7], inputs=[x, w, r], outputs=[y])"
IMAGE = "float[1,2,4,4] x"
RESIZED = "r = Constant<value = float[8] {0,0,0,0,0,0,0,0}>() s = Constant<value = float[4] {1,1,2,2}>()"
NORM = "float[2,3,4,4] x, float[{}] s, float[{}] b, float[{}] m, float[{}] v"
STEP = "a = Constant<value = int64[1] {0}>() e = Constant<value = int64[1] {2}>() s = Constant<value = int64[1] {2}>()"
UNALIGNED = "np broadcasting failed on 'Op 0 ({})', frames {} are not aligned"

TEXTS: list[tuple[str, str, str, int]] = [
    # 1.6
    (UNALIGNED.format("ai.onnx.MatMul:9", "[2] and [3]"), "y = MatMul(x, z)", "float[2,4,3] x, float[3,3,5] z", 10),
    *((UNALIGNED.format(f"ai.graphcore.{op}:1", "[2, 3] and [2, 2]"), f"y = ai.graphcore.{op}(x, z)",
       f"{kind}[2,3] x, {kind}[2,2] z", 10)
      for op, kind in (("Fmod", "float"), ("Atan2", "float"), ("Remainder", "float"), ("BitwiseAnd", "int32"))),
    # 3.5
    ("Window parameter values combine to give invalid spatial output shape: [-2 4]",
     "y = MaxPool<kernel_shape = [7, 1]>(x)", IMAGE, 10),
    # 6.1 to 6.4
    (NEED.format("Reshape:5", "shape", SHAPE, UNKNOWN), "y = Reshape(x, q)", f"{X}, int64[2] q", 10),
    (NEED.format("Expand:8", "shape", SHAPE, UNKNOWN), "y = Expand(x, q)", f"{X}, int64[2] q", 10),
    (NEED.format("Slice:10", "ends", SHAPE, UNKNOWN), f"{ONES} y = Slice(x, k, q)", f"{X}, int64[1] q", 10),
    (NEED.format("Slice:10", "steps", WAY, UNKNOWN), f"{ONES} y = Slice(x, k, k, k, q)", f"{X}, int64[1] q", 10),
    (NEED.format("Reshape:5", "shape", SHAPE, "the tensor `k` is not the correct type, it is FLOAT"),
     "k = Constant<value = float[2] {3,2}>() y = Reshape(x, k)", X, 10),
    ("The tensor `q` does not have data", "y, z = TopK(x, q)", f"{X}, int64[1] q", 10),
    ("The tensor `q` does not have data", "y = Resize(x, q)", f"{IMAGE}, float[4] q", 10),
    ("Scales tensor has no data", "y = Upsample(x, q)", f"{IMAGE}, float[4] q", 9),
    ("'Repeats' tensor `k' is not INT64, it is INT32", "k = Constant<value = int32[2] {1,2}>() y = Tile(x, k)", X, 10),
    ("'Repeats' tensor `k' should have one element for each dimension of the data tensor", f"{ONES} y = Tile(x, k)", X,
     10),
    ("slice op input tensor x, rank 2, axis -3 is out of range", "y = Slice<starts=[0], ends=[1], axes=[-3]>(x)", X, 9),
    (("Invalid input shape in BaseSliceOp::getSlices. The input shape has rank 2, but axis = 2. axis must be less than "
     "the input shape's rank. This error is for Op 0 (ai.onnx.Slice:1)."),
     "y = Slice<starts=[0], ends=[1], axes=[2]>(x)", X, 9),
    (("Please enable pattern \"Slice2SliceSubsample\" first. Invalid 'step' value, 2, in BaseSliceOp::getSlices. Only "
     "steps of '1' or '-1' are supported. This error is for Op 0 (ai.onnx.Slice:10)."),
     f"{STEP} y = Slice(x, a, e, a, s)", X, 10),
    (("Input 1 of 2 to concat does not have matching output rank. Input 1 has rank 1 ([3]) while the output has rank 2 "
     "([2 3]).Concat axis 0."), "y = Concat<axis = 0>(x, z)", f"{X}, float[3] z", 10),
    (("All input tensor types to a concat operation must be equal. This is for op Op(ai.onnx.Concat:4, inputs=[x, z], "
     "outputs=[y])"), "y = Concat<axis = 0>(x, z)", f"{X}, int32[2,3] z", 10),
    ("Tensor x ([2 3]) may not be split into equally sized parts along axis 1", "y, z = Split<axis = 1>(x)", X, 10),
    ("Split op input tensor x, rank 2, axis -3 is out of range", "y, z = Split<axis = -3>(x)", X, 10),
    ("Inputs to ai.onnx.Sum:6 do not all the same type & shape, with opid.version = 6", "y = Sum(x, z)",
     f"{X}, float[1,3] z", 7),
    (("Failure in BasePadOp::runtimeConfirmShapes, for 0 (ai.onnx.Pad:2). This with pads of size 3, and input tensor "
      "of rank 2. Expected pads to be exactly 2x the unput Tensor's rank. "), "y = Pad<pads = [1, 1, 1]>(x)", X, 10),
    # 6.5 and 6.6
    ("GatherOp::setup axis = 3 is outside the acceptable range [-2, 1]", "y = Gather<axis = 3>(x, z)",
     f"{X}, int32[2] z", 10),
    ("CumSumOpx op, 'axis' value out of range.", "k = Constant<value = int32 {4}>() y = CumSum(x, k)", X, 11),
    ("CumSum op, 'exclusive' attributes must be 0 or 1.",
     "k = Constant<value = int32 {0}>() y = CumSum<exclusive = 2>(x, k)", X, 11),
    ("For CumSum op Op(ai.onnx.CumSum:11, inputs=[x, q], outputs=[y]), the axis tensor q does not have data.",
     "y = CumSum(x, q)", f"{X}, int32 q", 11),
    ("Cannot compute BaseSortOp on axis -3 when input rank is 2, invalid BaseSortOp 0 (ai.graphcore.Sort:1).",
     "y, z = ai.graphcore.Sort<axis = -3>(x)", X, 10),
    ("Cannot compute ArgExtremaOp on axis 2 when input rank is 2, invalid ArgExtremaOp 0 (ai.onnx.ArgMax:1).",
     "y = ArgMax<axis = 2>(x)", X, 10),
    # 6.7 and 6.8
    ("Unexpected ReductionType string, foo. Cannot convert to ReductionType",
     'y = ai.graphcore.L1<lambda = 0.5, reduction = "foo">(x)', X, 10),
    ("no attribute key lambda", 'y = ai.graphcore.L1<reduction = "Sum">(x)', X, 10),
    ("Unsupport matmul serialisation mode rows",
     'y = MatMul<__serialize_matmul_mode = "rows", __serialize_matmul_factor = 2>(x, z)', f"{X}, float[3,2] z", 10),
    ("Invalid auto_pad provied: FOO", 'y = ConvTranspose<auto_pad = "FOO">(x, w)', f"{IMAGE}, float[2,1,3,3] w", 10),
    ("Invalid auto_pad provied: FOO", 'y = Conv<auto_pad = "FOO">(x, w)', f"{IMAGE}, float[1,2,3,3] w", 10),
    ("LRN requires size to be >= 1. size is 0", "y = LRN<size = 0>(x)", IMAGE, 10),
    # 6.9
    *((f"expected shape of batch norm input tensor {name} ([4]) to be [3] to match dimension 1 of X ([2 3 4 4])",
       "y = BatchNormalization(x, s, b, m, v)", NORM.format(*[3] * i, *[4] * (4 - i)), 10)
      for i, name in enumerate(("scale", "B", "mean", "var"))),
    # 6.10
    (f"{NEW} only supports 1 activation, 2 were specified", 'y = RNN<activations = ["Tanh", "Tanh"]>(x, w, r)', RNN,
     10),
    (f"Attribute `clip' of {NEW} is not supported", "y = RNN<clip = 0.0>(x, w, r)", RNN, 10),
    ("Too many activations (2) specified. Number of activations should be 1 or 3.",
     'y = LSTM<hidden_size = 3, activations = ["Sigmoid", "Tanh"]>(x, w, r)', LSTM, 10),
    (("hidden_size attribute passed to Op(ai.onnx.LSTM:7, inputs=[x, w, r], outputs=[y]) (5) does not match hidden "
     "size calculated from recurrenceWeights tensor (3)."), "y = LSTM<hidden_size = 5>(x, w, r)", LSTM, 10),
    ("GRUOp attribute `activation_alpha' is not supported", "y = GRU<activation_beta = [0.5]>(x, w, r)", GRU, 10),
    ("GRUOp attribute `input_forget' must be set to 0", "y = GRU<input_forget = 1>(x, w, r)", GRU, 10),
    # 6.11 and 6.12
    *((f"ai.onnx.{op}:1 : Unsupported data type requested: INT32", f"y = {op}<dtype = 6{more}>({taken})", X, 10)
      for op, more, taken in (("RandomNormal", ", shape = [2]", ""), ("RandomUniformLike", "", "x"))),
    ("ai.onnx.Dropout:10 ratio value 1.5 is not valid. Please use a value in the interval [0,1)",
     "y = Dropout<ratio = 1.5>(x)", X, 10),
    ("The number of dimensions of the resize op scales (1) must match the number of dimensions of the input (4)",
     "s = Constant<value = float[1] {2}>() y = Resize(x, s)", IMAGE, 10),
    ("Can not import scales from tensor of type int64", f"{ONES} y = Resize(x, k)", IMAGE, 10),
    ("Resize op has no input for `size` or `scales`. One of these tensors needs to be present.",
     f'{RESIZED} y = Resize(x, r, "")', IMAGE, 11),
    ("ai.onnx.Resize:11: Unsupported value '1' for attribute 'exclude_outside'. Acceptable values are [0]",
     f"{RESIZED} y = Resize<exclude_outside = 1>(x, r, s)", IMAGE, 11),
    ("Unrecognised resize nearest mode foo", f'{RESIZED} y = Resize<nearest_mode = "foo">(x, r, s)', IMAGE, 11),
    # 6.14 and 6.15
    ("The size of input rois must be 2", "y = RoiAlign(x, z, n)", f"{IMAGE}, float[2,4,1] z, int32[2] n", 10),
    ("no attribute key axis", "y = Concat(x, x)", X, 10),
]  # fmt: skip


def session(nodes: str, inputs: str, opset: int) -> popart.InferenceSession:
    head = f'<ir_version: 4, opset_import: ["" : {opset}, "ai.graphcore" : 1]>'
    model: onnx.ModelProto = parser.parse_model(f"{head} g ({inputs}) => (float[q] y) {{ {nodes} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    return popart.InferenceSession(
        model.SerializeToString(), flow, popart.DeviceManager().createCpuDevice(),
        patterns=popart.Patterns(popart.PatternsLevel.Minimal),
    )  # fmt: skip


@pytest.mark.parametrize("row", TEXTS, ids=[f"{i}-{row[0][:40]}" for i, row in enumerate(TEXTS)])
def test_refused_when_a_session_is_made(row: tuple[str, str, str, int]) -> None:
    text, nodes, inputs, opset = row
    with pytest.raises(popart.popart_exception) as caught:
        session(nodes, inputs, opset)
    assert caught.value.args[0] == text


@pytest.mark.parametrize(("op", "kind"), [("Sqrt", "int32"), ("Sqrt", "bool"), ("Exp", "int32"), ("And", "float")])
def test_types_that_no_device_computes_are_refused_when_it_is_prepared(op: str, kind: str) -> None:
    made = session(f"y = {op}(x{', x' if op == 'And' else ''})", f"{kind}[2] x", 10)
    assert made.getInfo("y").data_type_lcase() == ("bool" if op == "And" else kind)
    with pytest.raises(popart.popart_exception):
        made.prepareDevice()
