"""The only module that touches version-sensitive JAX names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.core import Tracer as Tracer
from jax.extend.core import Literal as Literal


def enable_x64(on: bool = True):
    """Scope in which 64-bit types are kept (or not); the global configuration stays as it is."""
    return jax.enable_x64(on)


def compile_with(lowered: Any, options: Mapping[str, str]) -> Any:
    """Compile with options where this XLA knows them (names come and go between releases), else without."""
    if options:
        with contextlib.suppress(Exception):  # the error's class differs between releases; a real one comes again below
            return lowered.compile(compiler_options=dict(options))
    return lowered.compile()


def bind(equation: Any, operands: Sequence[Any], params: Mapping[str, Any] | None = None) -> Sequence[Any]:
    """Do what one equation of a jaxpr does, on other operands and with other parameters if given."""
    primitive = equation.primitive
    found = primitive.get_bind_params(equation.params if params is None else dict(params))
    functions, keywords = found if isinstance(found, tuple) else ((), found)
    with equation.ctx.manager:
        results = primitive.bind(*functions, *operands, **keywords)
    return results if primitive.multiple_results else [results]


def shortest_call(compiled: Any) -> Callable[..., Any]:
    """What calls a compiled program that has run before with the least work in Python."""
    return getattr(compiled, "_call", None) or compiled
