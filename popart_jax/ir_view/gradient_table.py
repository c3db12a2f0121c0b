"""Which gradient ops a forward op has, and what they read. One line per forward op type.

`Type:operands:reads`; operands are the input positions whose gradients the op yields; reads are `g` (all output
gradients), `x<i>` (forward input), `y<i>` (forward output), `x*`/`y*` (all). `i` stands for each operand in turn.
Sources: the gradient entries of PopART's operator list and of its internal op table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gradient:
    """One gradient op; `operands` None means one such op per float input."""

    op_type: str
    operands: tuple[int, ...] | None
    reads: tuple[str, ...]


_LINES = """
Abs AbsGrad:0:g,x0
Acos AcosGrad:0:g,x0
Add AddArg0Grad:0:g AddArg1Grad:1:g
AddBias AddBiasDataGrad:0:g AddBiasBiasGrad:1:g
AllReduce AllReduceGrad:*:g
Asin AsinGrad:0:g,x0
Atan AtanGrad:0:g,x0
Atan2 Atan2Arg0Grad:0:g,x0,x1 Atan2Arg1Grad:1:g,x0,x1
AutoLossScaleProxy AutoLossScaleProxyGrad:0:g
AveragePool AveragePoolGrad:0:g,x0,y0
BatchNormalization BatchNormalizationGrad:0,1,2:g,x0,x1,y3,y4
Cast CastGrad:0:g
Clip ClipGrad:0:g,y0
Concat ConcatGrad:*:g
Conv ConvDataGrad:0:g,x1 ConvWeightsGrad:1:g,x0
ConvFlipWeights ConvFlipWeightsGrad:0:g
Cos CosGrad:0:g,x0
Ctc CtcGrad:0:g,y1
CumSum CumSumGrad:0:g,x0
Div DivArg0Grad:0:g,x0,x1 DivArg1Grad:1:g,x0,x1
Dropout DropoutGrad:0:g
DynamicAdd IdentityGrad:0:g DynamicUpdateUpdaterGrad:2:g,x1
DynamicSlice DynamicSlicePadGrad:0:g,x1
DynamicUpdate DynamicUpdateToUpdateGrad:0:g,x1 DynamicUpdateUpdaterGrad:2:g,x1
DynamicZero DynamicZeroGrad:0:g,x1
Elu EluGrad:0:g,x0
Erf ErfGrad:0:g,x0
Exp ExpGrad:0:g,y0
Expand ExpandGrad:0:g
Expm1 Expm1Grad:0:g,y0
Flatten ReshapeGrad:0:g
Fmod FmodArg0Grad:0:g,x0,x1
GRU GRUGrad:0,1,2,3,5:g,x0,x1,x2,y*
Gather GatherGrad:0:g,x1
Gelu GeluGrad:0:g,x0
GeluErf GeluErfGrad:0:g,x0
GlobalAveragePool GlobalAveragePoolGrad:0:g,x0,y0
GlobalMaxPool GlobalMaxPoolGrad:0:g,x0,y0
GroupNormalization GroupNormalizationGrad:0,1,2:g,x0,x1,y1,y2
GroupedGather GatherGrad:0:g,x1
HardSigmoid HardSigmoidGrad:0:g,x0
Identity IdentityGrad:0:g
IdentityLoss IdentityLossGrad:0:g
InstanceNormalization InstanceNormalizationGrad:0,1,2:g,x0,x1
L1 L1Grad:0:g,x0
LRN LRNGrad:0:g,x0
LSTM LSTMGrad:0,1,2,3,5,6:g,x*,y*
LeakyRelu LeakyReluGrad:0:g,x0
Log LogGrad:0:g,x0
Log1p Log1pGrad:0:g,x0
LogSoftmax LogSoftmaxGrad:0:g,y0
MatMul MatMulLhsGrad:0:g,x0,x1 MatMulRhsGrad:1:g,x0,x1
Max MaxArgGrad:*:g,xi,y0
MaxPool MaxPoolGrad:0:g,x0,y0
Mean MeanArgGrad:*:g
Min MinArgGrad:*:g,xi,y0
Mul MulArg0Grad:0:g,x0,x1 MulArg1Grad:1:g,x0,x1
MultiConv MultiConvDataGrad:0:g,x1 MultiConvWeightsGrad:1:g,x0
Neg NegGrad:0:g
Nll NllGrad:0:g,x0,x1
OneHot OneHotGrad:2:g,x0
Pad PadGrad:0:g
PopartTiedGather TiedGatherGrad:0:g,x1
Pow PowArg0Grad:0:g,x0,x1,y0 PowArg1Grad:1:g,x0,x1,y0
PrintTensor PrintTensor:0:g
RNN RNNGrad:0,1,2,3,5:g,x0,x1,x2,y*
Reciprocal ReciprocalGrad:0:g,x0
ReduceL1 ReduceL1Grad:0:g,x0
ReduceL2 ReduceL2Grad:0:g,x0,y0
ReduceLogSum ReduceLogSumGrad:0:g,y0
ReduceLogSumExp ReduceLogSumExpGrad:0:g,x0,y0
ReduceMax ReduceMaxGrad:0:g,x0,y0
ReduceMean ReduceMeanGrad:0:g
ReduceMedian ReduceMedianGrad:0:g,y1
ReduceMin ReduceMinGrad:0:g,x0,y0
ReduceProd ReduceProdGrad:0:g,x0
ReduceSum ReduceSumGrad:0:g
ReduceSumSquare ReduceSumSquareGrad:0:g,x0
Relu ReluGrad:0:g,y0
ReplicatedAllGather ReplicatedReduceScatter:0:g
ReplicatedReduceScatter ReplicatedAllGather:0:g
Reshape ReshapeGrad:0:g
Resize ResizeGrad:0:g
Reverse ReverseGrad:0:g
RoiAlign RoiAlignGrad:0:g,x0,x1,x2
Scale ScaleGrad:0:g
Scatter ScatterDataGrad:0:g,x1 ScatterUpdateGrad:2:g,x1
ScatterElements ScatterDataGrad:0:g,x1 ScatterUpdateGrad:2:g,x1
ScatterReduce ScatterReduceGrad:0,2:g,x0,x1,y0
Selu SeluGrad:0:g,x0
ShapedDropout ShapedDropoutGrad:0:g
Shrink ShrinkGrad:0:g,x0
Sigmoid SigmoidGrad:0:g,y0
Sin SinGrad:0:g,x0
Sinh SinhGrad:0:g,x0
Slice SliceGrad:0:g
Softmax SoftmaxGrad:0:g,y0
Softplus SoftPlusGrad:0:g,x0
Softsign SoftSignGrad:0:g,x0
Sort ScatterDataGrad:0:g,y1
Split SplitGrad:0:g
Sqrt SqrtGrad:0:g,y0
Squeeze SqueezeGrad:0:g
Sub SubArg0Grad:0:g SubArg1Grad:1:g,x0,x1
Subsample SubsampleGrad:0:g
Sum SumArgGrad:*:g
Swish SwishGrad:0:g,x0
Tanh TanhGrad:0:g,y0
TensorRemap TensorRemap:0:g
ThresholdedRelu ThresholdedReluGrad:0:g,x0
Tile TileGrad:0:g
TopK TopKGrad:0:g,y1
Transpose TransposeGrad:0:g
Unsqueeze UnsqueezeGrad:0:g
Where WhereXGrad:1:g,x0 WhereYGrad:2:g,x0
"""

ZERO = frozenset({"Ceil", "Floor", "NearbyInt", "Round", "Sign"})
NO_GRADIENT = frozenset(
    [
        "Abort",
        "And",
        "ArgMax",
        "ArgMin",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXnor",
        "BitwiseXor",
        "Bucketize",
        "Constant",
        "ConstantOfShape",
        "CopyVarUpdate",
        "CtcBeamSearchDecoder",
        "Detach",
        "Equal",
        "EyeLike",
        "Greater",
        "GreaterOrEqual",
        "Histogram",
        "IncrementMod",
        "Init",
        "IsInf",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "Loop",
        "NonZero",
        "Nop",
        "NormalizeImage",
        "Not",
        "Or",
        "PRelu",
        "PackedDataBlock",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Range",
        "ReplicatedAllReduce",
        "Scan",
        "ScaledAdd",
        "SequenceSlice",
        "Shape",
        "SplineBasis",
        "SplineWeighting",
        "UnaryZeroGrad",
        "Xor",
        "Zeros",
        "ZerosLike",
    ]
)


def _parse(line: str) -> tuple[str, tuple[Gradient, ...]]:
    op_type, *entries = line.split()
    rows = [entry.split(":") for entry in entries]
    return op_type, tuple(
        Gradient(t, None if o == "*" else tuple(map(int, o.split(","))), tuple(r.split(","))) for t, o, r in rows
    )


TABLE: dict[str, tuple[Gradient, ...]] = dict(_parse(line) for line in _LINES.strip().splitlines())


def gradients_of(op_type: str) -> tuple[Gradient, ...]:
    """Gradient ops of a forward op; a custom op gets one that reads everything."""
    if op_type in NO_GRADIENT:
        return ()
    if op_type in ZERO:
        return (Gradient("UnaryZeroGrad", (0,), ("g",)),)
    return TABLE.get(op_type, (Gradient(f"{op_type}Grad", None, ("g", "x*", "y*")),))
