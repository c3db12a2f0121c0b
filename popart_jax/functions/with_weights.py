"""Inference with fixed weights: they are laid out once, and a program is compiled once per combination of shapes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import jax

from .._compat.jax import flat_tree
from ..ops.stopping import raising
from .by_shapes import ByShapes


class Inference:
    """``fn(params, *args)`` with fixed `params`: computations on them alone are done once, not at each call.

    Created by ``fn.with_weights(params)`` for a function from `to_jax`. A program is compiled at the first call with
    each combination of input shapes and types. Inside a transformation (`jit`, `grad`, `vmap`) the function itself is
    called. Weights that programs read unchanged share their memory, so they must not be donated elsewhere.

    `ready` converts inputs to arrays of the declared types, `in_order` puts the results of a compiled call in the
    function's order; for the other arguments see `ByShapes`.
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
        flat, tree = flat_tree(params)

        def of_weights(weights: Any, inputs: Any, key: Any) -> Any:
            return fn(jax.tree.unflatten(tree, weights), inputs, key)

        self._programs = ByShapes(
            of_weights,
            flat,
            options,
            tuning,
            facts,
            precision,
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            "What with_weights returns holds compiled programs, which can't be pickled: pickle the function and its "
            "weights, and call fn.with_weights(params) again"
        )

    def __copy__(self) -> Self:
        return self  # as Python's functions

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    @raising
    def __call__(self, inputs: Mapping[str, Any], key: jax.Array | None = None) -> dict[str, jax.Array]:
        """Outputs by name, for inputs by name; `key` as for the function.

        Raises
        ------
        popart_exception
            Texts among the inputs, or an error of the function.
        """
        return self._in_order(self._programs(self._ready(inputs), key))
