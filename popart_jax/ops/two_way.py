"""Custom derivatives for both modes: a hand-written backward pass that also allows forward mode and higher orders.

`jax.custom_vjp` takes the backward pass as it is written, but refuses `jvp`, `jacfwd` and `hessian`; `jax.custom_jvp`
allows them, but leaves the backward pass to the transposition of the forward one. Here the tangent map is one linear
primitive that knows both: `push` makes tangents, `pull` is what the backward pass runs in place of its transpose.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir

from .._compat.jax import flat_tree, primitive, type_of, usual_promotion
from .varying import gradient_like

Flat = Callable[..., list[Any]]
R = TypeVar("R")


def _promoting(rule: Callable[..., R]) -> Callable[..., R]:
    """The rule under JAX's default promotion: JAX may call it long after the walk, where the caller's settings hold."""

    @functools.wraps(rule)
    def run(*args: Any) -> R:
        with usual_promotion():
            return rule(*args)

    return run


class _Jvp(jax.custom_jvp[R]):
    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        return super().defjvp(_promoting(jvp), symbolic_zeros)


def with_jvp(*constants: int) -> Callable[[Callable[..., R]], jax.custom_jvp[R]]:
    """`jax.custom_jvp` as a decorator of functions whose arguments at these positions are hashable constants."""
    return lambda fn: _Jvp(fn, nondiff_argnums=constants)


def with_vjp(*constants: int) -> Callable[[Callable[..., R]], jax.custom_vjp[R]]:
    """`jax.custom_vjp`, likewise."""

    def decorated(fn: Callable[..., R]) -> jax.custom_vjp[R]:
        return cast("jax.custom_vjp[R]", jax.custom_vjp(fn, nondiff_argnums=constants))

    return decorated


class two_way:
    """Decorator with the interface of `jax.custom_vjp`, for functions of arrays (or trees of them) with float results.

    Parameters
    ----------
    fn : callable
        The function; its arguments at `nondiff_argnums` are hashable constants.
    nondiff_argnums : sequence of int
        As in `jax.custom_vjp`.
    """

    def __init__(self, fn: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        self._fixed = tuple(nondiff_argnums)
        self._fn = _Jvp(fn, nondiff_argnums=self._fixed)
        functools.update_wrapper(self, fn)

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        return self._fn(*args)

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any], push: Any = None) -> None:
        """Set the rules.

        Parameters
        ----------
        forward : callable
            ``forward(*args) -> (outputs, residuals)``.
        backward : callable
            ``backward(*fixed, residuals, cotangents) -> one cotangent per argument`` (None: no gradient).
        push : callable, optional
            ``push(*fixed, residuals, tangents) -> tangents of the outputs``. Default: the transpose of `backward`.
        """

        def rule(*args: Any) -> Any:
            *fixed, primals, tangents = args
            outputs, residuals = forward(*self._merged(fixed, primals))
            back = _promoting(functools.partial(backward, *fixed))
            ahead = None if push is None else _promoting(functools.partial(push, *fixed))
            return outputs, _tangents(outputs, residuals, tangents, back, ahead)

        self._fn.defjvp(rule)

    def _merged(self, fixed: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        whole = list(others)
        for position, value in zip(self._fixed, fixed, strict=True):
            whole.insert(position, value)
        return whole


def _smooth(kind: Any) -> bool:
    return jnp.issubdtype(kind.dtype, jnp.inexact)


def _tangents(outputs: Any, residuals: Any, tangents: Any, backward: Any, push: Any) -> Any:
    """Tangents of the outputs, as a call of the linear primitive.

    What the primitive keeps for the backward pass are types: a tracer kept there would outlive its trace.
    """
    saved, saved_tree = flat_tree(residuals)
    dots, dot_tree = flat_tree(tangents)
    outs, out_tree = flat_tree(outputs)
    types, made_types = [*map(type_of, dots)], [*map(type_of, outs)]
    typed_tangents = dot_tree.unflatten(types)
    moving = [i for i, t in enumerate(types) if _smooth(t)]
    count = len(saved)

    def pull(*flat: Any) -> list[Any]:
        cotangents = out_tree.unflatten(flat[count:])
        found = backward(saved_tree.unflatten(flat[:count]), cotangents)
        pairs = zip(found, typed_tangents, strict=True)
        leaves = [g for new, old in pairs for g in _leaves_like(new, old)]
        return [gradient_like(jnp.asarray(leaves[i], types[i].dtype), types[i]) for i in moving]

    def ahead(*flat: Any) -> list[Any]:
        full = [jnp.zeros(t.shape, jnp.float32) for t in types]
        for i, value in zip(moving, flat[count:], strict=True):
            full[i] = value
        return jax.tree.leaves(push(saved_tree.unflatten(flat[:count]), dot_tree.unflatten(full)))

    def transposed(*flat: Any) -> list[Any]:
        back = cast("Flat", jax.linear_transpose(functools.partial(pull, *flat[:count]), *made_types))
        return list(back(list(flat[count:])))

    made = _linear.bind(
        *saved,
        *(dots[i] for i in moving),
        push=ahead if push is not None else transposed,
        pull=pull,
        count=count,
        avals=tuple(jax.typeof(o).to_tangent_aval() for o in outs),
    )
    return out_tree.unflatten(made)


def _leaves_like(new: Any, old: Any) -> list[Any]:
    """Leaves of one argument's cotangent; None stands for zeros."""
    types, structure = flat_tree(old)
    leaves: list[Any] = [None] * len(types) if new is None else structure.flatten_up_to(new)
    return [
        jnp.zeros(t.shape, t.dtype) if leaf is None and _smooth(t) else leaf
        for leaf, t in zip(leaves, types, strict=True)
    ]


