"""The resident state of a session, as checkpoints store and restore it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import jax
import numpy as np

from ..layout import from_device_order, to_device_order
from ..placement import to_host
from ..program import Variable


@dataclass(frozen=True)
class ResidentState:
    """Resident arrays of a session, to be stored and restored."""

    arrays: Mapping[str, jax.Array]  # arrays that runs change, by name, in their layout on the devices
    variables: Mapping[str, Variable]  # descriptions of those that are variables
    replace: Callable[[Mapping[str, jax.Array], Mapping[str, Any]], None]  # replaces the arrays, by name, and the facts
    # other state that decides how the program continues
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # facts that must be equal in a program that continues from this state
    model: Mapping[str, str] = field(default_factory=dict[str, str])

    def plain(self) -> dict[str, jax.Array]:
        """The arrays that are not empty, with dimensions in the model's order."""
        return {n: self._turned(from_device_order, n, x) for n, x in self.arrays.items() if x.size}

    def put_back(self, plain: Mapping[str, jax.Array], facts: Mapping[str, Any]) -> None:
        """Restore arrays that `plain` returned."""
        self.replace({n: self._turned(to_device_order, n, x) for n, x in plain.items()}, facts)

    def _turned(self, turn: Callable[[Variable, Any], Any], name: str, x: jax.Array) -> jax.Array:
        variable = self.variables.get(name)
        if variable is None or variable.order is None:
            return x
        jitted = jax.jit(partial(turn, variable))  # since other processes may hold parts of it
        return cast("jax.Array", jitted(x))


def fed_numbers(x: Any) -> list[float] | None:
    """A small array that is equal on all devices, as a JSON value."""
    return None if x is None else (to_host(x) if isinstance(x, jax.Array) else np.asarray(x)).tolist()
