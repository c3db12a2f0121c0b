"""Primitives that call a library, or are computed as JAX operations where the program can't hold such a call.

Whoever compiles a function of ours may as well export it, divide it among devices, or let JAX write it to a folder.
Which it is, is known only when the program is lowered; so it is settled there, not when the function is traced.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.interpreters import batching, mlir

from ..._compat.jax import compiles_for_this_process, primitive

Form = Callable[..., jax.Array]


def _always(*_: Any) -> bool:
    return True


def either(
    name: str, library: Form, own: Form, result: Callable[..., Any], apart: Callable[..., bool] = _always
) -> Any:
    """A primitive of one array, by `library` on a CPU and in this process alone, else as `own`.

    Both take operands as positional arguments and facts (hashable) by keyword; `result` gives the type of the result
    from types of the operands and facts. ``apart`` says of operands whether what follows from one index of the first
    one's first dimension does so from it alone.
    """
    made = primitive(name)

    def lowered(context: Any, *operands: Any, **facts: Any) -> Any:
        form = library if compiles_for_this_process(context) else own
        lower = cast("Callable[..., Any]", mlir.lower_fun(partial(form, **facts), multiple_results=False))
        return lower(context, *operands)

    def batched(operands: Any, dims: Any, **facts: Any) -> Any:
        x, *others = operands
        shared = all(d is None for d in dims[1:])
        if not (shared and apart(*operands)):
            return jax.vmap(partial(own, **facts), tuple(dims))(*operands), 0
        x = jnp.moveaxis(x, dims[0], 0)
        y = made.bind(x.reshape(-1, *x.shape[2:]), *others, **facts)
        return y.reshape(*x.shape[:2], *y.shape[1:]), 0

    @cache
    def jitted(facts: tuple[tuple[str, Any], ...]) -> Form:
        return jax.jit(partial(made.bind, **dict(facts)))

    def impl(*operands: Any, **facts: Any) -> jax.Array:
        return jitted(tuple(facts.items()))(*operands)

    made.def_impl(impl)
    made.def_abstract_eval(result)
    batching.primitive_batchers[made] = batched
    mlir.register_lowering(made, mlir.lower_fun(own, multiple_results=False))
    mlir.register_lowering(made, lowered, platform="cpu")
    return made