_linear = primitive("two_way_linear")
_linear.multiple_results = True


@_linear.def_impl
def _impl(*args: Any, push: Flat, pull: Flat, count: int, avals: Any) -> list[Any]:
    return push(*args)


@_linear.def_abstract_eval
def _abstract(*args: Any, push: Flat, pull: Flat, count: int, avals: Any) -> Any:
    return avals


def _jvp(primals: Any, tangents: Any, *, push: Flat, pull: Flat, count: int, avals: Any) -> Any:
    """Linear in the last operands; in the residuals whatever `push` computes with them."""
    out = _linear.bind(*primals, push=push, pull=pull, count=count, avals=avals)
    saved, dots = primals[:count], primals[count:]
    total: list[Any] = [ad.Zero(a) for a in avals]
    if any(not isinstance(t, ad.Zero) for t in tangents[count:]):
        moved: list[Any] = [ad.instantiate_zeros(t) for t in tangents[count:]]
        total = _linear.bind(*saved, *moved, push=push, pull=pull, count=count, avals=avals)
    changed = [i for i, t in enumerate(tangents[:count]) if not isinstance(t, ad.Zero)]
    if changed:

        def of_saved(*some: Any) -> list[Any]:
            full = list(saved)
            for i, value in zip(changed, some, strict=True):
                full[i] = value
            return push(*full, *dots)

        _, more = jax.jvp(of_saved, tuple(saved[i] for i in changed), tuple(tangents[i] for i in changed))
        total = [m if isinstance(t, ad.Zero) else t + m for t, m in zip(total, more, strict=True)]
    return out, total


def _transpose(cotangents: Any, *args: Any, push: Flat, pull: Flat, count: int, avals: Any) -> list[Any]:
    """The backward pass, as plain operations."""
    given: list[Any] = [ad.instantiate_zeros(c) for c in cotangents]
    found = pull(*args[:count], *given)
    wanted = [g if ad.is_undefined_primal(x) else None for g, x in zip(found, args[count:], strict=True)]
    return [None] * count + wanted


def _batch(args: Any, dims: Any, *, push: Flat, pull: Flat, count: int, avals: Any) -> Any:
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    ahead: list[Any] = [batching.bdim_at_front(x, d, size) for x, d in zip(args[count:], dims[count:], strict=True)]
    axes = tuple(dims[:count])
    out = _linear.bind(
        *args[:count],
        *ahead,
        push=jax.vmap(push, (*axes, *(0 for _ in ahead)), 0, axis_size=size),
        pull=jax.vmap(pull, (*axes, *(0 for _ in avals)), 0, axis_size=size),
        count=count,
        avals=tuple(a.update(shape=(size, *a.shape)) for a in avals),
    )
    return out, [0] * len(out)


ad.primitive_jvps[_linear] = _jvp
ad.primitive_transposes[_linear] = _transpose
batching.primitive_batchers[_linear] = _batch
mlir.register_lowering(_linear, mlir.lower_fun(_impl, multiple_results=True))
