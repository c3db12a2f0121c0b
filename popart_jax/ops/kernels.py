"""Whether translations write the forms that XLA's kernels want, or plain operators.

Some operators have a form that runs many times faster on XLA:CPU (depthwise convolutions and small windows as shifted
slices). The IPU model must see the operator itself, so it traces within `plain_operators`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_PLAIN: ContextVar[bool] = ContextVar("plain_operators", default=False)


def plain() -> bool:
    """Whether plain operators are asked for; read while tracing."""
    return _PLAIN.get()


@contextmanager
def plain_operators() -> Iterator[None]:
    """Scope in which translations write plain operators."""
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)
