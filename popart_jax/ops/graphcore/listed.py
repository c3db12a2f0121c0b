"""Operators that stand only in PopART's op list: nothing is translated, the step program does what they show."""

from __future__ import annotations

from ..operator import NOT_OUTLINED, gradient, operator

operator("AutoLossScaleProxy", gradients=[gradient("AutoLossScaleProxyGrad")])
operator("GetRandomSeed", NOT_OUTLINED)
operator("LossScaleUpdate", gradients=())
operator("Restore", NOT_OUTLINED, inplace="RestoreInplace")
operator("Stash", NOT_OUTLINED)
operator("UnaryZeroGrad", gradients=())
