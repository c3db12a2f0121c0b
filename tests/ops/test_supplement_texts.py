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

LOOPED = "body = b (int64 i, bool c, float[2,3] v) => (bool c, float[2,3] w) { w = Add(v, v) }"

TEXTS: list[tuple[str, str, str, int]] = [
    # 1.6
    (UNALIGNED.format("ai.onnx.MatMul:9", "[2] and [3]"), "y = MatMul(x, z)", "float[2,4,3] x, float[3,3,5] z", 10),
    (UNALIGNED.format("ai.onnx.PRelu:9", "[2, 3] and [2, 2]"), "y = PRelu(x, z)", f"{X}, float[2,2] z", 10),
    (UNALIGNED.format("ai.onnx.Where:9", "[2, 2] and [2, 3]"), "y = Where(c, x, x)", f"{X}, bool[2,2] c", 10),
    *((f"np broadcasting failed on Op 0 ({op}), incompatible types {types} (shapes [2 3] and [2 3])",
       f"y = {op[8:].split(':')[0]}(x, z)", f"{kind}[2,3] x, int32[2,3] z", 10)
      for op, kind, types in (("ai.onnx.PRelu:9", "float16", "FLOAT16 and INT32"),
                              ("ai.onnx.Sum:8", "float", "FLOAT and INT32"),
                              ("ai.onnx.And:7", "bool", "BOOL and INT32"))),
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
    (UNKNOWN, f"y = Loop<{LOOPED}>(q, , x)", f"{X}, int64 q", 10),
    (UNKNOWN.replace("q.", "m."), f"m = Add(q, q) y = Loop<{LOOPED}>(m, , x)", f"{X}, int64 q", 10),
    ("[LoopOp] unsupported trip count data type int8", f"m = Constant<value = int8 {{2}}>() y = Loop<{LOOPED}>(m, , x)",
     X, 10),
    # 6.5 and 6.6
    ("GatherOp::setup axis = 3 is outside the acceptable range [-2, 1]", "y = Gather<axis = 3>(x, z)",
     f"{X}, int32[2] z", 10),
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
    ("Can not import scales from tensor of type int64", f'{ONES} y = Resize(x, "", k)', IMAGE, 11),
    ("Unrecognised resize mode bilinear", f'{RESIZED} y = Resize<mode = "bilinear">(x, r, s)', IMAGE, 11),
    ("Resize op has no input for `size` or `scales`. One of these tensors needs to be present.",
     f'{RESIZED} y = Resize(x, r, "")', IMAGE, 11),
    ("ai.onnx.Resize:11: Unsupported value '1' for attribute 'exclude_outside'. Acceptable values are [0]",
     f"{RESIZED} y = Resize<exclude_outside = 1>(x, r, s)", IMAGE, 11),
    ("ai.onnx.Resize:11: Unsupported value '2' for attribute 'exclude_outside'. Acceptable values are [0]",
     f"{RESIZED} y = Resize<exclude_outside = 2>(x, r, s)", IMAGE, 11),
    ("Unrecognised resize nearest mode foo", f'{RESIZED} y = Resize<nearest_mode = "foo">(x, r, s)', IMAGE, 11),
    # 6.14 and 6.15
    ("The size of input rois must be 2", "y = RoiAlign(x, z, n)", f"{IMAGE}, float[2,4,1] z, int32[2] n", 10),
    ("no attribute key axis", "y = Concat(x, x)", X, 10),
    # what the rows above leave out, in the order of the supplement
    ("Reduce input rank must be greater than 0, invalid Reduce 0 (ai.onnx.ReduceSum:1).",
     "y = ReduceSum<axes = [0]>(x)", "float x", 10),
    ("Axis 3 is out of acceptable range [-2, 1]", "y = ReduceMax<axes = [3]>(x)", X, 10),
    ("Axis -3 is out of acceptable range [-2, 1]", "y, z = ai.graphcore.ReduceMedian<axes = [-3]>(x)", X, 10),
    ("Partial broadcasting of indices is not currently supported.",
     "y = ai.graphcore.ScatterReduce<axis_size = 3, axis = 0>(x, z)", "float[2,3,4] x, int32[2,3,1] z", 10),
    ("'Repeats' tensor `k' should be rank 1 in TileOp constructor",
     "k = Constant<value = int64[1,2] {1,2}>() y = Tile(x, k)", X, 10),
    ("'Repeats' tensor `k' has invalid value `0' at index 1",
     "k = Constant<value = int64[2] {1,0}>() y = Tile(x, k)", X, 10),
    ("The 'Repeats' Tensor `q' must be of type Constant", "y = Tile(x, q)", f"{X}, int64[2] q", 10),
    ("Dimension, -2, of new shape for Reshape cannot be smaller than -1.",
     "k = Constant<value = int64[2] {-2,3}>() y = Reshape(x, k)", X, 10),
    ("Incompatible inferred dimension, not whole number.",
     "k = Constant<value = int64[2] {-1,4}>() y = Reshape(x, k)", X, 10),
    ("shape input to ReshapeOp can only use -1 to specify one unknown dimension",
     "k = Constant<value = int64[2] {-1,-1}>() y = Reshape(x, k)", X, 10),
    ("invalid axis 3 in flattenOpFactory", "y = Flatten<axis = 3>(x)", X, 10),
    ("Expand shape constraint: corresponding dimensions must have the same value or one of them must be 1",
     "k = Constant<value = int64[2] {2,4}>() y = Expand(x, k)", X, 10),
    ("Rank of permutation tensor [1 0 2], rank 3 must be equal to rank of input tensor, shape [2 3], rank 2.",
     "y = Transpose<perm=[1,0,2]>(x)", X, 10),
    ("ReverseOp '0 (ai.graphcore.Reverse:1)' invalid dimension '-1'. Only positive dimensions are supported",
     "y = ai.graphcore.Reverse<dimensions=[-1]>(x)", X, 10),
    ("ReverseOp '0 (ai.graphcore.Reverse:1)' invalid dimension '2' for input tensor of rank 2",
     "y = ai.graphcore.Reverse<dimensions=[2]>(x)", X, 10),
    ("Dimension 1 appears multiple times in the list of dimensions of ReverseOp '0 (ai.graphcore.Reverse:1)'",
     "y = ai.graphcore.Reverse<dimensions=[1,1]>(x)", X, 10),
    ("Attribute 'axis' of ConcatOp, 2, is outside of acceptable range [-2, 1]", "y = Concat<axis=2>(x, x)", X, 10),
    ("Number of outputs does not match number of requested splits", "y, z = Split<axis=1, split=[1,1,1]>(x)", X, 10),
    ("Axis 2 is out of range for tensor with 2 dims", "y, z = Split<axis=2>(x)", X, 10),
    ("splits 5 invalid for dimension of size 3", "y, z = Split<axis=1, split=[2,3]>(x)", X, 10),
    ("Strides invalid. 0 stride at index 1", "y = ai.graphcore.Subsample<strides=[1,0]>(x)", X, 10),
    ("Invalid rank for indices input. Indices rank 3 must be <= data input rank 2.",
     "y = ai.graphcore.ScatterReduce<axis_size = 3, axis = 0>(x, z)", f"{X}, int32[2,3,1] z", 10),
    ("ScatterReduceOp::setup axis = 2 is outside the acceptable range [-2, 1]",
     "y = ai.graphcore.ScatterReduce<axis_size = 3, axis = 2>(x, z)", f"{X}, int32[2,3] z", 10),
    ("ScatterReduceOp axis_size = 0 is not valid: must be > 0.",
     "y = ai.graphcore.ScatterReduce<axis_size = 0, axis = 0>(x, z)", f"{X}, int32[2,3] z", 10),
    ("ScatterReduceOp group_size = 0 is not valid: must be > 0.",
     "y = ai.graphcore.ScatterReduce<axis_size = 3, axis = 0, group_size=0>(x, z)", f"{X}, int32[2,3] z", 10),
    ("ScatterReduceOp enable_index_broadcast = 2 is not valid: must be either 0 or 1.",
     "y = ai.graphcore.ScatterReduce<axis_size = 3, axis = 0, enable_index_broadcast=2>(x, z)",
     f"{X}, int32[2,3] z", 10),
    ("Failed to expand 'indices' shape [4 3] to match 'src' shape [2 3] using reduction axis = 0.",
     "y = ai.graphcore.ScatterReduce<axis_size = 3, axis = 0>(x, z)", f"{X}, int32[4,3] z", 10),
    ("The depth Tensor `q' does not have data", "y = OneHot(z, q, v)", "int32[2] z, int32 q, float[2] v", 10),
    ("The depth tensor should be rank 0 in OneHot",
     "k = Constant<value = int64[2] {1,3}>() y = OneHot(z, k, v)", "int32[2] z, float[2] v", 10),
    ("CumSum op, 'reverse' attributes must be 0 or 1.",
     "k = Constant<value = int32 {0}>() y = CumSum<reverse = 2>(x, k)", X, 11),
    ("CumSum op, 'axis' tensor must have one element.",
     "k = Constant<value = int32[2] {0,1}>() y = CumSum(x, k)", X, 11),
    ("BucketizeOp::setup The boundaries tensor is not a 1-D tensor. The boundaries tensor rank = 2.",
     "y = ai.graphcore.Bucketize(x, z)", f"{X}, float[2,3] z", 10),
    (("BucketizeOp::setup The input and boundaries tensors have different data types. The input tensor data type "
     "= float32. The boundaries tensor data type = int32."),
     "y = ai.graphcore.Bucketize(x, z)", f"{X}, int32[3] z", 10),
    ("BucketizeOp right = 2 is not valid: must be either 0 or 1.",
     "y = ai.graphcore.Bucketize<right=2>(x, z)", f"{X}, float[3] z", 10),
    ("ArgExtremaOp input rank must be greater than 0, invalid ArgExtremaOp 0 (ai.onnx.ArgMin:1).",
     "y = ArgMin<axis=0>(x)", "float x", 10),
    ("BaseSortOp input rank must be greater than 0, invalid BaseSortOp 0 (ai.graphcore.Sort:1).",
     "y, z = ai.graphcore.Sort<axis=0>(x)", "float x", 10),
    ("Cannot take top-4 on dim of size 1, invalid Op 0 (ai.onnx.TopK:10)",
     "k = Constant<value = int64[1] {4}>() y, z = TopK<axis=1>(x, k)", X, 10),
    ("LogSoftmax axis, 2, is outside of acceptable range [-2, 1]", "y = LogSoftmax<axis=2>(x)", X, 10),
    ("Invalid shape for prob tensor (FLOAT   []) in Op 0 (ai.graphcore.Nll:1). ",
     'y = ai.graphcore.Nll<reduction="Sum">(x, z)', "float x, int32 z", 10),
    (("The label tensor (INT32   [3]) must have shape [2] to match all but the final dimension of the "
     "probabilities tensor (FLOAT   [2 3]) in Op 0 (ai.graphcore.Nll:1). "),
     'y = ai.graphcore.Nll<reduction="Sum">(x, z)', f"{X}, int32[3] z", 10),
    (("Expected the label tensor NllOp to be an integer data type (fixed point), not the case for input with "
     "info: FLOAT   [2]. This error for Op 0 (ai.graphcore.Nll:1). "),
     'y = ai.graphcore.Nll<reduction="Sum">(x, z)', f"{X}, float[2] z", 10),
    ("L1Op not valid for rank-0 tensor (scalar)", 'y = ai.graphcore.L1<reduction="Sum", lambda=0.5>(x)', "float x", 10),
    (("Unsupported shape for input 0 of Op 0 (ai.graphcore.Ctc:1) (expected a 'logarithmized probabilities' "
     "tensor of rank 3, got a tensor with shape [4 2])."),
     'y = ai.graphcore.Ctc<reduction="Sum", blank=0, outDataType="FLOAT">(x, t, a, b)',
     "float[4,2] x, uint32[2,2] t, uint32[2] a, uint32[2] b", 10),
    (("Unsupported data type for input 0 of Op 0 (ai.graphcore.Ctc:1) (expected a 'logarithmized probabilities' "
     "tensor comprised of floating point data, got int32)."),
     'y = ai.graphcore.Ctc<reduction="Sum", blank=0, outDataType="FLOAT">(x, t, a, b)',
     "int32[4,2,3] x, uint32[2,2] t, uint32[2] a, uint32[2] b", 10),
    (("Unsupported shape for input 1 of Op 0 (ai.graphcore.Ctc:1) (expected a 'targets' tensor of rank 2 with the "
     "size of the first dimension being 2 to match the size of the second dimension of the 'logarithmized "
     "probabilities' tensor, got [4 2 3])."),
     'y = ai.graphcore.Ctc<reduction="Sum", blank=0, outDataType="FLOAT">(x, t, a, b)',
     "float[4,2,3] x, uint32[3,2] t, uint32[2] a, uint32[2] b", 10),
    (("Unsupported data type for input 0 of Op 0 (ai.graphcore.Ctc:1) (expected a 'targets' tensor of type uint32 "
     "or type int32, got float32)."),
     'y = ai.graphcore.Ctc<reduction="Sum", blank=0, outDataType="FLOAT">(x, t, a, b)',
     "float[4,2,3] x, float[2,2] t, uint32[2] a, uint32[2] b", 10),
    (("Unsupported shape for input 2 of Op 0 (ai.graphcore.Ctc:1) (expected a 'input lengths' tensor of shape "
     "[2], got [3])."),
     'y = ai.graphcore.Ctc<reduction="Sum", blank=0, outDataType="FLOAT">(x, t, a, b)',
     "float[4,2,3] x, uint32[2,2] t, uint32[3] a, uint32[2] b", 10),
    (("Unsupported data type for input 2 of Op 0 (ai.graphcore.Ctc:1) (expected a 'input lengths' tensor of type "
     "uint32 or type int32, got float32)."),
     'y = ai.graphcore.Ctc<reduction="Sum", blank=0, outDataType="FLOAT">(x, t, a, b)',
     "float[4,2,3] x, uint32[2,2] t, float[2] a, uint32[2] b", 10),
    (("Unsupported shape for input 3 of Op 0 (ai.graphcore.Ctc:1) (expected a 'target lengths' tensor of shape "
     "[2], got [3])."),
     'y = ai.graphcore.Ctc<reduction="Sum", blank=0, outDataType="FLOAT">(x, t, a, b)',
     "float[4,2,3] x, uint32[2,2] t, uint32[2] a, uint32[3] b", 10),
    (("Unsupported data type for input 3 of Op 0 (ai.graphcore.Ctc:1) (expected a 'target lengths' tensor of type "
     "uint32 or type int32, got float32)."),
     'y = ai.graphcore.Ctc<reduction="Sum", blank=0, outDataType="FLOAT">(x, t, a, b)',
     "float[4,2,3] x, uint32[2,2] t, uint32[2] a, float[2] b", 10),
    (("Unsupported shape for input 1 of Op 0 (ai.graphcore.CtcBeamSearchDecoder:1) (expected a 'data lengths' "
     "tensor of shape [2], got [3])."),
     "y, z, w = ai.graphcore.CtcBeamSearchDecoder<beam_width=2, top_paths=1, blank=0>(x, a)",
     "float[4,2,3] x, uint32[3] a", 10),
    (("Unsupported data type for input 1 of Op 0 (ai.graphcore.CtcBeamSearchDecoder:1) (expected a 'input "
     "lengths' tensor of type uint32, got int32)."),
     "y, z, w = ai.graphcore.CtcBeamSearchDecoder<beam_width=2, top_paths=1, blank=0>(x, a)",
     "float[4,2,3] x, int32[2] a", 10),
    ("Op(ai.onnx.MatMul:9, inputs=[x, z], outputs=[y]) doesn't support scalar tensor x as the lhs input",
     "y = MatMul(x, z)", "float x, float[2,2] z", 10),
    ("Op(ai.onnx.MatMul:9, inputs=[x, z], outputs=[y]) doesn't support scalar tensor z as the rhs input",
     "y = MatMul(x, z)", f"{X}, float z", 10),
    ("Op(ai.onnx.MatMul:9, inputs=[x, z], outputs=[y]) contracting dimensions unequal: lhs 'x' [2 3], rhs 'z' [2 3]",
     "y = MatMul(x, z)", f"{X}, float[2,3] z", 10),
    ("Invalid serialisation factor 0. Serialisation factor must be a non-zero positive integer.",
     'y = MatMul<__serialize_matmul_mode = "input_channels", __serialize_matmul_factor = 0>(x, z)',
     f"{X}, float[3,2] z", 10),
    (("Invalid serialisation factor 4 for input channels dim 2. input_channels dim should be a multiple of the "
     "serialisation factor "),
     'y = MatMul<__serialize_matmul_mode = "input_channels", __serialize_matmul_factor = 4>(x, z)',
     f"{X}, float[3,2] z", 10),
    (("Invalid serialisation factor 2 for reducing dimension 3. reducing_dim dim should be a multiple of the "
     "serialisation factor "),
     'y = MatMul<__serialize_matmul_mode = "reducing_dim", __serialize_matmul_factor = 2>(x, z)',
     f"{X}, float[3,2] z", 10),
    (("Invalid serialisation factor 3 for output channels dim 2. output_channels dim should be a multiple of the "
     "serialisation factor "),
     'y = MatMul<__serialize_matmul_mode = "output_channels", __serialize_matmul_factor = 3>(x, z)',
     f"{X}, float[3,2] z", 10),
    ("group attribute in Op(ai.onnx.Conv:1, inputs=[x, w], outputs=[y]) must be greater than zero",
     "y = Conv<group=0>(x, w)", f"{IMAGE}, float[1,2,3,3] w", 10),
    (("Invalid value for group (2) in Op(ai.onnx.Conv:1, inputs=[x, w], outputs=[y]). number of input channels "
     "(2) / group (2) should be equal to the weight inputs second dimension (2)"),
     "y = Conv<group=2>(x, w)", f"{IMAGE}, float[2,2,3,3] w", 10),
    (("Unexpected number of channels in the input tensor: 2. Given non-transposed weight tensor of shape [3 2 3 "
     "3], transposed convolution expects input tensor of size [1 2 4 4] to have 3 channels."),
     "y = ConvTranspose(x, w)", f"{IMAGE}, float[3,2,3,3] w", 10),
    ("Non default value for dilations is not supported.",
     "y = ConvTranspose<dilations=[2,2]>(x, w)", f"{IMAGE}, float[2,2,3,3] w", 10),
    ("`VALID` type for auto_pad cannot be used if the `output_shape` is also set",
     'y = ConvTranspose<auto_pad="VALID", output_shape=[6,6]>(x, w)', f"{IMAGE}, float[2,2,3,3] w", 10),
    ("invalid kernel_shape, not same rank as the tensor operated on", "y = MaxPool<kernel_shape=[2]>(x)", IMAGE, 10),
    ("`count_include_pad` is not supported", "y = AveragePool<kernel_shape=[2,2], count_include_pad=1>(x)", IMAGE, 10),
    ("storage_order != 0, not supported", "y = MaxPool<kernel_shape=[2,2], storage_order=1>(x)", IMAGE, 10),
    ("MaxPool has dilations [2 2]. Dilations of value other than 1 are currently not supported.",
     "y = MaxPool<kernel_shape=[2,2], dilations=[2,2]>(x)", IMAGE, 10),
    ("batch norm requires X to have a rank >= 3.  x has rank 2",
     "y = BatchNormalization(x, s, s, s, s)", f"{X}, float[3] s", 10),
    (("expected shape of batch norm input tensor scale ([3]) to be [3 4 4] to match all but the first dimension "
     "of X ([2 3 4 4])"),
     "y = BatchNormalization<spatial=0>(x, s, s, s, s)", "float[2,3,4,4] x, float[3] s", 7),
    ("Activation type 'Foo' is not supported for Op([ai.onnx.RNN:7], inputs=[x, w, r], outputs=[y])",
     'y = RNN<activations = ["Foo"]>(x, w, r)', RNN, 10),
    ("Attribute `activation_alpha' of Op([ai.onnx.RNN:7], inputs=[x, w, r], outputs=[y]) is not supported",
     "y = RNN<activation_alpha = [0.5]>(x, w, r)", RNN, 10),
    ("Attribute `activation_beta' of Op([ai.onnx.RNN:7], inputs=[x, w, r], outputs=[y]) is not supported",
     "y = RNN<activation_beta = [0.5]>(x, w, r)", RNN, 10),
    ("Op([ai.onnx.RNN:7], inputs=[x, w, r], outputs=[y]) only supports `forward' direction",
     'y = RNN<direction = "reverse">(x, w, r)', RNN, 10),
    ("Op([ai.onnx.RNN:7], inputs=[x, w, r], outputs=[y]) only supports 1 activation, 0 were specified",
     "y = RNN<activations: strings = []>(x, w, r)", RNN, 10),
    ("LSTMOp attribute `direction' must be unset or `forward'", 'y = LSTM<direction = "reverse">(x, w, r)', LSTM, 10),
    ("LSTMOp attribute `activation_alpha' is not supported", "y = LSTM<activation_alpha = [0.5]>(x, w, r)", LSTM, 10),
    ("LSTMOp attribute `activation_beta' is not supported", "y = LSTM<activation_beta = [0.5]>(x, w, r)", LSTM, 10),
    ("LSTMOp attribute `input_forget' must be set to 0", "y = LSTM<input_forget = 1>(x, w, r)", LSTM, 10),
    ("Activation type 'Foo' is not supported", 'y = LSTM<hidden_size=3, activations = ["Foo","Foo","Foo"]>(x, w, r)',
     LSTM, 10),
    ("LSTM activations must be the same for output and forget gates.",
     'y = LSTM<hidden_size=3, activations = ["Sigmoid","Tanh","Relu"]>(x, w, r)',
     LSTM, 10),
    ("Popart does not support peephole connections", 'y = LSTM<hidden_size=3>(x, w, r, "", "", "", "", p)',
     f"{LSTM}, float[1,9] p", 10),
    ("Invalid rank for sequence length tensor : 2 != 1",
     'y = LSTM<hidden_size=3>(x, w, r, "", p)', f"{LSTM}, int32[2,1] p", 10),
    ("Incorrect sequence len shape : [3] != [2]", 'y = LSTM<hidden_size=3>(x, w, r, "", p)', f"{LSTM}, int32[3] p", 10),
    ("GRUOp attribute `activations' is not supported", 'y = GRU<activations=["Sigmoid","Tanh"]>(x, w, r)', GRU, 10),
    *((f"{op}Op attribute `clip' is not supported", f"y = {op}<clip={clip}>(x, w, r)", gates, 10)
      for op, gates in (("GRU", GRU), ("LSTM", LSTM)) for clip in (1.0, 0.0)),
    *((f"Bad {what} shape {index}, should be {shape}", "y, c = ai.graphcore.LSTM(x, w, b)",
       f"float[5,2,4] x, float[{weights}] w, float[{bias}] b", 10)
      for what, index, shape, weights, bias in (("weights", 1, "[4 7 3]", "4,8,3", "4,3"),
                                                ("weights", 1, "[4 11 7]", "4,7", "4,3"),
                                                ("bias", 2, "[4 3]", "4,7,3", "12"))),
    *((f"Unexpected number of {one} parameters for convolution op '0 (ai.graphcore.MultiConv:1)'",
       f'y, z = ai.graphcore.MultiConv<numConvs=2, {one}s=[1,1,1]>(x, w, "", x, w)', f"{IMAGE}, float[1,2,3,3] w", 10)
      for one in ("stride", "pad", "dilation")),
    ("ai.onnx.RandomNormal:1: Optional seed attribute is not supported. Use session::setRandomSeed instead.",
     "y = RandomNormal<shape=[2], seed=1.0>()", X, 10),
    (("ShapedDropout: incompatible input tensor and dropout shape. ai.graphcore.ShapedDropout:1 is configured "
     "with shape [2 2] which is not broadcastable to the input tensor with shape [2 3]."),
     "y = ai.graphcore.ShapedDropout<shape=[2,2], ratio=0.5>(x)", X, 10),
    ("ResizeOp, length of sizes (3) does not match the rank of input shape (4)",
     f'{RESIZED} n = Constant<value = int64[3] {{1,1,2}}>() y = Resize(x, r, "", n)',
     IMAGE, 11),
    ("Unrecognised resize mode foo", f'{RESIZED} y = Resize<mode="foo">(x, r, s)', IMAGE, 11),
    ("Unrecognised resize coordinate transformation mode foo",
     f'{RESIZED} y = Resize<coordinate_transformation_mode="foo">(x, r, s)',
     IMAGE, 11),
    ("Unrecognised upsample mode foo",
     's = Constant<value = float[4] {1,1,2,2}>() y = Upsample<mode="foo">(x, s)', IMAGE, 9),
    ("Upsample op only supports the mode 'nearest' at this time.",
     's = Constant<value = float[4] {1,1,2,2}>() y = Upsample<mode="linear">(x, s)', IMAGE, 9),
    ("[normalizeImageOpCreator] scale should be greater than 0.",
     "y = ai.graphcore.NormalizeImage<scale=0.0>(x, o, o)", f"{X}, float[3] o", 9),
    ("The size of input data must be 4", "y = RoiAlign(x, z, n)", "float[2,4,4] x, float[2,4] z, int32[2] n", 10),
    ("The size of input batch_index must be 1", "y = RoiAlign(x, z, n)", f"{IMAGE}, float[2,4] z, int32[2,1] n", 10),
    ("SplineBasisOp degree = 4 is not valid: must be between 0 and 3.",
     "y, z = ai.graphcore.SplineBasis<degree=4>(x, k, o)", "float[4,2] x, int32[2] k, uint8[2] o", 10),
    ("SplineBasisOp::setup: pseudo tensor is not a 2-D tensor. Pseudo tensor rank = 1.",
     "y, z = ai.graphcore.SplineBasis<degree=1>(x, k, o)", "float[4] x, int32[2] k, uint8[2] o", 10),
    ("SplineWeightingOp::setup: input tensor is not a 2-D tensor. Input tensor rank = 1.",
     "y = ai.graphcore.SplineWeighting(x, w, b, i)", "float[4] x, float[9,3,2] w, float[4,2] b, int32[4,2] i", 10),
    ("SplineWeightingOp::setup: weight tensor is not a 3-D tensor. Weight tensor rank = 2.",
     "y = ai.graphcore.SplineWeighting(x, w, b, i)", "float[4,3] x, float[9,3] w, float[4,2] b, int32[4,2] i", 10),
    (("SplineWeightingOp::setup: The input and weight tensors have different data types. The input tensor data "
     "type = float32. The weight tensor data type = float16."),
     "y = ai.graphcore.SplineWeighting(x, w, b, i)", "float[4,3] x, float16[9,3,2] w, float[4,2] b, int32[4,2] i", 10),
    ("Can not convert int 2 to bool. Value needs to be 0 or 1",
     'y = ai.graphcore.Nll<reduction="Sum", inputIsLogProbability=2>(x, z)', f"{X}, int32[2] z", 10),
    *(("Can not convert int 2 to bool. Value needs to be 0 or 1", f"y = ai.graphcore.{op}", f"{X}, uint32[1] k", 10)
      for op in ("PrintTensor<print_gradient = 2>(x)", "DynamicZero<axes = [0], sizes = [1], noOverlap = 2>(x, k)")),
    ("np broadcasting failed on 'Op 0 (ai.onnx.Add:7)', frames [2, 3] and [2, 2] are not aligned",
     "y = Add(x, z)", f"{X}, float[2,2] z", 10),
    ("np broadcasting failed on Op 0 (ai.onnx.Add:7), incompatible types FLOAT and FLOAT16 (shapes [2 3] and [2 3])",
     "y = Add(x, z)", f"{X}, float16[2,3] z", 10),
    ("np broadcasting failed on 0 (ai.onnx.Mul:7), incompatible types FLOAT and FLOAT16 (shapes [2 3] and [2 3])",
     "y = Mul(x, z)", f"{X}, float16[2,3] z", 10),
    ("np broadcasting failed on 'Op 0 (ai.onnx.Where:9)', frames [2, 3] and [2, 2] are not aligned",
     "y = Where(c, x, z)", f"{X}, float[2,2] z, bool[2,3] c", 10),
    ("np broadcasting failed on 'Op 0 (ai.onnx.Where:9)', frames [5] and [2, 3] are not aligned",
     "y = Where(c, x, x)", f"{X}, bool[5] c", 10),
    ("np broadcasting failed on 'Op 0 (ai.onnx.Max:8)', frames [2, 3] and [2, 2] are not aligned",
     "y = Max(x, z)", f"{X}, float[2,2] z", 10),
    ("np broadcasting failed on 'Op 0 (ai.onnx.Sum:8)', frames [4, 2, 3] and [2, 2] are not aligned",
     "y = Sum(x, v, z)", f"{X}, float[4,1,1] v, float[2,2] z", 10),
    (("np broadcasting failed on Op 0 (ai.onnx.Mean:8), incompatible types FLOAT and FLOAT16 (shapes [4 2 3] and "
     "[2 3])"), "y = Mean(x, v, z)", f"{X}, float[4,1,1] v, float16[2,3] z", 10),
    ("np broadcasting failed on 'Op 0 (ai.onnx.PRelu:9)', frames [2, 3] and [2, 2] are not aligned",
     "y = PRelu(x, z)", f"{X}, float[2,2] z", 10),
    (("Op (ai.onnx.Clip:11), inputs=[x] currently only supports constant min/max parameters. Input 'min' (q) has "
     "no data."),
     "y = Clip(x, q)", f"{X}, float q", 11),
    (("Op (ai.onnx.Clip:11), inputs=[x] currently only supports constant min/max parameters. Input 'max' (q) has "
     "no data."),
     'y = Clip(x, "", q)', f"{X}, float q", 11),
    ("Length of strides vector 1 != number of spatial dimensions 2",
     "y = MaxPool<kernel_shape=[2,2], strides=[1]>(x)", IMAGE, 10),
    ("Padding vector (length 2) does not have 2 values for each spatial dimension 2",
     "y = MaxPool<kernel_shape=[2,2], pads=[1,1]>(x)", IMAGE, 10),
    ("Length of dilations vector 1 != number of spatial dimensions 2",
     "y = Conv<dilations=[1]>(x, w)", f"{IMAGE}, float[2,2,3,3] w", 10),
    ("kernel_shape, [5 5], does not match inferred shape from weight input 'w', [3 3]",
     "y = Conv<kernel_shape=[5,5]>(x, w)", f"{IMAGE}, float[2,2,3,3] w", 10),
    ("no attribute key sizes", "y = ai.graphcore.DynamicSlice<axes=[0]>(x, k)", f"{X}, uint32[1] k", 10),
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


COMPILED: list[tuple[str, str, str, int]] = [
    *(("CumSumOpx op, 'axis' value out of range.", f"k = Constant<value = int32 {{{axis}}}>() y = CumSum(x, k)", X, 11)
      for axis in (2, -3)),
    ("Unsupported coordinate transformation mode",
     f'{RESIZED} y = Resize<coordinate_transformation_mode="tf_crop_and_resize">(x, r, s)',
     IMAGE, 11),
    *(("Partial broadcasting of indices is not currently supported.", f"y = {op}(x, i, u)",
       f"{X}, int32[{index}] i, float[{update}] u", opset)
      for op, opset, index, update in (("Scatter", 9, 2, "2,2"), ("ScatterElements", 11, "2,2", 2))),
    ("Bidirectional GRU has not yet been implemented. This is for Op Op(ai.onnx.GRU:7, inputs=[x, w, r], outputs=[y])",
     'y = GRU<direction = "bidirectional">(x, w, r)', "float[5,2,4] x, float[2,9,4] w, float[2,9,3] r", 10),
    ("Unsupported tensor scale0 with non-tensor scale1.", "y = ai.graphcore.ScaledAdd(x, x, a)",
     f"{X}, float[1] a", 10),
    ("Unsupported scale0 0.5 with tensor scale1.", 'y = ai.graphcore.ScaledAdd<scale0 = 0.5>(x, x, "", a)',
     f"{X}, float[1] a", 10),
    ("samplingRatio must be greater than 0", "y = RoiAlign<output_height = 2>(x, z, n)",
     f"{IMAGE}, float[3,4] z, int32[3] n", 10),
    ("The data type DOUBLE is not supported in Poplar", "z = RandomUniform<dtype = 11, shape = [2]>() y = Neg(z)",
     X, 10),
]  # fmt: skip
"""Texts of what PopART finds when it compiles an operator: the constructor of a session passes."""


@pytest.mark.parametrize("row", COMPILED, ids=[f"{i}-{row[0][:40]}" for i, row in enumerate(COMPILED)])
def test_refused_when_the_device_is_prepared(row: tuple[str, str, str, int]) -> None:
    text, nodes, inputs, opset = row
    made = session(nodes, inputs, opset)
    with pytest.raises((popart.popart_exception, popart.poplibs_exception)) as caught:
        made.prepareDevice()
    assert caught.value.args[0] == text


@pytest.mark.parametrize(("op", "kind"), [("Sqrt", "int32"), ("Sqrt", "bool"), ("Exp", "int32"), ("And", "float")])
def test_types_that_no_device_computes_are_refused_when_it_is_prepared(op: str, kind: str) -> None:
    made = session(f"y = {op}(x{', x' if op == 'And' else ''})", f"{kind}[2] x", 10)
    assert made.getInfo("y").data_type_lcase() == ("bool" if op == "And" else kind)
    with pytest.raises(popart.popart_exception):
        made.prepareDevice()
