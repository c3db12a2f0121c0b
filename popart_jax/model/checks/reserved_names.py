"""Reserved prefixes: names of tensors that the runtime creates, which a model's tensors must not have.

`EXPOSED` have a function ``reserved<Key>Prefix()``; `INTERNAL` are used in the same way but have none.
"""

from __future__ import annotations

from collections.abc import Callable

EXPOSED: dict[str, str] = {
    "Accl1": "Accl1___",
    "Accl2": "Accl2___",
    "Accl3": "Accl3___",
    "AcclFinalOut": "AcclOutOfAcclUpdate___",
    "Accl": "Accl___",
    "AcclToReduce": "AcclIntoReduce___",
    "AcclToUpdate": "AcclIntoUpdate___",
    "Accum": "Accum___",
    "AdamUpdater": "AdamUpdater___",
    "AutomaticLossScale": "AutomaticLossScaleProxy___",
    "DefaultAdamBeta1": "adamBeta1___default___",
    "DefaultAdamBeta2": "adamBeta2___default___",
    "DefaultAdamEps": "adamEps___default___",
    "DefaultDampeningScaleFactor1": "dampeningScaleFactor1___default___",
    "DefaultLearningRate": "learningRate___default___",
    "DefaultLossScaling": "lossScaling___default___",
    "DefaultMaxWeightNorm": "maxWeightNorm___default___",
    "DefaultScaledLearningRate0": "scaledLearningRate0___default___",
    "DefaultScaledLearningRate1": "scaledLearningRate1___default___",
    "DefaultScaledMomentum1": "scaledMomentum1___default___",
    "DefaultScaledWeightDecay1": "scaledWeightDecay1___default___",
    "DefaultStep": "step___default___",
    "DefaultWeightDecay": "weightDecay___default___",
    "DefaultWeightDecayScaleFactor0": "weightDecayScaleFactor0___default___",
    "FinalReducedGrad": "FinalReducedGradient___",
    "Gradient": "Gradient___",
    "LambR1Sq": "LambR1Sq___",
    "LambR2Sq": "LambR2Sq___",
    "LossScaling": "lossScaling_",
    "RandomSeed": "randomSeed___",
    "RemoteArg": "RemoteArg___",
    "Restored": "Restored___",
    "SeedModifier": "randomSeedModifier___",
    "SpecificAdamBeta1": "adamBeta1___specific___",
    "SpecificAdamBeta2": "adamBeta2___specific___",
    "SpecificAdamEps": "adamEps___specific___",
    "SpecificDampeningScaleFactor1": "dampeningScaleFactor1___specific___",
    "SpecificLearningRate": "learningRate___specific___",
    "SpecificLossScaling": "lossScaling___specific___",
    "SpecificMaxWeightNorm": "maxWeightNorm___specific___",
    "SpecificScaledLearningRate0": "scaledLearningRate0___specific___",
    "SpecificScaledLearningRate1": "scaledLearningRate1___specific___",
    "SpecificScaledMomentum1": "scaledMomentum1___specific___",
    "SpecificScaledWeightDecay1": "scaledWeightDecay1___specific___",
    "SpecificStep": "step___specific___",
    "SpecificWeightDecay": "weightDecay___specific___",
    "SpecificWeightDecayScaleFactor0": "weightDecayScaleFactor0___specific___",
    "Stashed": "Stashed___",
    "Step": "Step___",
    "UpdatedVar": "UpdatedVar___",
}

INTERNAL: dict[str, str] = {
    "anchorFinal": "anchorFinal___",
    "anchorSum": "anchorSum___",
    "cycleCount": "cycleCount___",
    "AdaptiveUpdater": "AdaptiveUpdater___",
    "ConcatInit": "ConcatInit___",
    "ConstValue": "ConstValue___",
    "Counter": "Counter___",
    "DefaultAdamGradientScaling": "adamGradientScaling___default___",
    "DefaultAdaptiveAlpha": "adaptiveAlpha___default___",
    "DefaultAdaptiveEps": "adaptiveEps___default___",
    "DefaultAdaptiveGradientScaling": "adaptiveGradientScaling___default___",
    "DefaultAdaptiveMomentum": "adaptiveMomentum___default___",
    "DefaultDampeningScaleFactor2": "dampeningScaleFactor2___default___",
    "DefaultNesterovDampeningScaleFactor1": "nesterovDampeningScaleFactor1___default___",
    "DefaultNesterovDampeningScaleFactor2": "nesterovDampeningScaleFactor2___default___",
    "DefaultNesterovGradScaleFactor1": "nesterovGradScaleFactor1___default___",
    "DefaultNesterovGradScaleFactor2": "nesterovGradScaleFactor2___default___",
    "DefaultSGDMomentum": "sgdMomentum___default___",
    "DefaultSGDWeightDecay": "sgdWeightDecay___default___",
    "DefaultScaledLearningRate2": "scaledLearningRate2___default___",
    "DefaultScaledMomentum2": "scaledMomentum2___default___",
    "GlobalNorm": "GlobalNorm___",
    "Index": "Index___",
    "Init": "Init___",
    "LoopCond": "LoopCond___",
    "LoopIterator": "Iterator___",
    "LossScaleUpdateFactor": "lossScaleUpdateFactor",
    "LossScalingRatio": "LossScalingRatio_",
    "PreviousLossScaling": "PreviousLossScaling_",
    "SpecificAdamGradientScaling": "adamGradientScaling___specific___",
    "SpecificAdaptiveAlpha": "adaptiveAlpha___specific___",
    "SpecificAdaptiveEps": "adaptiveEps___specific___",
    "SpecificAdaptiveGradientScaling": "adaptiveGradientScaling___specific___",
    "SpecificAdaptiveMomentum": "adaptiveMomentum___specific___",
    "SpecificDampeningScaleFactor2": "dampeningScaleFactor2___specific___",
    "SpecificNesterovDampeningScaleFactor1": "nesterovDampeningScaleFactor1___specific___",
    "SpecificNesterovDampeningScaleFactor2": "nesterovDampeningScaleFactor2___specific___",
    "SpecificNesterovGradScaleFactor1": "nesterovGradScaleFactor1___specific___",
    "SpecificNesterovGradScaleFactor2": "nesterovGradScaleFactor2___specific___",
    "SpecificSGDMomentum": "sgdMomentum___specific___",
    "SpecificSGDWeightDecay": "sgdWeightDecay___specific___",
    "SpecificScaledLearningRate2": "scaledLearningRate2___specific___",
    "SpecificScaledMomentum2": "scaledMomentum2___specific___",
}

ALL_PREFIXES = (*EXPOSED.values(), *INTERNAL.values())


def reserved_prefix(name: str) -> str | None:
    """The reserved prefix that a tensor name has (also behind a name scope), None if it has none."""
    return next((p for p in ALL_PREFIXES if p in name), None)


def _function(key: str, prefix: str) -> Callable[[], str]:
    def reserved() -> str:
        return prefix

    reserved.__name__ = reserved.__qualname__ = f"reserved{key}Prefix"
    reserved.__doc__ = f"The prefix ``{prefix}``."
    return reserved


FUNCTIONS = {f"reserved{key}Prefix": _function(key, prefix) for key, prefix in EXPOSED.items()}


def __getattr__(name: str) -> Callable[[], str]:
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
