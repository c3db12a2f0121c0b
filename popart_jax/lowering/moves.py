"""Which weights can be read back from what was made of them, because they were only moved about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._compat.jax import Literal

Move = tuple[str, tuple[int, ...]]
"""``("transpose", permutation)`` or ``("reshape", shape)``."""

Origin = tuple[int, tuple[Move, ...]]
"""The number of a result, and what turns it into the argument again."""


def ways_back(closed: Any) -> Mapping[int, Origin]:
    """For each argument of a program that a result of it holds in another order: which, and the way back.

    Parameters
    ----------
    closed : jax.extend.core.ClosedJaxpr
        The program.
    """
    jaxpr = closed.jaxpr
    known: dict[Any, Origin] = {v: (i, ()) for i, v in enumerate(jaxpr.invars)}
    for eqn in jaxpr.eqns:
        move = _undone(eqn)
        if move is not None and eqn.invars[0] in known:
            number, moves = known[eqn.invars[0]]
            known[eqn.outvars[0]] = (number, (move, *moves))
    found: dict[int, Origin] = {}
    for number, var in enumerate(jaxpr.outvars):
        origin = None if isinstance(var, Literal) else known.get(var)
        if origin is not None:
            found.setdefault(origin[0], (number, origin[1]))
    return found


def _undone(eqn: Any) -> Move | None:
    """What undoes an equation that only moves its operand about."""
    if isinstance(next(iter(eqn.invars), None), Literal):
        return None
    if eqn.primitive.name == "transpose":
        return "transpose", tuple(map(int, np.argsort(eqn.params["permutation"])))
    plain_reshape = eqn.primitive.name == "reshape" and eqn.params.get("dimensions") is None
    if plain_reshape or eqn.primitive.name in ("squeeze", "expand_dims"):
        return "reshape", tuple(eqn.invars[0].aval.shape)
    return None


def moved(array: np.ndarray, moves: Sequence[Move]) -> np.ndarray:
    """A view of an array after these moves; a copy where there is no such view."""
    for kind, value in moves:
        array = array.transpose(value) if kind == "transpose" else array.reshape(value)
    return array
