"""What a program keeps on its devices from run to run, for whoever stores it and brings it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from .layout import from_device_order, to_device_order
from .placement import to_host
from .program import Variable


@dataclass(frozen=True)
class Held:
    """Resident arrays of a session.

    Attributes
    ----------
    arrays : mapping of str to jax.Array
        What runs change, by name, as it lies on the devices.
    variables : mapping of str to Variable
        Facts of those that are variables.
    replace : callable
        Takes arrays by name in their place.
    facts : mapping of str to JSON
        What else decides how the program goes on.
    model : mapping of str to str
        What must be the same in a program that goes on from here.
    """

    arrays: Mapping[str, jax.Array]
    variables: Mapping[str, Variable]
    replace: Callable[[Mapping[str, jax.Array], Mapping[str, Any]], None]
    facts: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, jax.Array]:
        """The arrays that hold anything, with their dimensions in their own order."""
        return {n: self._turned(from_device_order, n, x) for n, x in self.arrays.items() if x.size}

    def put_back(self, plain: Mapping[str, jax.Array], facts: Mapping[str, Any]) -> None:
        """Take over arrays as `plain` gave them."""
        self.replace({n: self._turned(to_device_order, n, x) for n, x in plain.items()}, facts)

    def _turned(self, turn: Callable[[Variable, Any], Any], name: str, x: jax.Array) -> jax.Array:
        variable = self.variables.get(name)
        if variable is None or variable.order is None:
            return x
        return jax.jit(lambda y: turn(variable, y))(x)  # other processes may hold parts of it


def fed_numbers(x: Any) -> list[float] | None:
    """A small array that is the same everywhere, as JSON has it."""
    return None if x is None else (to_host(x) if isinstance(x, jax.Array) else np.asarray(x)).tolist()
