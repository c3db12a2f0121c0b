"""An inference callable: a model's function with its weights given once, laid out once, compiled once per shape."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from .by_shapes import ByShapes


class Inference:
    """``fn(params, *args)`` for fixed `params`: what they alone decide is computed here, not at each call.

    Made by ``fn.with_weights(params)`` of a function from `to_jax`. Each combination of input shapes and types is
    compiled when it first comes. Inside a transformation (`jit`, `grad`, `vmap`) it is the function itself.

    Parameters
    ----------
    fn : callable
        The function.
    params : pytree of array
        Its weights. What every call reads as it is given shares their memory, so they must not be donated elsewhere.
    options : mapping of str to str
        XLA's compiler options.
    precision : callable
        Makes the scope in which the function is traced and called.
    tuning : Path or None
        Folder of findings, if compiler options are to be measured.
    facts : callable
        All that the function depends on beside its arguments; see `ByShapes`.
    ready : callable
        Makes arrays of the declared types of what is fed.
    in_order : callable
        Puts the results of a compiled call in the function's own order.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        params: Any,
        options: Mapping[str, str],
        precision: Callable[[], contextlib.AbstractContextManager[Any]],
        tuning: Path | None,
        facts: Callable[[], Any],
        ready: Callable[[Any], Any],
        in_order: Callable[[Any], Any],
    ) -> None:
        self._ready, self._in_order = ready, in_order
        flat, tree = jax.tree.flatten(params)
        self._programs = ByShapes(
            lambda weights, inputs, key: fn(jax.tree.unflatten(tree, weights), inputs, key),
            flat,
            options,
            tuning,
            facts,
            precision,
        )

    def __call__(self, inputs: Mapping[str, Any], key: jax.Array | None = None) -> dict[str, jax.Array]:
        """Outputs by name, of inputs by name; `key` as for the function.

        Raises
        ------
        popart_exception
            Texts among the inputs, or what the function raises.
        """
        return self._in_order(self._programs(self._ready(inputs), key))
