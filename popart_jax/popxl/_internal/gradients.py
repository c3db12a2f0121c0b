"""Gradient operators of each class: which inputs they give gradients for, and which forward tensors they read.

One `Rule` per gradient operator. `reads` are ``i<n>`` / ``o<n>`` (forward inputs and outputs); they become inputs of
the gradient graph even where the formula does not need their values, as PopXL's interface promises. `row` is the
operator of the table that computes the gradient; without it `jax.vjp` of the forward node does.
Source: the gradient operators that PopART declares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """One gradient operator.

    Attributes
    ----------
    name : str
        Class of the gradient operator.
    of : tuple of int
        Forward inputs whose gradients it gives; empty means every input (one operator for all).
    reads : tuple of str
        Forward tensors it reads.
    row : str or None
        Row in the domain ``popxl`` for gradients from outputs.
    each : bool
        One operator per input.
    """

    name: str
    of: tuple[int, ...] = (0,)
    reads: tuple[str, ...] = ()
    row: str | None = None
    each: bool = False


def _unary(name: str, *reads: str, row: str | None = None) -> list[Rule]:
    return [Rule(name, (0,), reads, row)]


def _binary(stem: str, *reads: str) -> list[Rule]:
    return [Rule(f"{stem}Arg0GradOp", (0,), reads), Rule(f"{stem}Arg1GradOp", (1,), reads)]


_BOTH = ("i0", "i1", "o0")

RULES: dict[str, list[Rule]] = {
    "AddOp": _binary("Add"),
    "SubtractOp": [Rule("SubtractArg0GradOp", (0,)), Rule("SubtractArg1GradOp", (1,), _BOTH)],
    "MulOp": _binary("Mul", *_BOTH),
    "DivOp": _binary("Div", *_BOTH),
    "PowOp": _binary("Pow", *_BOTH),
    "FmodOp": [Rule("FmodArg0GradOp", (0,), _BOTH)],
    "SumOp": [Rule("SumArgGradOp", each=True)],
    "MaxOp": [Rule("MaxArgGradOp", reads=("i*", "o0"), each=True)],
    "ConcatOp": [Rule("ConcatGradOp", each=True)],
    "ConcatInplaceOp": [Rule("ConcatGradOp", each=True)],
    "SplitOp": _unary("SplitGradOp"),
    "ReduceSumOp": _unary("ReduceSumGradOp"),
    "ReduceMeanOp": _unary("ReduceMeanGradOp"),
    "ReduceSumSquareOp": _unary("ReduceSumSquareGradOp", "i0"),
    "ReduceL1Op": _unary("ReduceL1GradOp", "i0"),
    "ReduceL2Op": _unary("ReduceL2GradOp", "i0", "o0"),
    "ReduceMaxOp": _unary("ReduceMaxGradOp", "i0", "o0"),
    "ReduceMinOp": _unary("ReduceMinGradOp", "i0", "o0"),
    "ReduceProdOp": _unary("ReduceProdGradOp", "i0"),
    "ReduceLogSumOp": _unary("ReduceLogSumGradOp", "o0", row="ReduceLogSumGrad"),
    "ReduceLogSumExpOp": _unary("ReduceLogSumExpGradOp", "i0", "o0"),
    "ReduceMedianOp": _unary("ReduceMedianGradOp", "o1", row="ReduceMedianGrad"),
    "SliceOp": _unary("SliceGradOp"),
    "SliceInplaceOp": _unary("SliceGradOp"),
    "ReshapeOp": _unary("ReshapeGradOp"),
    "ReshapeInplaceOp": _unary("ReshapeGradOp"),
    "TransposeOp": _unary("TransposeGradOp"),
    "TransposeInplaceOp": _unary("TransposeGradOp"),
    "CastOp": _unary("CastGradOp"),
    "IdentityOp": _unary("IdentityGradOp"),
    "SubsampleOp": _unary("SubsampleGradOp"),
    "NegateOp": _unary("NegateGradOp"),
    "IoTileCopyOp": _unary("IoTileCopyOp"),
    "IpuCopyOp": _unary("IpuCopyOp"),
    "GeluOp": _unary("GeluGradOp", "i0"),
    "GeluErfOp": _unary("GeluErfGradOp", "i0"),
    "SwishOp": _unary("SwishGradOp", "i0"),
    "LogOp": _unary("LogGradOp", "i0"),
    "SinOp": _unary("SinGradOp", "i0"),
    "CosOp": _unary("CosGradOp", "i0"),
    "AbsOp": _unary("AbsGradOp", "i0"),
    "ClipOp": _unary("ClipGradOp", "o0", row="ClipGrad"),
    "ReluOp": _unary("ReluGradOp", "o0", row="ReluGrad"),
    "TanhOp": _unary("TanhGradOp", "o0", row="TanhGrad"),
    "SqrtOp": _unary("SqrtGradOp", "o0", row="SqrtGrad"),
    "ExpOp": _unary("ExpGradOp", "o0", row="ExpGrad"),
    "SoftmaxOp": _unary("SoftmaxGradOp", "o0", row="SoftmaxGrad"),
    "MatMulOp": [Rule("MatMulLhsGradOp", (0,), ("i1",)), Rule("MatMulRhsGradOp", (1,), ("i0",))],
    "GroupNormOp": [Rule("GroupNormGradOp", (0, 1, 2), ("i0", "i1", "o1", "o2"))],
    "DropoutOp": _unary("DropoutGradOp", "i1"),
    "ShapedDropoutOp": _unary("ShapedDropoutGradOp", "i1"),
    "NllOp": _unary("NllGradOp", "i0", "i1"),
    "GatherOp": _unary("GatherGradOp", "i1"),
    "TiedGatherOp": _unary("TiedGatherGradOp", "i1"),
    "WhereOp": [Rule("WhereXGradOp", (1,), ("i0",)), Rule("WhereYGradOp", (2,), ("i0",))],
    "TopKOp": _unary("TopKGradOp", "o1", row="TopKGrad"),
    "CumSumOp": _unary("CumSumGradOp", "i0"),
    "ScatterOp": [Rule("ScatterDataGradOp", (0,), ("i1",)), Rule("ScatterUpdateGradOp", (2,), ("i1",))],
    "ScatterReduceOp": [Rule("ScatterReduceGradOp", (0, 2), ("i1",))],
    "AveragePoolOp": _unary("AveragePoolGradOp", "i0", "o0"),
    "MaxPoolOp": _unary("MaxPoolGradOp", "i0", "o0"),
    "ConvOp": [Rule("ConvDataGradOp", (0,), ("i1",)), Rule("ConvWeightsGradOp", (1,), ("i0",))],
    "DynamicSliceOp": _unary("DynamicSlicePadGradOp", "i1"),
    "DynamicUpdateOp": [
        Rule("DynamicUpdateToUpdateGradOp", (0,), ("i1",)),
        Rule("DynamicUpdateUpdaterGradOp", (2,), ("i1",)),
    ],
    "OnehotOp": [Rule("OnehotGradOp", (2,), ("i0",))],
    "ResizeOp": _unary("ResizeGradOp"),
    "RoiAlignOp": _unary("RoiAlignGradOp", "i0", "i1", "i2"),
    "IdentityLossOp": _unary("IdentityLossGradOp", "i0"),
}

ZERO = frozenset({"CeilOp", "FloorOp", "SignOp"})
"""Operators whose gradient is zero everywhere."""

BLOCKED = frozenset({"DetachOp", "DetachInplaceOp", "InitOp", "ArgMaxOp", "ArgMinOp", "RandomNormalOp",
                     "RandomUniformOp",
                     "HostLoadOp", "RemoteLoadOp", "ModifyRandomSeedOp"})  # fmt: skip
"""Operators through which no gradient flows, without that being an error."""

CUSTOM: dict[str, list[Rule]] = {}
"""Rules of operators that users define (`custom_ops`)."""


def rules_of(op: Any) -> list[Rule] | None:
    """Gradient operators of a forward operator; None when it has no gradient definition."""
    name = op._class_name
    if name == "ScatterReduceOp":
        return _scatter_reduce(op)
    if len(op._node.inputs) > 2 and name in ("ConvOp", "MatMulOp"):
        return None  # float8
    return RULES.get(name, CUSTOM.get(name))


def _scatter_reduce(op: Any) -> list[Rule]:
    """What is read depends on the reduction."""
    kind = op._node.attributes["reduction"].as_string()
    reads = {"sum": ("i1",), "none": ("i1", "i0")}.get(kind, ("i1", "i0", "o0", "i2"))
    of = (0, 2) if len(op._node.inputs) > 2 else (0,)
    return [Rule("ScatterReduceGradOp", of, tuple(r for r in reads if r != "i2" or len(op._node.inputs) > 2))]
