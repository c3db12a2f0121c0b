"""Operators that exist only in PopART's op list, without translation: the step program does their work."""

from ..operator import NOT_OUTLINED, operator

operator("AutoLossScaleProxy", gradients="g")
operator("GetRandomSeed", NOT_OUTLINED)
operator("LossScaleUpdate", gradients=())
operator("Restore", NOT_OUTLINED, inplace=True)
operator("Stash", NOT_OUTLINED)
operator("UnaryZeroGrad", gradients=())
