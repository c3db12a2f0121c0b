"""Finds prepared weights that only changed their layout, so that the original weight is a view of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..._compat.jax import Literal
from ...preparation import Origin, View


def inverse_views(closed: Any) -> Mapping[int, Origin]:
    """For each argument that a result holds in another layout: the result's index, and the views that undo this."""
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
    """The view that undoes an equation which only changes the layout of its operand; None for other equations."""
    if isinstance(next(iter(eqn.invars), None), Literal):
        return None
    if eqn.primitive.name == "transpose":
        return "transpose", tuple(map(int, np.argsort(eqn.params["permutation"])))
    plain_reshape = eqn.primitive.name == "reshape" and eqn.params.get("dimensions") is None
    if plain_reshape or eqn.primitive.name in ("squeeze", "expand_dims"):
        return "reshape", tuple(eqn.invars[0].aval.shape)
    return None
