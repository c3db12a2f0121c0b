"""How functions are traced to be priced.

A library whose functions differ by platform says here how to have them for an IPU: on the machine that runs JAX they
may be calls of what is installed there. This module imports no JAX, so that such libraries may start without.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, cast

Scope = Callable[[], AbstractContextManager[object]]
_SCOPES: list[Scope] = []


def add_scope(scope: Scope) -> None:
    """Add a scope that is entered while a function is traced to be priced.

    It returns the context manager within which functions of a library are those for an IPU.
    """
    _SCOPES.append(scope)


@contextmanager
def tracing() -> Generator[None]:
    """All scopes; what JAX keeps of jitted functions traced within them is kept apart from what runs."""
    from jax.experimental import xla_metadata

    apart = cast("Any", xla_metadata).set_xla_metadata  # part of the key of traced functions
    with ExitStack() as stack:
        stack.enter_context(apart(traced_for="ipu_model"))
        for scope in _SCOPES:
            stack.enter_context(scope())
        yield
