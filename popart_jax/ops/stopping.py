"""Errors that a running program raises on the host. XLA keeps only their text; `as_raised` restores them."""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import Any

import jax
import numpy as np

from ..errors import ProgramAborted, popart_exception, popart_runtime_error

_KINDS = {c.__name__: c for c in (popart_runtime_error, ProgramAborted)}
_SAID = re.compile(rf"\b({'|'.join(_KINDS)}): (.+)")
_LOGGERS = ("jax._src.debugging", "jax._src.callback")


def stop_if(fires: Any, reason: str, kind: type[popart_runtime_error] = popart_runtime_error) -> None:
    """Make the program fail with an error of this kind if an element of `fires` is true at run time."""
    _hush()

    def stop(fires: Any) -> None:
        if np.any(fires):
            raise kind(reason)

    jax.debug.callback(stop, fires, ordered=False)


def as_raised(err: Exception) -> Exception:
    """The error of a failed run: that of `stop_if`, an out-of-memory error, or `err` itself."""
    said = _SAID.findall(str(err))
    if not said:
        if "RESOURCE_EXHAUSTED" in str(err) or "Out of memory" in str(err):
            return popart_exception(f"The run takes more memory than there is: {err}\n  fix: make the tensors smaller.")
        return err
    kind, reason = said[-1]
    return _KINDS[kind](reason)


@cache
def _hush() -> None:
    """Keep JAX from printing the traceback of an error that is reported as PopART's."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    raised = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    return not isinstance(raised, popart_exception)
