"""Which row of the operator table runs the operators of a class.

Operators whose meaning is ONNX's or PopART's use that row (in-place ones the row of their pure form: the node's effects
say the rest); the others have a row of their own in the domain ``popxl``, named like their identifier.
"""

from __future__ import annotations

from .classes import DEFINED_ROWS, identifier

Row = tuple[str, str, int]

_ONNX: dict[str, tuple[str, int]] = {
    "AbsOp": ("Abs", 13), "AddOp": ("Add", 14), "AndOp": ("And", 7), "AveragePoolOp": ("AveragePool", 19),
    "BatchNormOp": ("BatchNormalization", 9), "CastOp": ("Cast", 9), "CeilOp": ("Ceil", 13), "ClipOp": ("Clip", 6),
    "ConcatOp": ("Concat", 13), "ConvOp": ("Conv", 11), "ConvTransposeOp": ("ConvTranspose", 11), "CosOp": ("Cos", 7),
    "DivOp": ("Div", 14), "EqualOp": ("Equal", 13), "ExpOp": ("Exp", 13), "FloorOp": ("Floor", 13),
    "GreaterOp": ("Greater", 13), "IdentityOp": ("Identity", 16), "IsInf": ("IsInf", 10), "IsNaN": ("IsNaN", 13),
    "LogOp": ("Log", 13), "MaxOp": ("Max", 13), "MaxPoolOp": ("MaxPool", 11), "MulOp": ("Mul", 14),
    "NegateOp": ("Neg", 13), "NotOp": ("Not", 1), "OnehotOp": ("OneHot", 11), "OrOp": ("Or", 7), "PowOp": ("Pow", 15),
    "ReduceL1Op": ("ReduceL1", 11), "ReduceL2Op": ("ReduceL2", 11), "ReduceLogSumOp": ("ReduceLogSum", 11),
    "ReduceLogSumExpOp": ("ReduceLogSumExp", 11), "ReduceMaxOp": ("ReduceMax", 11), "ReduceMeanOp": ("ReduceMean", 11),
    "ReduceMinOp": ("ReduceMin", 11), "ReduceProdOp": ("ReduceProd", 11), "ReduceSumOp": ("ReduceSum", 11),
    "ReduceSumSquareOp": ("ReduceSumSquare", 11), "ReluOp": ("Relu", 14), "ReshapeOp": ("Reshape", 1),
    "RoiAlignOp": ("RoiAlign", 10),
    "ScatterOp": ("ScatterElements", 13), "SinOp": ("Sin", 7), "SoftmaxOp": ("Softmax", 13),
    "SplitOp": ("Split", 2), "SqrtOp": ("Sqrt", 13), "SubtractOp": ("Sub", 14), "SumOp": ("Sum", 13),
    "TanhOp": ("Tanh", 13), "TransposeOp": ("Transpose", 13), "WhereOp": ("Where", 16), "MatMulOp": ("MatMul", 13),
}  # fmt: skip

_GRAPHCORE = {
    "GeluOp": "Gelu", "GeluErfOp": "GeluErf", "SwishOp": "Swish", "DetachOp": "Detach", "FmodOp": "Fmod",
    "IncrementModOp": "IncrementMod", "DynamicSliceOp": "DynamicSlice", "DynamicUpdateOp": "DynamicUpdate",
    "GroupNormOp": "GroupNormalization", "ReduceMedianOp": "ReduceMedian", "SliceOp": "Slice",
    "SubsampleOp": "Subsample", "ScatterReduceOp": "ScatterReduce",
}  # fmt: skip

_PURE_FORM = {
    "AddLhsInplaceOp": "AddOp", "AddRhsInplaceOp": "AddOp", "MulLhsInplaceOp": "MulOp", "MulRhsInplaceOp": "MulOp",
    "PowLhsInplaceOp": "PowOp", "CeilInplaceOp": "CeilOp", "ClipInplaceOp": "ClipOp", "ConcatInplaceOp": "ConcatOp",
    "ExpInplaceOp": "ExpOp", "FloorInplaceOp": "FloorOp", "GeluInplaceOp": "GeluOp", "GeluErfInplaceOp": "GeluErfOp",
    "IncrementModInplaceOp": "IncrementModOp", "ReluInplaceOp": "ReluOp", "ReshapeInplaceOp": "ReshapeOp",
    "SignInplaceOp": "SignOp", "SliceInplaceOp": "SliceOp", "SoftmaxInplaceOp": "SoftmaxOp",
    "SubsampleInplaceOp": "SubsampleOp", "SwishInplaceOp": "SwishOp", "TransposeInplaceOp": "TransposeOp",
    "DetachInplaceOp": "DetachOp", "DynamicUpdateInplaceOp": "DynamicUpdateOp", "ScaledAddLhsInplaceOp": "ScaledAddOp",
    "ReplicatedAllReduceInplaceOp": "ReplicatedAllReduceOp", "RemoteLoadInplaceOp": "RemoteLoadOp",
}  # fmt: skip


def pure_form(class_name: str) -> str:
    """The class without effects that computes the same."""
    return _PURE_FORM.get(class_name, class_name)


def node_row(class_name: str) -> Row:
    """Domain, operator and version of the row."""
    pure = pure_form(class_name)
    if pure in DEFINED_ROWS:
        return DEFINED_ROWS[pure]
    if pure in _ONNX:
        op_type, version = _ONNX[pure]
        return "", op_type, version
    if pure in _GRAPHCORE:
        return "ai.graphcore", _GRAPHCORE[pure], 1
    return "popxl", identifier(pure).type, 1
