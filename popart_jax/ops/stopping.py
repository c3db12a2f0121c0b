"""Errors that a running program raises on the host. XLA keeps only their text; `as_raised` restores them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ipu_model.compat import inner_jaxprs

from ..errors import ProgramAborted, popart_exception, popart_runtime_error
from . import varying

P = ParamSpec("P")
R = TypeVar("R")

_KINDS = {c.__name__: c for c in (popart_runtime_error, ProgramAborted)}
_SAID = re.compile(rf"\b({'|'.join(_KINDS)}): (.+)")
DONATED = (
    "it was deleted, or donated to a jitted function (donate_argnums), which may write into its memory.\n"
    "  fix: use what that function returned, or donate a copy: jax.tree.map(jnp.copy, params)."
)
_LOGGERS = ("jax._src.debugging", "jax._src.callback")


def stop_if(fires: Any, reason: str, kind: type[popart_runtime_error] = popart_runtime_error) -> None:
    """Make the program fail with an error of this kind if an element of `fires` is true at run time."""
    _hush()

    def stop(fires: Any) -> None:
        if np.any(fires):
            raise kind(reason)

    jax.debug.callback(stop, fires, ordered=False)


def unless(fires: jax.Array, reason: str, results: Sequence[Any]) -> tuple[Any, ...]:
    """The results, which make the program fail where they are read if `fires`, a truth value, holds at run time.

    The program has no effect by this, so JAX calls it by its short way: silero-vad takes 0.3 ms in place of 1.1.
    """
    _hush()

    def stop(fires: Any) -> Any:
        if np.any(fires):
            raise popart_runtime_error(reason)
        return np.zeros(np.shape(fires), bool)

    def ask() -> jax.Array:
        return jax.pure_callback(stop, jax.ShapeDtypeStruct((), bool), fires, vmap_method="expand_dims")

    stopped = varying.cond(fires, ask, lambda: jnp.zeros((), bool))  # the host is not called at every run
    return tuple(jnp.where(stopped, jnp.zeros_like(x), x) for x in results)


def calls_host(closed: Any) -> bool:
    """Whether a traced program may call the host while it runs, and so fail half-way."""
    return bool(closed.effects) or _asks(closed.jaxpr)


def _asks(jaxpr: Any) -> bool:
    return any(eqn.primitive.name == "pure_callback" or any(map(_asks, _inner(eqn))) for eqn in jaxpr.eqns)


def _inner(eqn: Any) -> Iterator[Any]:
    return (jaxpr for _, jaxpr in inner_jaxprs(eqn.params))


def as_raised(err: Exception) -> Exception:
    """The error of a failed run: that of `stop_if`, of a donated array, of too little memory, or `err` itself."""
    if isinstance(err, RuntimeError) and "Array has been deleted" in str(err):
        which = str(err).partition("deleted")[2].rstrip(".")  # its type and shape
        return popart_exception(f"An array{which} has no numbers any more: {DONATED}")
    if not isinstance(err, jax.errors.JaxRuntimeError):
        return err
    said = _SAID.findall(str(err))
    if not said:
        if "RESOURCE_EXHAUSTED" in str(err) or "Out of memory" in str(err):
            return popart_exception(f"The run takes more memory than there is: {err}\n  fix: make the tensors smaller.")
        return err
    kind, reason = said[-1]
    return _KINDS[kind](reason)


def raising(call: Callable[P, R]) -> Callable[P, R]:
    """A compiled program, or what calls one, whose failed runs raise what `as_raised` says."""

    @wraps(call)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except Exception as err:
            raised = as_raised(err)
            if raised is err:
                raise
            raise raised from err

    return run


@cache
def _hush() -> None:
    """Keep JAX from printing the traceback of an error that is reported as PopART's."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    raised = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    return not isinstance(raised, popart_exception)
