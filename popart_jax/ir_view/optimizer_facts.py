"""The structure of an optimizer description, as the view needs it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from ..enums import WeightDecayMode
from ..optimizers import SGD, Adam, Adaptive, Optimizer
from .facts import ClipGroup, OptimizerFacts

Family = Literal["SGD", "Adam", "Adaptive"]


def optimizer_facts(optimizer: Optimizer, weights: Collection[str]) -> OptimizerFacts:
    """Which ops and scalars the updates of `weights` have.

    Parameters
    ----------
    optimizer
        A public optimizer object.
    weights
        Names of the trained weights.
    """
    if not isinstance(optimizer, (SGD, Adam, Adaptive)):
        raise TypeError(f"expected SGD, Adam or Adaptive, got {type(optimizer).__name__}")
    specific = frozenset(w for w in weights if optimizer.hasSpecific(w))
    mode = optimizer.accumulator.name if isinstance(optimizer, SGD) else optimizer.mode.name
    with_momentum = optimizer.has_momentum if isinstance(optimizer, (SGD, Adaptive)) else lambda weight: False
    return OptimizerFacts(
        family=_family(optimizer),
        mode=mode,
        nonconst={f: _nonconst(optimizer, f, specific) for f in optimizer._defaults},
        specific=specific,
        momentum=frozenset(w for w in weights if with_momentum(w)),
        nesterov=frozenset(w for w in weights if isinstance(optimizer, SGD) and optimizer.has_nesterov(w)),
        weight_decay=frozenset(w for w in weights if _may_be_nonzero(optimizer, "weightDecay", w)),
        l2=not isinstance(optimizer, SGD) and optimizer.decay_mode is WeightDecayMode.L2Regularization,
        scaled_state=isinstance(optimizer, Adam) and optimizer.scaled_state,
        trust_ratio=isinstance(optimizer, Adam) and _may_be_nonzero(optimizer, "maxWeightNorm", None),
        clips=tuple(
            ClipGroup(None if c.covers_all() else tuple(c.weightIds), c.maxNorm) for c in optimizer.clip_norms()
        ),
    )


def _family(optimizer: Optimizer) -> Family:
    if isinstance(optimizer, SGD):
        return "SGD"
    return "Adam" if isinstance(optimizer, Adam) else "Adaptive"


def _nonconst(optimizer: Optimizer, field: str, specific: frozenset[str]) -> frozenset[str]:
    names = {"": optimizer.value(field)} | {w: optimizer.value(field, w) for w in specific}
    return frozenset(name for name, value in names.items() if not value.isConst())


def _may_be_nonzero(optimizer: Optimizer, field: str, weight: str | None) -> bool:
    value = optimizer.value(field, weight)
    return not value.isConst() or value.val() != 0
