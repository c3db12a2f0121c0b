"""Operators that exist only in PopART's op list, without translation: the step program does their work."""

from __future__ import annotations

from ..operator import NOT_OUTLINED, gradient, operator

operator("AutoLossScaleProxy", gradients=[gradient("AutoLossScaleProxyGrad")])
operator("GetRandomSeed", NOT_OUTLINED)
operator("LossScaleUpdate", gradients=())
operator("Restore", NOT_OUTLINED, inplace="RestoreInplace")
operator("Stash", NOT_OUTLINED)
operator("UnaryZeroGrad", gradients=())
