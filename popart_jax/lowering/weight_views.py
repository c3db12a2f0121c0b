"""Which weights are views of what was made of them, because that only changed their layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._compat.jax import Literal

View = tuple[str, tuple[int, ...]]
"""``("transpose", permutation)`` or ``("reshape", shape)``."""

Origin = tuple[int, tuple[View, ...]]
"""The number of a result, and what turns it into the argument again."""


def inverse_views(closed: Any) -> Mapping[int, Origin]:
    """For each argument that a result of a program holds in another order: which result, and the views that undo it.

    Parameters
    ----------
    closed : jax.extend.core.ClosedJaxpr
        The program.
    """
    jaxpr = closed.jaxpr
    known: dict[Any, Origin] = {v: (i, ()) for i, v in enumerate(jaxpr.invars)}
    for eqn in jaxpr.eqns:
        undone = _undone(eqn)
        if undone is not None and eqn.invars[0] in known:
            number, views = known[eqn.invars[0]]
            known[eqn.outvars[0]] = (number, (undone, *views))
    found: dict[int, Origin] = {}
    for number, var in enumerate(jaxpr.outvars):
        origin = None if isinstance(var, Literal) else known.get(var)
        if origin is not None:
            found.setdefault(origin[0], (number, origin[1]))
    return found


def _undone(eqn: Any) -> View | None:
    """The view that undoes an equation which only changes how its operand is looked at."""
    if isinstance(next(iter(eqn.invars), None), Literal):
        return None
    if eqn.primitive.name == "transpose":
        return "transpose", tuple(map(int, np.argsort(eqn.params["permutation"])))
    plain_reshape = eqn.primitive.name == "reshape" and eqn.params.get("dimensions") is None
    if plain_reshape or eqn.primitive.name in ("squeeze", "expand_dims"):
        return "reshape", tuple(eqn.invars[0].aval.shape)
    return None


def seen_as(array: np.ndarray, views: Sequence[View]) -> np.ndarray:
    """An array seen through these views in turn; a copy where there is no such view."""
    for kind, value in views:
        array = array.transpose(value) if kind == "transpose" else array.reshape(value)
    return array
