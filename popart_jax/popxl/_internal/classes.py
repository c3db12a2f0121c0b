"""The operator classes of the internal IR: name, module, base class, and the identifier of its operators.

One line per class: ``name module base [domain type version]``; the module ``-`` is `popart._internal.ir.op` itself.
Source: PopART 3.4's Python bindings. `node_rows` says which row of the operator table runs a class.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Identifier:
    """What an operator is called in the internal IR."""

    domain: str
    type: str
    version: int


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class: where it lives, what it derives from, and its identifier (None for abstract ones)."""

    name: str
    module: str
    base: str
    identifier: Identifier | None


@cache
def rows() -> dict[str, ClassRow]:
    """All classes by name, bases before derived ones."""
    found = {}
    for line in _TABLE.strip().splitlines():
        name, module, base, *rest = line.split()
        identifier = Identifier(rest[0], rest[1], int(rest[2])) if rest else None
        found[name] = ClassRow(name, "" if module == "-" else module, base, identifier)
    return found


_DEFINED: dict[str, Identifier] = {}
DEFINED_ROWS: dict[str, tuple[str, str, int]] = {}


def define(class_name: str, known: Identifier, node_row: tuple[str, str, int]) -> None:
    """Enter the identifier (and the row of the operator table) of a class that the table does not have."""
    _DEFINED[class_name] = known
    DEFINED_ROWS[class_name] = node_row


def identifier(class_name: str) -> Identifier:
    """Identifier of a class; classes without one are called like the class, without its suffix."""
    if class_name in _DEFINED:
        return _DEFINED[class_name]
    row = rows().get(class_name)
    if row is not None and row.identifier is not None:
        return row.identifier
    return Identifier("ai.graphcore", class_name.removesuffix("Op"), 1)


