"""Computations of which platforms have faster forms.

A translation says what it computes by calling such a function. How that is done on the platform that runs the program
is said in `lowering.kernels`. The IPU model prices what the operators say: it traces for the platform `IPU`, for which
almost none has a form.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

import jax

IPU = "ipu"
"""Platform of programs that are priced."""
XLA = "xla"
"""Every platform that runs programs."""

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")

_PLATFORM: ContextVar[str] = ContextVar("platform", default="")
_PLACES: dict[str, str] = {}
_FORMS: dict[tuple[str, str], Callable[..., Any]] = {}


def platform() -> str:
    """The platform that is traced for: JAX's default one, or that of `tracing_for`."""
    return _PLATFORM.get() or jax.default_backend()


@contextmanager
def tracing_for(name: str) -> Generator[None]:
    """Scope in which the forms of a platform are taken."""
    token = _PLATFORM.set(name)
    try:
        yield
    finally:
        _PLATFORM.reset(token)


@dataclass(frozen=True)
class Computation(Generic[P, R]):
    """A function that platforms may have other forms of; used as a decorator.

    Attributes
    ----------
    plain : callable
        What is computed where the platform has no form.
    """

    plain: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Compute it in the form of the platform."""
        return (_form(self.plain.__name__, platform()) or self.plain)(*args, **kwargs)

    def form_for(self, *platforms: str) -> Callable[[F], F]:
        """Register the decorated function as the form on these platforms."""

        def register(fn: F) -> F:
            _FORMS.update(dict.fromkeys(((self.plain.__name__, p) for p in platforms), fn))
            return fn

        return register


def add_forms(package: str, modules: Mapping[str, str]) -> None:
    """Tell which modules of another folder have forms of which computations; they are imported when one is needed.

    Parameters
    ----------
    package : str
        Full name of the package that holds the modules.
    modules : mapping of str to str
        Module -> names of the computations.
    """
    _PLACES.update({name: f"{package}.{module}" for module, names in modules.items() for name in names.split()})


def _form(name: str, wanted: str) -> Callable[..., Any] | None:
    """The form of a computation on a platform; None where it has none of its own."""
    if name in _PLACES:
        importlib.import_module(_PLACES[name])
    own = _FORMS.get((name, wanted))
    return own or (None if wanted == IPU else _FORMS.get((name, XLA)))
