"""Computations on a program's weights that are done once, when they are loaded. Does not import JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .host_program import HostProgram

PREPARE = "/weights"
"""Suffix of a handle, for the program that prepares a step's fixed variables."""

View = tuple[str, tuple[int, ...]]
"""``("transpose", permutation)`` or ``("reshape", shape)``."""

Origin = tuple[int, tuple[View, ...]]
"""Index of a result, and the views that turn it back into the original weight."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """The computation of a program's arguments from its weights, ready to run."""

    call: Any  # takes the weights and returns the values computed from them
    # for each argument in place of the weights: the index of the weight that it is, None for `call`'s next result
    passed: tuple[int | None, ...]
    back: Mapping[int, Origin]  # the weights that a result of `call` holds in another layout

    @classmethod
    def noted(cls, call: Any, note: Mapping[str, Any]) -> Preparation:
        """Restore a preparation from a file: its compiled program, None without one, and its `note`."""
        back = {weight: (result, tuple((k, tuple(v)) for k, v in moves)) for weight, result, moves in note["back"]}
        return cls(HostProgram.noted(note["host"]) if call is None else call, tuple(note["passed"]), back)

    @property
    def code(self) -> Any:
        """The compiled program; None if NumPy computes it."""
        return None if isinstance(self.call, HostProgram) else self.call

    @property
    def note(self) -> dict[str, Any]:
        """All that is stored besides `code`, as a JSON value."""
        host = self.call.note if isinstance(self.call, HostProgram) else None
        back = [(w, result, moves) for w, (result, moves) in self.back.items()]
        return {"passed": self.passed, "back": back, "host": host}

    def take(self, weights: Sequence[Any], put: Callable[[np.ndarray], Any]) -> tuple[Any, ...]:
        """The arguments in place of the weights; `put` transfers NumPy results to the device."""
        made = iter(self.call(*weights))
        made = map(put, made) if isinstance(self.call, HostProgram) else made
        return tuple(next(made) if p is None else weights[p] for p in self.passed)

    def views(self, arguments: Sequence[Any]) -> dict[int, np.ndarray]:
        """The weights that these arguments hold in another layout, as views of their memory."""
        return self.seen([np.asarray(x) for x, p in zip(arguments, self.passed, strict=True) if p is None])

    def seen(self, made: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
        """The weights that results of `call` hold in another layout, as views of these."""
        found = {weight: (made[result], view_as(made[result], views)) for weight, (result, views) in self.back.items()}
        return {weight: view for weight, (array, view) in found.items() if np.may_share_memory(array, view)}


def view_as(array: np.ndarray, views: Sequence[View]) -> np.ndarray:
    """Apply the views in order to an array; the result is a copy where no view is possible."""
    for kind, value in views:
        array = array.transpose(value) if kind == "transpose" else array.reshape(value)
    return array
