"""Where a program's vector of hyperparameters holds each scalar, and what follows for an optimizer. Without JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .base import Optimizer
from .rules import Reduction, Rule, Slot, Weight, rule_for


@dataclass(frozen=True)
class ScalarPlaces:
    """Positions of all scalars in the vector; constants have one too, so that they take part in the same arithmetic."""

    weights: Mapping[str, Weight]  # the trained weights
    reduction: Reduction  # how their gradients combine
    places: Mapping[str, Mapping[str, int]]  # for each weight, positions by base name of the scalar
    size: int  # length of the vector
    loss_scale: int = 0  # position of the loss scale

    @classmethod
    def noted(cls, note: Mapping[str, Any]) -> ScalarPlaces:
        """Restore positions from their `note`."""
        weights = {n: Weight(n, np.dtype(kind), group) for n, kind, group, _ in note["weights"]}
        places = {n: found for n, _, _, found in note["weights"]}
        return cls(weights, Reduction(**note["reduction"]), places, note["size"], note["loss_scale"])

    @property
    def note(self) -> dict[str, Any]:
        """All of it as a JSON value."""
        rows = [(n, w.dtype.name, w.group, dict(self.places[n])) for n, w in self.weights.items()]
        reduction = asdict(self.reduction)
        return {"weights": rows, "reduction": reduction, "size": self.size, "loss_scale": self.loss_scale}

    def rules(self, optimizer: Optimizer) -> dict[str, Rule]:
        """The rule of every weight."""
        return {name: rule_for(optimizer, weight, self.reduction) for name, weight in self.weights.items()}

    def values(self, optimizer: Optimizer) -> np.ndarray:
        """Values of all scalars for an optimizer, float32."""
        vector = np.zeros(self.size, np.float32)
        vector[self.loss_scale] = optimizer.getLossScalingVal()
        for name, rule in self.rules(optimizer).items():
            for scalar in rule.scalars():
                value = scalar.value
                if scalar.of_weight_type:
                    value = np.float32(np.asarray(value).astype(self.weights[name].dtype))
                vector[self.places[name][scalar.base]] = value
        return vector


def first_value(slot: Slot, rule: Rule, like: np.ndarray) -> np.ndarray:
    """The value with which optimizer state starts; `like` is its weight, or for a scalar zeros of its shape."""
    return slot.init(like, {s.base: s.value for s in rule.scalars()})
