"""Ops that cannot run as they are, and the patterns that rewrite them."""

from __future__ import annotations

import patterns

# Ops that only exist to be rewritten, by the pattern that does it. {op} in a message is `domain.Type:version`.
_MISSING = "Could not create opx for '{op}'. This op should have been removed by pattern {pattern}"
_REQUIRED = '{op} should be optimised out, "{pattern}" pattern is required'
UNLOWERED: dict[str, tuple[str, str]] = {
    "Cosh": ("CoshOp", _MISSING),
    "ConvTranspose": ("ConvTranspose", _MISSING),
    "Upsample": ("UpsampleToResize", _MISSING),
    "PackedDataBlock": ("PackedDataBlock", _MISSING),
    "Atan2Arg0Grad": ("Atan2Arg0GradOp", _MISSING),
    "Atan2Arg1Grad": ("Atan2Arg1GradOp", _MISSING),
    "CosGrad": ("CosGradOp", _MISSING),
    "ExpGrad": ("ExpGradOp", _MISSING),
    "Expm1Grad": ("Expm1GradOp", _MISSING),
    "Log1pGrad": ("Log1pGradOp", _MISSING),
    "ReciprocalGrad": ("ReciprocalGradOp", _MISSING),
    "SqrtGrad": ("SqrtGradOp", _MISSING),
    "AbsGrad": ("AbsGradOp", _MISSING),
    "SubArg1Grad": ("SubtractArg1GradOp", _MISSING),
    "SplitGrad": ("SplitGradOpToConcat", _MISSING),
    "ConvFlipWeightsGrad": ("ConvFlipWeightsGradOp", _MISSING),
    "MulArg0Grad": ("MulArgGradOp", _REQUIRED),
    "MulArg1Grad": ("MulArgGradOp", _REQUIRED),
    "DivArg0Grad": ("DivArg0GradOp", _REQUIRED),
    "DivArg1Grad": ("DivArg1GradOp", _REQUIRED),
    "PowArg0Grad": ("PowArg0GradOp", _REQUIRED),
    "PowArg1Grad": ("PowArg1GradOp", _REQUIRED),
    "FmodArg0Grad": ("FmodArg0GradOp", _REQUIRED),
    "LogGrad": ("LogGradOp", _REQUIRED),
    "SinGrad": ("SinGradOp", _REQUIRED),
}


def may_be_unlowered(selection: patterns.PatternSet) -> bool:
    """Whether a pattern is off that some op needs; only then `unlowered` is worth its time."""
    return any(pattern not in selection for pattern, _ in UNLOWERED.values())