_TABLE = """
AbsGradOp - Op ai.graphcore AbsGrad 1
AbsOp - Op ai.onnx Abs 6
AccumulateBaseOp - VarUpdateWithUpdaterOp
AccumulateOp - AccumulateBaseOp ai.graphcore Accumulate 1
AccumulatorScaleOp - VarUpdateOp ai.graphcore AccumulatorScale 1
AccumulatorZeroOp - AccumulatorScaleOp
AdamUpdaterOp - Op ai.graphcore AdamUpdater 1
AdamVarUpdateOp - Op ai.graphcore AdamVarUpdate 1
AddArg0GradOp - Op ai.graphcore AddArg0Grad 1
AddArg1GradOp - Op ai.graphcore AddArg1Grad 1
AddLhsInplaceOp - Op ai.graphcore AddLhsInplace 1
AddOp - Op ai.onnx Add 6
AddRhsInplaceOp - Op ai.graphcore AddRhsInplace 1
AllReduceGradOp collectives Op ai.graphcore AllReduceGrad 1
AllReduceOp collectives Op ai.graphcore AllReduce 1
AndOp - Op ai.onnx And 7
ArgExtremaOp - Op
ArgMaxOp - ArgExtremaOp ai.onnx ArgMax 11
ArgMinOp - ArgExtremaOp ai.onnx ArgMin 11
AveragePoolOp - HasReceptiveFieldOp ai.onnx AveragePool 11
BatchNormGradOp - Op
BatchNormOp - Op ai.onnx BatchNormalization 9
CallGradOp - Op ai.graphcore CallGrad 1
CallOp - Op ai.graphcore Call 1
CastGradOp - Op ai.graphcore CastGrad 1
CastOp - Op ai.onnx Cast 9
CastThenPow2ScaleOp - Op ai.graphcore CastThenPow2Scale 1
CeilInplaceOp - Op ai.graphcore CeilInplace 1
CeilOp - Op ai.onnx Ceil 1
ClipGradOp - Op ai.graphcore ClipGrad 1
ClipInplaceOp - Op ai.graphcore ClipInplace 1
ClipOp - Op ai.onnx Clip 6
ConcatInplaceOp - Op ai.graphcore ConcatInplace 1
ConcatOp - Op ai.onnx Concat 11
ConvOp - MultiConvBaseOp ai.onnx Conv 11
ConvTransposeOp - Op ai.onnx ConvTranspose 11
CopyVarUpdateOp - Op ai.graphcore CopyVarUpdate 1
CosGradOp - Op ai.graphcore CosGrad 1
CosOp - Op ai.onnx Cos 7
CumSumGradOp - Op ai.graphcore CumSumGrad 1
CumSumOp - Op ai.onnx CumSum 11
DetachInplaceOp - Op ai.graphcore DetachInplace 1
DetachOp - Op ai.graphcore Detach 1
DivArg0GradOp - Op ai.graphcore DivArg0Grad 1
DivArg1GradOp - Op ai.graphcore DivArg1Grad 1
DivOp - Op ai.onnx Div 7
DropoutGradOp - Op ai.graphcore DropoutGrad 1
DropoutOp - Op ai.onnx Dropout 10
DynamicSliceInplaceOp dynamic Op ai.graphcore DynamicSliceInplace 1
DynamicSliceOp dynamic Op ai.graphcore DynamicSlice 1
DynamicSlicePadGradOp dynamic Op ai.graphcore DynamicSlicePadGrad 1
DynamicUpdateInplaceOp dynamic Op ai.graphcore DynamicUpdateInplace 1
DynamicUpdateOp dynamic Op ai.graphcore DynamicUpdate 1
DynamicUpdateToUpdateGradOp dynamic Op ai.graphcore DynamicUpdateToUpdateGrad 1
DynamicUpdateUpdaterGradOp dynamic Op ai.graphcore DynamicUpdateUpdaterGrad 1
EqualOp - Op ai.onnx Equal 7
ExpGradOp - Op ai.graphcore ExpGrad 1
ExpInplaceOp - Op ai.graphcore ExpInplace 1
ExpOp - Op ai.onnx Exp 6
FloorInplaceOp - Op ai.graphcore FloorInplace 1
FloorOp - Op ai.onnx Floor 6
FmodOp - Op ai.graphcore Fmod 1
GatherGradOp - Op ai.graphcore GatherGrad 1
GatherOp - Op ai.onnx Gather 1
GeluErfGradOp - Op ai.graphcore GeluErfGrad 1
GeluErfInplaceOp - Op ai.graphcore GeluErfInplace 1
GeluErfOp - Op ai.graphcore GeluErf 1
GeluGradOp - Op ai.graphcore GeluGrad 1
GeluInplaceOp - Op ai.graphcore GeluInplace 1
GeluOp - Op ai.graphcore Gelu 1
GreaterOp - Op ai.onnx Greater 9
GroupNormGradOp - Op
GroupNormOp - Op ai.graphcore GroupNormalization 1
HasReceptiveFieldOp - Op
HistogramOp - Op ai.graphcore Histogram 1
HostLoadInplaceOp exchange Op ai.graphcore HostLoadInplace 1
HostLoadOp exchange Op ai.graphcore HostLoad 1
HostStoreOp exchange Op ai.graphcore HostStore 1
IdentityGradOp - Op ai.graphcore IdentityGrad 1
IdentityLossGradOp - Op ai.graphcore IdentityLossGrad 1
IdentityLossOp - Op ai.graphcore IdentityLoss 1
IdentityOp - Op ai.onnx Identity 1
IfGradOp - IfOp ai.graphcore IfGrad 1
IfOp - Op ai.onnx If 11
IncrementModInplaceOp - Op ai.graphcore IncrementModInplace 1
IncrementModOp - Op ai.graphcore IncrementMod 1
InitOp - Op ai.graphcore Init 1
IoTileCopyOp - Op ai.graphcore IoTileCopy 1
IpuCopyOp - Op ai.graphcore IpuCopy 1
IsInf - Op ai.onnx IsInf 10
IsNaN - Op ai.onnx IsNaN 9
LambSquareOp - Op ai.graphcore LambSquare 1
LogGradOp - Op ai.graphcore LogGrad 1
LogOp - Op ai.onnx Log 6
LoopOp - Op ai.onnx Loop 11
MatMulBaseGradOp - MatMulBaseOp
MatMulBaseOp - Op
MatMulLhsGradOp - MatMulBaseGradOp ai.graphcore MatMulLhsGrad 1
MatMulOp - MatMulBaseOp ai.onnx MatMul 9
MatMulRhsGradOp - MatMulBaseGradOp ai.graphcore MatMulRhsGrad 1
MaxArgGradOp - Op ai.graphcore MaxArgGrad 1
MaxOp - Op ai.onnx Max 6
MaxPoolOp - HasReceptiveFieldOp ai.onnx MaxPool 11
ModifyRandomSeedOp - Op ai.graphcore ModifyRandomSeed 1
MulArg0GradOp - Op ai.graphcore MulArg0Grad 1
MulArg1GradOp - Op ai.graphcore MulArg1Grad 1
MulLhsInplaceOp - Op ai.graphcore MulLhsInplace 1
MulOp - Op ai.onnx Mul 7
MulRhsInplaceOp - Op ai.graphcore MulRhsInplace 1
MultiConvBaseOp - Op
MultiExchangeOp exchange Op ai.graphcore MultiExchange 1
NegateGradOp - Op
NegateOp - Op ai.onnx Neg 6
NllGradOp - Op ai.graphcore NllGrad 1
NllOp - Op ai.graphcore Nll 1
NlllWithSoftmaxGradDirectOp - Op ai.graphcore NlllWithSoftmaxGradDirect 1
NotOp - Op ai.onnx Not 1
OnehotGradOp - Op
OnehotOp - Op ai.onnx OneHot 9
OrOp - Op ai.onnx Or 7
Pow2ScaleThenCastOp - Op ai.graphcore Pow2ScaleThenCast 1
PowArg0GradOp - Op ai.graphcore PowArg0Grad 1
PowArg1GradOp - Op ai.graphcore PowArg1Grad 1
PowLhsInplaceOp - Op ai.graphcore PowLhsInplace 1
PowOp - Op ai.onnx Pow 7
PrintTensorOp - Op ai.graphcore PrintTensor 1
RandomNormalLikeOp - Op
RandomNormalOp - Op ai.onnx RandomNormal 1
RandomUniformLikeOp - Op
RandomUniformOp - Op ai.onnx RandomUniform 1
ReduceL1GradOp - Op ai.graphcore ReduceL1Grad 1
ReduceL1Op - Op ai.onnx ReduceL1 1
ReduceL2GradOp - Op ai.graphcore ReduceL2Grad 1
ReduceL2Op - Op ai.onnx ReduceL2 1
ReduceLogSumExpGradOp - Op ai.graphcore ReduceLogSumExpGrad 1
ReduceLogSumExpOp - Op ai.onnx ReduceLogSumExp 1
ReduceLogSumGradOp - Op ai.graphcore ReduceLogSumGrad 1
ReduceLogSumOp - Op ai.onnx ReduceLogSum 1
ReduceMaxGradOp - Op ai.graphcore ReduceMaxGrad 1
ReduceMaxOp - Op ai.onnx ReduceMax 1
ReduceMeanGradOp - Op ai.graphcore ReduceMeanGrad 1
ReduceMeanOp - Op ai.onnx ReduceMean 1
ReduceMedianGradOp - Op ai.graphcore ReduceMedianGrad 1
ReduceMedianOp - Op ai.graphcore ReduceMedian 1
ReduceMinGradOp - Op ai.graphcore ReduceMinGrad 1
ReduceMinOp - Op ai.onnx ReduceMin 1
ReduceProdGradOp - Op ai.graphcore ReduceProdGrad 1
ReduceProdOp - Op ai.onnx ReduceProd 1
ReduceSumGradOp - Op ai.graphcore ReduceSumGrad 1
ReduceSumOp - Op ai.onnx ReduceSum 1
ReduceSumSquareGradOp - Op ai.graphcore ReduceSumSquareGrad 1
ReduceSumSquareOp - Op ai.onnx ReduceSumSquare 1
ReluGradOp - Op ai.graphcore ReluGrad 1
ReluInplaceOp - Op ai.graphcore ReluInplace 1
ReluOp - Op ai.onnx Relu 6
RemoteCodeLoadOp exchange Op ai.graphcore RemoteCodeLoad 1
RemoteLoadInplaceOp exchange Op ai.graphcore RemoteLoadInplace 1
RemoteLoadOp exchange Op ai.graphcore RemoteLoad 1
RemoteStoreOp exchange Op ai.graphcore RemoteStore 1
ReplicatedAllGatherOp collectives Op ai.graphcore ReplicatedAllGather 1
ReplicatedAllReduceInplaceOp collectives Op ai.graphcore ReplicatedAllReduceInplace 1
ReplicatedAllReduceOp collectives Op ai.graphcore ReplicatedAllReduce 1
ReplicatedReduceScatterOp collectives Op ai.graphcore ReplicatedReduceScatter 1
ReshapeGradOp - Op ai.graphcore ReshapeGrad 1
ReshapeInplaceOp - Op ai.graphcore ReshapeInplace 1
ReshapeOp - Op ai.onnx Reshape 5
ResizeOp - Op ai.graphcore Resize 1
RoiAlignOp - Op ai.onnx RoiAlign 10
ScaledAddLhsInplaceOp - Op ai.graphcore ScaledAddLhsInplace 1
ScaledAddOp - Op ai.graphcore ScaledAdd 1
ScaledAddRhsInplaceOp - Op ai.graphcore ScaledAddRhsInplace 1
ScatterDataGradOp - Op ai.graphcore ScatterDataGrad 1
ScatterOp - Op ai.onnx Scatter 11
ScatterReduceGradOp - Op
ScatterReduceOp - Op ai.graphcore ScatterReduce 1
ScatterUpdateGradOp - Op ai.graphcore ScatterUpdateGrad 1
ShapedDropoutGradOp - Op
ShapedDropoutOp - Op ai.graphcore ShapedDropout 1
SignInplaceOp - Op ai.graphcore SignInplace 1
SignOp - Op ai.onnx Sign 9
SinGradOp - Op ai.graphcore SinGrad 1
SinOp - Op ai.onnx Sin 7
SliceGradOp - Op ai.graphcore SliceGrad 1
SliceInplaceOp - Op ai.graphcore SliceInplace 1
SliceOp - Op ai.onnx Slice 11
SoftmaxGradDirectOp - Op ai.graphcore SoftmaxGradDirect 1
SoftmaxGradOp - Op ai.graphcore SoftmaxGrad 1
SoftmaxInplaceOp - Op ai.graphcore SoftmaxInplace 1
SoftmaxOp - Op ai.onnx Softmax 11
SparseAccumulateOp - AccumulateBaseOp ai.graphcore PopartSparseAccumulate 1
SplitGradOp - Op ai.graphcore SplitGrad 1
SplitOp - Op ai.onnx Split 2
SqrtGradOp - Op ai.graphcore SqrtGrad 1
SqrtOp - Op ai.onnx Sqrt 6
SubsampleGradOp - Op ai.graphcore SubsampleGrad 1
SubsampleInplaceOp - Op ai.graphcore SubsampleInplace 1
SubsampleOp - Op ai.graphcore Subsample 1
SubtractArg0GradOp - Op
SubtractArg1GradOp - Op
SubtractOp - Op ai.onnx Sub 7
SumArgGradOp - Op ai.graphcore SumArgGrad 1
SumOp - Op ai.onnx Sum 6
SwishGradOp - Op ai.graphcore SwishGrad 1
SwishInplaceOp - Op ai.graphcore SwishInplace 1
SwishOp - Op ai.graphcore Swish 1
TanhGradOp - Op ai.graphcore TanhGrad 1
TanhOp - Op ai.onnx Tanh 6
TiedGatherOp - Op ai.graphcore PopartTiedGather 1
TopKGradOp - Op ai.graphcore TopKGrad 1
TopKOp - Op ai.onnx TopK 1
TransposeGradOp - Op ai.graphcore TransposeGrad 1
TransposeInplaceOp - Op ai.graphcore TransposeInplace 1
TransposeOp - Op ai.onnx Transpose 1
VarUpdateOp - Op
VarUpdateWithUpdaterOp - VarUpdateOp
WhereLhsInplaceOp - Op ai.graphcore WhereLhsInplace 1
WhereOp - Op ai.onnx Where 9
WhereRhsInplaceOp - Op ai.graphcore WhereRhsInplace 1
WhereXGradOp - Op ai.graphcore WhereXGrad 1
WhereYGradOp - Op ai.graphcore WhereYGrad 1
"""
