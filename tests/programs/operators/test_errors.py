"""Every complaint of PopART's operator list, provoked by a program and recognised by its words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import popart_jax as popart

from .tester import GRADIENT, Recorder, run

pytestmark = pytest.mark.usefixtures("popart_names")


def f(*shape: int) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def u32(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


@dataclass(frozen=True)
class Const:
    """A constant instead of an input."""

    value: Any
    dtype: Any = np.int64


@dataclass(frozen=True)
class Op:
    """One operator on fed arrays, constants and absent inputs (None)."""

    name: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]
    opset: int = 0

    def __call__(self, b: Recorder) -> list[str]:
        onnx = b.onnx(self.opset or 10)
        names = [self._input(b, onnx, x) for x in self.inputs]
        made = getattr(onnx if self.opset else b.aiGraphcore, self.name)(names, **self.attributes)
        return made if isinstance(made, list) else [made]

    @staticmethod
    def _input(b: Recorder, onnx: Any, x: Any) -> str:
        if isinstance(x, Const):
            return onnx.constant(np.array(x.value, x.dtype))
        return "" if x is None else b.feed(x)


def op(name: str, *inputs: Any, opset: int = 10, **attributes: Any) -> Op:
    return Op(name, inputs, attributes, opset)


def gc(name: str, *inputs: Any, **attributes: Any) -> Op:
    return Op(name, inputs, attributes)


def multiconv(*groups: tuple[np.ndarray, ...], **parameters: Any) -> Any:
    return lambda b: b.aiGraphcore.multiconv([[b.feed(x) for x in g] for g in groups], **parameters)


LOG_PROBS, TARGETS, LENGTHS = f(4, 2, 5), np.ones((2, 3), np.uint32), u32(4, 4)
CONV = (f(1, 2, 4, 4), f(2, 2, 3, 3))
IMAGE, RNN, GRU, LSTM = (
    f(1, 1, 4, 4),
    (f(3, 2, 4), f(1, 2, 4), f(1, 2, 2)),
    (f(3, 2, 4), f(1, 6, 4), f(1, 6, 2)),
    (f(3, 2, 4), f(1, 8, 4), f(1, 8, 2)),
)
SPLINE = (f(3, 2), i32(3, 3), np.array([1, 1], np.uint8))
SCATTER = {"axis_size": 4, "axis": 0}
ROI = {"output_height": 1, "output_width": 1}
RESHAPES = [
    ("can only use -1 to specify one unknown dimension", [-1, -1]),
    ("cannot be smaller than -1", [-2, 3]),
    ("Incompatible inferred dimension", [-1, 4]),
    ("The number of elements cannot change for a ReshapeOp", [2, 4]),
]
RESIZE = {"opset": 11}
TWICE = Const([1, 1, 2, 2], np.float32)

REFUSED = [
    ("Conditional abort op can only test a scalar tensor",
     lambda b: (b.aiGraphcore.abort([x := b.feed(f(2))]), b.aiOnnx.relu([x]))[1]),
    ("boundaries tensor is not a 1-D tensor", gc("bucketize", f(3), f(2, 2))),
    ("have different data types", gc("bucketize", f(3), i32(1, 2))),
    ("must be either 0 or 1", gc("bucketize", f(3), f(2), right=2)),
    ("expected a 'logarithmized probabilities' tensor of rank 3", gc("ctcloss", f(4, 5), TARGETS, LENGTHS, LENGTHS)),
    ("expected a 'targets' tensor", gc("ctcloss", LOG_PROBS, np.ones((3, 3), np.uint32), LENGTHS, LENGTHS)),
    ("'input lengths'", gc("ctcloss", LOG_PROBS, TARGETS, u32(4, 4, 3), LENGTHS)),
    ("'input lengths'", gc("ctcloss", LOG_PROBS, TARGETS, f(2), LENGTHS)),
    ("'target lengths'", gc("ctcloss", LOG_PROBS, TARGETS, LENGTHS, u32(3))),
    ("Unsupported data type for", gc("ctcloss", np.ones((4, 2, 5), np.int32), TARGETS, LENGTHS, LENGTHS)),
    ("Unsupported data type for", gc("ctcloss", LOG_PROBS, TARGETS, LENGTHS, LENGTHS, outDataType="INT32")),
    ("expected a 'data lengths' tensor", gc("ctcbeamsearchdecoder", LOG_PROBS, u32(3, 3, 3))),
    ("Unsupported data type for input", gc("ctcbeamsearchdecoder", LOG_PROBS, i32(3, 3))),
    ("indicates the dimension of the group",
     gc("groupedgather", f(2, 3, 4), np.zeros((2, 2), np.int32), axis=0, group_size=2)),
    ("is outside the acceptable range",
     gc("groupedgather", f(2, 3, 4), np.zeros((2, 2), np.int32), axis=-4, group_size=2)),
    ("L1Op not valid for rank-0 tensor", gc("l1loss", np.ones((), np.float32), **{"lambda": 0.1})),
    ("Bad weights shape", gc("lstm", f(3, 2, 4), f(4, 5, 2), f(4, 2), f(2, 2, 2))),
    ("Bad bias shape", gc("lstm", f(3, 2, 4), f(4, 6, 2), f(4, 3), f(2, 2, 2))),
    ("Bad initial state shape", gc("lstm", f(3, 2, 4), f(4, 6, 2), f(4, 2), f(2, 3, 2))),
    ("has no input tensors", multiconv()),
    ("must have at least two inputs - data and weights", multiconv(CONV[:1])),
    ("can have at most three inputs - data, weights, and bias", multiconv((*CONV, f(2), f(2)))),
    ("number of pads parameter sets (1) does not match the number of input sets (2)",
     multiconv(CONV, CONV, pads=[[0, 0, 0, 0]])),
    ("Length of dilations vector 1 != number of spatial dimensions 2", multiconv(CONV, dilations=[[1]])),
    ("Length of inDilations vector 1 != number of spatial dimensions 2", multiconv(CONV, inDilations=[[1]])),
    ("Length of strides vector 3 != number of spatial dimensions 2", multiconv(CONV, strides=[[1, 1, 1]])),
    ("does not have 2 values for each spatial dimension", multiconv(CONV, pads=[[1, 1]])),
    ("does not have 2 values for each spatial dimension", multiconv(CONV, outPads=[[1, 1]])),
    ("Window parameter values combine to give invalid spatial output shape", multiconv((CONV[0], f(2, 2, 7, 7)))),
    ("The label tensor", gc("nllloss", f(2, 3), i32(1, 1, 1))),
    ("to be an integer data type", gc("nllloss", f(2, 3), f(2))),
    ("Invalid shape for prob tensor", gc("nllloss", np.ones((), np.float32), i32(1))),
    ("requires the inner dimension to be 3", gc("normalize_image", f(2, 4), f(3), f(3), scale=1.0)),
    ("requires the inner dimension to be 3", gc("normalize_image", f(3), f(3), f(3), scale=1.0)),
    ("scale should be greater than 0", gc("normalize_image", f(2, 3), f(3), f(3), scale=0.0)),
    *((text, lambda b, to=to: b.aiGraphcore.reshape(b.feed(f(2, 3)), to)) for text, to in RESHAPES),
    *((text, op("reshape", f(2, 3), Const(to))) for text, to in RESHAPES),
    ("Only positive dimensions are supported", gc("reverse", f(2, 3), dimensions=[-1])),
    ("invalid dimension", gc("reverse", f(2, 3), dimensions=[2])),
    ("appears multiple times", gc("reverse", f(2, 3), dimensions=[0, 0])),
    ("Unsupported tensor scale0 with non-tensor scale1", gc("scaledadd", f(2), f(2), f(1))),
    ("with tensor scale1", gc("scaledadd", f(2), f(2), None, f(1), scale0=0.5)),
    ("Partial broadcasting of indices is not currently supported",
     gc("scatterreduce", f(3, 4, 2), np.zeros((3, 4, 1), np.int32), **SCATTER)),
    ("is outside the acceptable range", gc("scatterreduce", f(3, 4), i32(0, 1, 2), axis_size=4, axis=2)),
    ("is not valid: must be > 0", gc("scatterreduce", f(3, 4), i32(0, 1, 2), axis_size=0, axis=0)),
    ("is not valid: must be > 0", gc("groupedscatterreduce", f(3, 4), i32(0, 1, 2), group_size=0, **SCATTER)),
    ("must be either 0 or 1", gc("scatterreduce", f(3, 4), i32(0, 1, 2), enable_index_broadcast=2, **SCATTER)),
    ("Invalid rank for indices input", gc("scatterreduce", f(3), np.zeros((3, 1, 1), np.int32), **SCATTER)),
    ("Failed to expand 'indices' shape", gc("scatterreduce", f(3, 4), np.zeros((5, 4), np.int32), **SCATTER)),
    ("Please use a value in the interval [0,1)", gc("shapeddropout", f(3, 4), shape=[3, 1], ratio=1.0)),
    ("incompatible input tensor and dropout shape", gc("shapeddropout", f(3, 4), shape=[2, 1])),
    ("is not a 2-D tensor", gc("splinebasis", f(3), *SPLINE[1:], degree=1)),
    ("is not a 1-D tensor", gc("splinebasis", SPLINE[0], np.ones((2, 1), np.int32), SPLINE[2], degree=1)),
    ("must be between 0 and 3", gc("splinebasis", *SPLINE, degree=4)),
    ("is not a 2-D tensor", gc("splineweighting", f(3), f(4, 2, 2), f(3, 2), np.zeros((3, 2), np.int32))),
    ("is not a 3-D tensor", gc("splineweighting", f(3, 2), f(4, 2), f(3, 2), np.zeros((3, 2), np.int32))),
    ("have different data types",
     gc("splineweighting", f(3, 2), f(4, 2, 2), f(3, 2).astype(np.float16), np.zeros((3, 2), np.int32))),
    ("Strides invalid. 0 stride at index 1", gc("subsample", f(3, 2), strides=[1, 0])),
    ("input rank must be greater than 0", op("argmax", np.ones((), np.float32))),
    ("Cannot compute ArgExtremaOp on axis", op("argmax", f(2, 2), axis=2)),
    ("Axis -3 is out of acceptable range [-2, 1]", op("argmin", f(2, 2), axis=-3)),
    ("`count_include_pad` is not supported", op("averagepool", IMAGE, kernel_shape=[2, 2], count_include_pad=1)),
    ("invalid kernel_shape", op("averagepool", IMAGE, kernel_shape=[2, 2, 2])),
    ("batch norm requires X to have a rank >= 3", op("batchnormalization", f(2, 3), *[f(3)] * 4, num_outputs=1)),
    *((f"expected shape of batch norm input tensor {name}",
       op("batchnormalization", f(2, 3, 4), *(f(4 if i == k else 3) for i in range(4)), num_outputs=1))
      for k, name in enumerate(("scale", "B", "mean", "var"))),
    ("currently only supports constant min/max parameters", op("clip", f(3), np.ones((), np.float32), opset=11)),
    ("All input tensor types to a concat operation must be equal", op("concat", f(3), i32(1, 2), axis=0)),
    ("does not have matching output rank", op("concat", f(3), f(3, 2), axis=0)),
    ("to concat does not have matching shape", op("concat", f(3, 2), f(3, 3), axis=0)),
    ("is outside of acceptable range", op("concat", f(3, 2), f(3, 2), axis=2)),
    ("must be greater than zero", op("conv", *CONV, group=0)),
    ("Invalid value for group", op("conv", f(1, 3, 4, 4), CONV[1], group=1)),
    ("must be greater than zero", op("convtranspose", *CONV, group=0)),
    ("Unexpected number of channels in the input tensor", op("convtranspose", CONV[0], f(3, 2, 3, 3))),
    ("Non default value for dilations is not supported", op("convtranspose", *CONV, dilations=[2, 2])),
    ("attributes must be 0 or 1", op("cumsum", f(3), Const(0), opset=11, exclusive=2)),
    ("'axis' tensor must have one element", op("cumsum", f(3), Const([0, 0]), opset=11)),
    ("does not have data", op("cumsum", f(3), i32(0), opset=11)),
    ("Please use a value in the interval [0,1)", op("dropout", f(3), num_outputs=1, ratio=-0.1)),
    ("corresponding dimensions must have the same value or one of them must be 1", op("expand", f(3), Const([2]))),
    ("invalid axis", op("flatten", f(3, 2), axis=3)),
    ("is outside the acceptable range", op("gather", f(3, 2), i32(0), axis=2)),
    ("GRUOp attribute `clip' is not supported", op("gru", *GRU, num_outputs=2, clip=1.0)),
    ("GRUOp attribute `activations' is not supported", op("gru", *GRU, num_outputs=2, activations=["Tanh", "Tanh"])),
    ("GRUOp attribute `activation_alpha' is not supported", op("gru", *GRU, num_outputs=2, activation_alpha=[0.1])),
    ("does not match hidden size calculated from recurrenceWeights", op("gru", *GRU, num_outputs=2, hidden_size=3)),
    ("Bidirectional GRU has not yet been implemented", op("gru", *GRU, num_outputs=2, direction="bidirectional")),
    ("Activation type 'Foo' is not supported", op("lstm", *LSTM, num_outputs=3, activations=["Foo"])),
    ("activations must be the same for output and forget gates",
     op("lstm", *LSTM, num_outputs=3, activations=["Sigmoid", "Tanh", "Relu"])),
    ("Too many activations", op("lstm", *LSTM, num_outputs=3, activations=["Sigmoid", "Tanh", "Tanh", "Tanh"])),
    ("LSTMOp attribute `clip' is not supported", op("lstm", *LSTM, num_outputs=3, clip=1.0)),
    ("must be unset or `forward'", op("lstm", *LSTM, num_outputs=3, direction="reverse")),
    ("must be set to 0", op("lstm", *LSTM, num_outputs=3, input_forget=1)),
    ("does not support peephole connections", op("lstm", *LSTM, *[None] * 4, f(1, 6), num_outputs=3)),
    ("Invalid rank for sequence length tensor", op("lstm", *LSTM, None, np.ones((2, 1), np.int32), num_outputs=3)),
    ("Incorrect sequence len shape", op("lstm", *LSTM, None, i32(1, 1, 1), num_outputs=3)),
    ("Activation type 'Foo' is not supported", op("rnn", *RNN, num_outputs=2, activations=["Foo"])),
    ("only supports 1 activation", op("rnn", *RNN, num_outputs=2, activations=["Tanh", "Tanh"])),
    ("only supports `forward' direction", op("rnn", *RNN, num_outputs=2, direction="reverse")),
    *(("do not all the same type & shape", op(name, f(2, 3), f(3), opset=7)) for name in ("max", "min", "mean", "sum")),
    ("storage_order != 0, not supported", op("maxpool", IMAGE, num_outputs=1, kernel_shape=[2, 2], storage_order=1)),
    ("Dilations of value other than 1 are currently not supported",
     op("maxpool", IMAGE, num_outputs=1, kernel_shape=[2, 2], dilations=[2, 2])),
    ("invalid kernel_shape", op("maxpool", IMAGE, num_outputs=1, kernel_shape=[2])),
    ("does not have data", op("onehot", i32(1, 2), i32(4), f(2))),
    ("The depth tensor should be rank 0 in OneHot", op("onehot", i32(1, 2), Const([4, 4]), f(2))),
    ("Padding vector (length 3) doesn't contain 2 entries per input dimension", op("pad", f(4), pads=[1, 1, 1])),
    ("Expected pads to be exactly 2x", op("pad", f(4), Const([1, 1, 1]), opset=11)),
    ("Optional seed attribute is not supported. Use session::setRandomSeed instead.",
     lambda b: b.aiOnnx.randomnormal([2], seed=1.0)),
    ("The data type DOUBLE is not supported in Poplar", lambda b: b.aiOnnx.randomuniform([2], dtype=11)),
    ("Unsupported data type requested", op("randomnormallike", i32(1, 2))),
    ("must match the number of dimensions of the input", op("resize", IMAGE, Const([1, 1, 2], np.float32))),
    ("Only one of these tensors should be present", op("resize", IMAGE, None, TWICE, Const([1, 1, 8, 8]), **RESIZE)),
    ("has no input for `size` or `scales`", op("resize", IMAGE, None, None, None, **RESIZE)),
    ("Unsupported value", op("resize", IMAGE, None, TWICE, exclude_outside=1, **RESIZE)),
    ("Unrecognised resize mode", op("resize", IMAGE, None, TWICE, mode="foo", **RESIZE)),
    ("Unrecognised resize nearest mode", op("resize", IMAGE, None, TWICE, nearest_mode="foo", **RESIZE)),
    ("Unrecognised resize coordinate transformation mode",
     op("resize", IMAGE, None, TWICE, coordinate_transformation_mode="foo", **RESIZE)),
    ("does not match the rank of", op("resize", IMAGE, None, None, Const([1, 1, 8]), **RESIZE)),
    ("The size of input data must be 4", op("roialign", f(1, 2, 2), f(1, 4), i32(0), sampling_ratio=1, **ROI)),
    ("The size of input rois must be 2", op("roialign", IMAGE, f(4), i32(0), sampling_ratio=1, **ROI)),
    ("The size of input batch_index must be 1",
     op("roialign", IMAGE, f(1, 4), np.zeros((1, 1), np.int32), sampling_ratio=1, **ROI)),
    ("Number of outputs does not match number of requested splits",
     op("split", f(6), num_outputs=2, split=[2, 2, 2])),
    ("may not be split into equally sized parts", op("split", f(5), num_outputs=2)),
    ("invalid for dimension of size", op("split", f(6), num_outputs=2, split=[2, 2])),
    ("is out of range", op("split", f(6), num_outputs=2, axis=1)),
    ("must be of type Constant", op("tile", f(2), np.array([2]))),
    ("is not INT64", op("tile", f(2), Const([2], np.int32))),
    ("should have one element for each dimension", op("tile", f(2), Const([2, 2]))),
    ("should be rank 1", op("tile", f(2), Const([[2]]))),
    ("has invalid value", op("tile", f(2), Const([0]))),
    ("Cannot take top-", op("topk", f(3), Const([4]))),
    ("input rank must be greater than 0", op("topk", np.ones((), np.float32), Const([1]))),
    ("must be equal to rank of", op("transpose", f(2, 3), perm=[0])),
    ("Scales tensor has no data", op("upsample", IMAGE, f(4), opset=9)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "program"), REFUSED, ids=[f"{i}-{text[:30]}" for i, (text, _) in enumerate(REFUSED)])
def test_refused_in_the_words_of_the_operator_list(text, program):
    with pytest.raises(popart.popart_exception) as error:
        run(program)
    assert text in error.value.args[0]


STATIC = [
    ("Need the value of the ai.onnx.Reshape:5 input 'shape'", op("reshape", f(2, 3), np.array([6]))),
    ("Need the value of the ai.onnx.Expand:8 input 'shape'", op("expand", f(3), np.array([3]))),
    ("Need the value of the ai.onnx.Slice:10 input 'starts'", op("slice", f(6), np.array([0]), Const([6]))),
    ("Need the value of the ai.onnx.Slice:10 input 'ends'", op("slice", f(6), Const([0]), np.array([6]))),
    ("Need the value of the ai.onnx.Slice:11 input 'axes'",
     op("slice", f(6), Const([0]), Const([6]), np.array([0]), opset=11)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "program"), STATIC)
def test_needed_constants_are_named_first(text, program):
    with pytest.raises(popart.popart_exception) as error:
        run(program)
    assert error.value.args[0].startswith(text)


TWO = "inputs=[input, input/1], outputs"
NAMED = [
    (op("matmul", np.ones((), np.float32), f(2)),
     f"Op(ai.onnx.MatMul:9, {TWO}=[MatMul:0]) doesn't support scalar tensor input as the lhs input"),
    (op("matmul", f(2, 3), f(2, 3)),
     f"Op(ai.onnx.MatMul:9, {TWO}=[MatMul:0]) contracting dimensions unequal: lhs 'input' [2 3], rhs 'input/1' [2 3]"),
    (op("matmul", f(3), f(2), debugContext="m"),
     (f"Op(m (ai.onnx.MatMul:9), {TWO}=[MatMul:0]) contracting dimensions unequal: lhs 'input' [1 3], rhs "
     "'input/1' [2 1]")),
    (op("add", f(2, 3), i32(1, 2, 3)),
     "np broadcasting failed on Op 0 (ai.onnx.Add:7), incompatible types FLOAT and INT32 (shapes [2 3] and [3])"),
    (op("mul", f(2, 3), i32(1, 2, 3)),
     "np broadcasting failed on 0 (ai.onnx.Mul:7), incompatible types FLOAT and INT32 (shapes [2 3] and [3])"),
    (op("sub", f(2, 3), f(4)),
     "np broadcasting failed on 'Op 0 (ai.onnx.Sub:7)', frames [2, 3] and [4] are not aligned"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "text"), NAMED)
def test_whole_messages_name_operator_and_tensors(program, text):
    with pytest.raises(popart.popart_exception) as error:
        run(program)
    assert error.value.args[0] == text


def test_spatial_output_shape_of_a_transposed_convolution_takes_no_valid_padding():
    def program(b):
        out = b.aiOnnx.convtranspose([b.feed(x) for x in CONV], strides=[2, 2], output_shape=[8, 8])
        b.addNodeAttribute("auto_pad", "VALID", {out})
        return out

    with pytest.raises(popart.popart_exception, match="`VALID` type for auto_pad cannot be used"):
        run(program)


def test_sampling_ratio_of_zero_is_an_error_of_poplibs():
    with pytest.raises(popart.poplibs_exception, match="samplingRatio must be greater than 0"):
        run(op("roialign", IMAGE, f(1, 4), i32(0), **ROI))


@pytest.mark.parametrize("name", ["equal", "greater", "less"])
def test_comparisons_have_no_gradient(name):
    with pytest.raises(popart.popart_exception, match="does not have a valid grad op corresponding to"):
        run(op(name, f(3), f(3)), train=True)


NO_PAD_GRADIENT = 'does not support PadGradOp when mode is not "constant"'


@pytest.mark.parametrize("name", ["bitwiseand", "bitwiseor", "bitwisexor", "bitwisexnor"])
def test_bitwise_operators_have_no_gradient(name):
    with pytest.raises(popart.popart_exception, match="does not have a valid grad op corresponding to"):
        run(gc(name, i32(3), i32(5)), train=True)


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (
            lambda b, x: b.aiOnnx.pad([x], [1, 1], mode="reflect"),
            'does not support PadGradOp when mode is not "constant"',
        ),
        (lambda b, x: b.aiOnnx.pad([x], [1, 1], mode="edge"), 'does not support PadGradOp when mode is not "constant"'),
        (
            lambda b, x: b.onnx(10).resize([x, b.onnx(10).constant(np.array([2], np.float32))], mode="linear"),
            "Resize mode 'linear' is not supported when training.",
        ),
        (
            lambda b, x: b.aiGraphcore.scatterreduce([x, b.feed(i32(0, 1))], 4, 0, enable_index_broadcast=0),
            "is implemented only for src.shape == index.shape",
        ),
    ],
)
def test_gradients_that_do_not_exist(program, text):
    def build(b):
        x = b.feed(f(4))
        return [program(b, x), GRADIENT + x]

    with pytest.raises(popart.popart_exception) as error:
        run(build, train=True)
    assert text in error.value.args[0]


def test_strided_slices_need_their_pattern():
    strided = op("slice", f(6), Const([0]), Const([6]), Const([0]), Const([2]))
    with pytest.raises(popart.popart_exception, match='Please enable pattern "Slice2SliceSubsample" first'):
        run(strided, patterns=popart.Patterns())
    for patterns in (None, popart.Patterns().enablePattern("Slice2SliceSubsample", True)):
        np.testing.assert_array_equal(run(strided, patterns=patterns)[0], f(6)[::2])
    backwards = op("slice", f(6), Const([-1]), Const([-7]), Const([0]), Const([-1]))
    np.testing.assert_array_equal(run(backwards, patterns=popart.Patterns())[0], f(6)[::-1])
