"""The update rules: pure functions of weight, state, gradient and traced hyperparameters."""

from __future__ import annotations

from ..adam import Adam
from ..adaptive import Adaptive
from ..base import Optimizer
from ..sgd import SGD
from .adam import AdamRule
from .adaptive import AdaptiveRule
from .common import Reduction as Reduction
from .common import Rule as Rule
from .common import Scalar as Scalar
from .common import Slot as Slot
from .common import Weight as Weight
from .sgd import sgd_rule


def rule_for(optimizer: Optimizer, weight: Weight, reduction: Reduction) -> Rule:
    """The rule that updates one weight; TypeError for an optimizer class without a rule."""
    match optimizer:
        case SGD():
            return sgd_rule(optimizer, weight, reduction)
        case Adam():
            return AdamRule(optimizer, weight, reduction)
        case Adaptive():
            return AdaptiveRule(optimizer, weight, reduction)
    raise TypeError(f"No update rule for optimizer {type(optimizer).__name__}")
