"""The vector of hyperparameters that a program takes as input: names and types of its scalars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...execution import Type
from ...optimizers import Optimizer
from ...optimizers.places import ScalarPlaces
from ...optimizers.rules import Reduction, Weight, rule_for

LOSS_SCALE = "lossScaling_"


@dataclass(frozen=True)
class HyperLayout(ScalarPlaces):
    """Positions of all scalars in the vector, and the tensors that programs see of them."""

    # positions of the scalars that exist as tensors, by tensor name
    by_tensor: Mapping[str, int] = field(default_factory=dict[str, int])
    types: Mapping[str, Type] = field(default_factory=dict[str, Type])  # types of those tensors

    def inverse_scales(self, optimizer: Optimizer) -> dict[str, int]:
        """Names that automatic loss scaling gives to the scalars with the inverse loss scale, and their places."""
        rules = self.rules(optimizer).items()
        found = [self.places[w][s.base] for w, rule in rules for s in rule.scalars() if s.loss_power < 0]
        return {f"finalInverseLossScale_{i}": place for i, place in enumerate(dict.fromkeys(found))}


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
