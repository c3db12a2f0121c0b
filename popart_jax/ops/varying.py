"""Loops, branches and gradients inside `jax.shard_map`.

There a value's type lists the mesh axes along which it may differ between devices: along these it is *varying*. JAX
requires that carried values of a loop keep their type, that branches agree, and that a gradient has its operand's type.
Zeros and weights are equal on all devices, and become varying once they are combined with a batch. So loops and
branches use this module, which casts such values beforehand. Outside `shard_map` it adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jax
from jax import lax

from .._compat.jax import checks_varying_axes, varying_axes


def scan(body: Callable[[Any, Any], Any], init: Any, xs: Any = None, length: int | None = None, **how: Any) -> Any:
    """`lax.scan`, with carried values as varying as the body makes them."""
    if checks_varying_axes():
        first = jax.tree.map(_first, xs) if length is None else xs
        init = _settled(lambda carried: body(carried, first)[0], init)
    return lax.scan(body, init, xs, length=length, **how)


def while_loop(goes_on: Callable[[Any], Any], body: Callable[[Any], Any], init: Any) -> Any:
    """`lax.while_loop`; if devices run different numbers of iterations, all carried values are varying."""
    if checks_varying_axes():

        def stepped(carried: Any) -> Any:
            return varying(body(carried), varying_axes(jax.eval_shape(goes_on, carried)))

        init = _settled(stepped, init)
    return lax.while_loop(goes_on, body, init)


def fori_loop(start: Any, stop: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """`lax.fori_loop`, with carried values as varying as the body makes them."""
    if checks_varying_axes():
        init = _settled(lambda carried: body(start, carried), init)
    return cast("Any", lax.fori_loop(start, stop, body, init))


def cond(flag: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any) -> Any:
    """`lax.cond`; results vary where the flag or either branch's result does.

    Where devices may take different branches, operands are cast outside, so that their gradients are added up there
    too, where all devices take part. What the branches read otherwise has to vary as the flag does.
    """
    choose = cast("Callable[..., Any]", lax.cond)
    if not checks_varying_axes():
        return choose(flag, if_true, if_false, *operands)
    operands = varying(operands, varying_axes(flag))
    made = [jax.eval_shape(branch, *operands) for branch in (if_true, if_false)]
    if jax.tree.structure(made[0]) != jax.tree.structure(made[1]):
        return choose(flag, if_true, if_false, *operands)  # JAX says what differs

    def axes_of_either(a: Any, b: Any) -> frozenset[str]:
        return varying_axes(a) | varying_axes(b) | varying_axes(flag)

    axes = jax.tree.map(axes_of_either, *made)

    def widened(branch: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: jax.tree.map(varying, branch(*given), axes)

    return choose(flag, widened(if_true), widened(if_false), *operands)


def axes_of(values: Any) -> frozenset[str]:
    """All axes along which any of the values vary."""
    none: frozenset[str] = frozenset()
    return none.union(*map(varying_axes, jax.tree.leaves(values)))


def varying(values: Any, axes: frozenset[str]) -> Any:
    """Values, varying along these axes too."""

    def widened(x: Any) -> Any:
        missing = tuple(sorted(axes - varying_axes(x)))
        return cast("Any", lax.pcast(x, missing, to="varying")) if missing else x

    return jax.tree.map(widened, values)


def gradient_like(gradient: Any, operand: Any) -> Any:
    """A gradient with its operand's type: what devices found of an operand equal on all of them is added up."""
    extra = tuple(sorted(varying_axes(gradient) - varying_axes(operand)))
    return varying(lax.psum(gradient, extra) if extra else gradient, varying_axes(operand))


def _first(x: Any) -> Any:
    return x[0]


def _as_varying_as(x: Any, like: Any) -> Any:
    return varying(x, varying_axes(like))


def _settled(step: Callable[[Any], Any], init: Any) -> Any:
    """Carried values cast until a step of the loop no longer makes any of them varying."""
    while True:
        made = jax.eval_shape(step, init)
        if jax.tree.structure(made) != jax.tree.structure(init):
            return init  # JAX says what differs
        wider = jax.tree.map(_as_varying_as, init, made)
        if all(a is b for a, b in zip(jax.tree.leaves(wider), jax.tree.leaves(init), strict=True)):
            return init
        init = wider
