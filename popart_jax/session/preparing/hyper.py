"""The vector of hyperparameters that a program takes as input: positions, names and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...execution import Type
from ...optimizers import Optimizer
from ...optimizers.rules import Reduction, Rule, Weight, rule_for

LOSS_SCALE = "lossScaling_"


@dataclass(frozen=True)
class HyperLayout:
    """Positions of all scalars in the vector; constants have one too, so that they take part in the same arithmetic.

    Attributes
    ----------
    places : mapping of str to (mapping of str to int)
        For each weight, positions by base name of the scalar.
    by_tensor : mapping of str to int
        Positions of the scalars that exist as tensors, by tensor name.
    types : mapping of str to Type
        Types of those tensors.
    loss_scale : int
        Position of the loss scale.
    """

    weights: Mapping[str, Weight]
    reduction: Reduction
    places: Mapping[str, Mapping[str, int]]
    size: int
    loss_scale: int = 0
    by_tensor: Mapping[str, int] = field(default_factory=dict)
    types: Mapping[str, Type] = field(default_factory=dict)

    def rules(self, optimizer: Optimizer) -> dict[str, Rule]:
        """The rule of every weight."""
        return {name: rule_for(optimizer, weight, self.reduction) for name, weight in self.weights.items()}

    def inverse_scales(self, optimizer: Optimizer) -> dict[str, int]:
        """Names that automatic loss scaling gives to the scalars with the inverse loss scale, and their places."""
        rules = self.rules(optimizer).items()
        found = [self.places[w][s.base] for w, rule in rules for s in rule.scalars() if s.loss_power < 0]
        return {f"finalInverseLossScale_{i}": place for i, place in enumerate(dict.fromkeys(found))}

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


def lay_out(
    optimizer: Optimizer,
    weights: Mapping[str, Weight],
    reduction: Reduction,
    loss: Type,
    wide_loss: bool,
    streamed: bool,
) -> HyperLayout:
    """Give every scalar of every weight a position; weights that share a value share the position.

    `streamed` tells whether the loss scale exists as a tensor.
    """
    places: dict[str, dict[str, int]] = {}
    taken: dict[tuple[str, int], int] = {}
    by_tensor: dict[str, int] = {}
    types: dict[str, Type] = {}
    for name, weight in weights.items():
        kind = type_name(weight.dtype)
        specific = optimizer.hasSpecific(name)
        places[name] = {}
        for scalar in rule_for(optimizer, weight, reduction).scalars():
            tensor = f"{scalar.base}___specific___{name}" if specific else f"{scalar.base}___default___{kind}"
            place = taken.setdefault((tensor, weight.group), len(taken) + 1)
            places[name][scalar.base] = place
            if not scalar.const:
                by_tensor.setdefault(tensor, place)
                types.setdefault(tensor, Type((), weight.dtype if scalar.of_weight_type else np.dtype(np.float32)))
    if streamed:
        tensor = loss_scale_name(loss)
        by_tensor[tensor] = 0
        types[tensor] = Type((), np.dtype(np.float32) if wide_loss else loss.dtype)
    return HyperLayout(dict(weights), reduction, places, len(taken) + 1, 0, by_tensor, types)


def loss_scale_name(loss: Type) -> str:
    """Name of the streamed loss scale."""
    return LOSS_SCALE + type_name(loss.dtype)


def type_name(dtype: np.dtype) -> str:
    """PopART's name of a floating point type."""
    return {"float16": "FLOAT16", "bfloat16": "BFLOAT16"}.get(dtype.name, "FLOAT")
