"""An inference callable: a model's function with its weights given once, laid out once, compiled once per shape."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._compat.jax import Tracer, compile_with
from ..errors import popart_exception
from ..lowering.passes import autotune
from ..lowering.stages import Preparation, Stages, in_stages
from ..timings import phase


@dataclass(frozen=True)
class _Compiled:
    """One combination of shapes: a `jax.stages.Compiled`, what it takes first, and the structure of its results."""

    call: Any
    weights: tuple[Any, ...]
    out: Any


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
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        params: Any,
        options: Mapping[str, str],
        precision: Callable[[], contextlib.AbstractContextManager[Any]],
        tuning: Path | None,
    ) -> None:
        self._fn, self._options, self._precision, self._tuning = fn, options, precision, tuning
        self._params, self._tree = jax.tree.flatten(params)
        self._compiled: dict[Any, _Compiled] = {}
        self._prepared: dict[str, tuple[Any, ...]] = {}

    def __call__(self, inputs: Mapping[str, Any], key: jax.Array | None = None) -> dict[str, jax.Array]:
        """Outputs by name, of inputs by name; `key` as for the function.

        Raises
        ------
        popart_exception
            Texts among the inputs, or what the function raises.
        """
        leaves, tree = jax.tree.flatten((inputs, key))
        arrays = [x if hasattr(x, "dtype") else np.asarray(x) for x in leaves]
        if any(isinstance(x, Tracer) for x in arrays):
            return self._fn(jax.tree.unflatten(self._tree, self._params), inputs, key)
        with self._precision():
            signature = (tree, *((x.shape, x.dtype) for x in arrays))
            found = self._compiled.get(signature)
            if found is None:
                found = self._compiled[signature] = self._compile(tree, arrays)
            return jax.tree.unflatten(found.out, found.call(*found.weights, *arrays))

    def _compile(self, tree: Any, arrays: Sequence[Any]) -> _Compiled:
        if any(isinstance(x, np.ndarray) and x.dtype.kind in "OUS" for x in arrays):
            raise popart_exception("A compiled model takes numbers, not texts; call the function from to_jax itself.")
        count, out = len(self._params), []

        def flat(*args: Any) -> tuple[Any, ...]:
            params = jax.tree.unflatten(self._tree, args[:count])
            results, structure = jax.tree.flatten(self._fn(params, *jax.tree.unflatten(tree, args[count:])))
            out[:] = [structure]
            return tuple(results)

        avals = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (*self._params, *arrays)]
        with phase("trace"):
            traced = jax.jit(flat).trace(*avals)
            stages = in_stages(traced.jaxpr, avals, range(count))
        if stages is None:
            return _Compiled(self._call(traced), tuple(self._params), out[0])
        return _Compiled(self._call(stages.step), self._weights(stages), out[0])

    @phase("weights")
    def _weights(self, stages: Stages) -> tuple[Any, ...]:
        """What the program reads of the weights; shapes that want the same share it."""
        key = f"{stages.passed} {stages.prepare.jaxpr}"
        if stages.prepare.jaxpr.consts:  # these are not in the text
            key += str(len(self._prepared))
        if key not in self._prepared:
            self._prepared[key] = Preparation.of(stages).take(self._params)
        return self._prepared[key]

    def _call(self, traced: Any) -> Any:
        options = self._options
        if self._tuning is not None:
            options = autotune.choose(traced, options, self._tuning)
        with phase("lower"):
            lowered = traced.lower()
        with phase("compile"):
            return compile_with(lowered, options)
