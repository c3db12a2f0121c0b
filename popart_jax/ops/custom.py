"""Custom operators written in Python."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from operator import index
from typing import Any, TypeVar

import jax
import numpy as np

from .arrays import as_results
from .registry import Lowering, add, describe
from .two_way import two_way

F = TypeVar("F", bound=Callable[..., Any])


def custom_op(
    domain: str, op: str, version: int = 1, *, gradient: Callable[..., Any] | None = None
) -> Callable[[F], F]:
    """Register the decorated JAX function as operator `domain::op`.

    It then runs wherever a node of that type stands: in an ONNX file, in `to_jax`, in `Builder.customOp` and the
    sessions, in training, and in the IPU model (which reads the traced function). Shapes and types of its results come
    from tracing it. Registering the same operator again replaces it.

    Parameters
    ----------
    domain, op : str
        As the node carries them.
    version : int
        Opset version of the domain from which the function holds.
    gradient : callable, optional
        ``gradient(cotangents, inputs, outputs, **attributes)`` gives one gradient per input (None: no gradient).
        All three are tuples, in the order of the signature. Without it JAX differentiates the function.

    Returns
    -------
    callable
        The decorator; it returns the function unchanged.

    Raises
    ------
    ValueError
        The domain is empty: the operators of ONNX itself can't be replaced. Or the version is less than 1.
    TypeError
        A name is no text, or the signature does not say where the value of a parameter comes from.

    Notes
    -----
    Positional-only parameters are inputs (default None: optional; ``*args``: variadic), keyword-only ones attributes.
    Annotations from `popart_jax.ops` request more: `Static` an input known while tracing (NumPy), `Key` a
    random key, `Training` the mode.

    Examples
    --------
    >>> @custom_op("com.acme", "LeakySquare", 1)
    ... def leaky_square(x, /, *, alpha: float = 0.1):
    ...     return jax.numpy.where(x > 0, x * x, alpha * x)
    """
    if domain in ("", "ai.onnx"):
        raise ValueError(f"custom_op({op!r}): give a domain of your own; ONNX's own operators can't be replaced")
    if not isinstance(domain, str) or not isinstance(op, str) or not op:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"custom_op: domain and op are names, not {domain!r} and {op!r}")
    if index(version) < 1:
        raise ValueError(f"custom_op({op!r}): versions count from 1, not {version}")

    def register(fn: F) -> F:
        row = _checked(describe(fn, op, index(version), domain))
        row = row if gradient is None else _with_gradient(row, gradient)
        add(row, replace=True)
        return fn

    return register


def _checked(row: Lowering) -> Lowering:
    """The row, if its signature says for each parameter where its value comes from, with a check of its results."""
    for name in row.inputs:
        if name in row.context:
            raise TypeError(f"custom_op({row.op!r}): '{name}' is no input of the node, so it must stand behind `*`")
    if any(p.kind is p.VAR_KEYWORD for p in _parameters(row.fn)):
        raise TypeError(f"custom_op({row.op!r}): attributes are parameters of their own; `**` would get none")

    @functools.wraps(row.fn)
    def call(*inputs: Any, **attributes: Any) -> Any:
        made = row.fn(*inputs, **attributes)
        for i, result in enumerate(as_results(made)):
            if result is None or isinstance(result, (str, bytes, Mapping)):
                raise TypeError(f"result {i} is {result!r}, no array")
        return made

    return replace(row, fn=call)


def _parameters(fn: Callable[..., Any]) -> Collection[inspect.Parameter]:
    try:
        return inspect.signature(fn).parameters.values()
    except ValueError:  # written in C
        return ()


def _with_gradient(row: Lowering, gradient: Callable[..., Any]) -> Lowering:
    """The row with its backward pass given by `gradient`; static inputs stay out of the differentiated function."""

    @functools.wraps(row.fn)
    def call(*inputs: Any, **attributes: Any) -> Any:
        traced = [i for i, x in enumerate(inputs) if x is not None and not row.is_static(i)]
        own = {k: v for k, v in attributes.items() if k in row.attributes}

        def merged(values: tuple[Any, ...]) -> list[Any]:
            full = list(inputs)
            for i, value in zip(traced, values, strict=True):
                full[i] = value
            return full

        @two_way
        def run(*values: Any) -> Any:
            return row.fn(*merged(values), **attributes)

        def forward(*values: Any) -> Any:
            out = run(*values)
            return out, (values, out)

        def backward(residuals: Any, cotangents: Any) -> tuple[Any, ...]:
            values, out = residuals
            cots = cotangents if isinstance(out, tuple) else (cotangents,)
            found = as_results(gradient(cots, tuple(merged(values)), as_results(out), **own))
            if len(found) != len(inputs):
                raise ValueError(f"{row.op}: gradient gave {len(found)} results for {len(inputs)} inputs")
            return tuple(_cotangent(row.op, i, found[i], values[n]) for n, i in enumerate(traced))

        run.defvjp(forward, backward)
        return run(*(inputs[i] for i in traced))

    return replace(row, fn=call)


def _cotangent(op: str, i: int, g: Any, x: Any) -> Any:
    if not jax.numpy.issubdtype(x.dtype, jax.numpy.inexact):
        return np.zeros(x.shape, jax.dtypes.float0)
    if g is not None and np.shape(g) != x.shape:
        raise ValueError(f"{op}: gradient {i} has the shape {np.shape(g)}, its input {x.shape}")
    return jax.numpy.zeros_like(x) if g is None else jax.numpy.asarray(g, x.dtype)
