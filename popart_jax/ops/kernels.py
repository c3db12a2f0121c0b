"""Computations that may have a faster implementation (a *form*) on some platforms.

Translations call such functions. `lowering.kernels` holds the forms; while tracing, the form of the platform that
runs the program replaces the plain function. The IPU model prices plain functions: it traces for the platform `IPU`,
for which almost none has a form.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

import jax

from ipu_model.tracing import add_scope

IPU = "ipu"
"""Platform of programs that the IPU model prices."""
XLA = "xla"
"""All platforms that run programs."""

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")

_PLATFORM: ContextVar[str] = ContextVar("platform", default="")
_STAYS: ContextVar[bool] = ContextVar("may call libraries", default=True)
_MAY_ORDER: ContextVar[bool] = ContextVar("weights may be ordered", default=False)
_CALLED: ContextVar[list[str] | None] = ContextVar("libraries called", default=None)
_MOST_ORDERED = 256 << 20
_PLACES: dict[str, str] = {}
_FORMS: dict[tuple[str, str], Callable[..., Any]] = {}


def platform() -> str:
    """The platform that is traced for: JAX's default one, or that of `tracing_for`."""
    return _PLATFORM.get() or jax.default_backend()


@contextmanager
def tracing_for(name: str) -> Generator[None]:
    """Scope in which computations take their forms for a platform."""
    token = _PLATFORM.set(name)
    try:
        yield
    finally:
        _PLATFORM.reset(token)


add_scope(partial(tracing_for, IPU))


@contextmanager
def staying(stays: bool = True) -> Generator[None]:
    """Scope for tracing programs that are never written to a file, or that are (False).

    The former may call libraries. So may programs outside such a scope, where it is settled when they are lowered.
    Programs traced in such a scope are ours: weights are brought into the order of their readers beforehand.
    """
    tokens = _STAYS.set(stays), _CALLED.set([])
    try:
        yield
    finally:
        _STAYS.reset(tokens[0])
        _CALLED.reset(tokens[1])


def may_call_libraries() -> bool:
    """Whether the traced program may call libraries, which no file can store."""
    return _STAYS.get()


def weights_come_as_stored() -> bool:
    """Whether the traced program turns its weights at each run, because somebody else calls it."""
    return _CALLED.get() is None


@contextmanager
def fixed_weights(size: int | None) -> Generator[None]:
    """Scope for tracing programs whose weights, of `size` bytes, stay as they are; None where they change.

    What is computed of weights alone is computed once. Up to 256 MB may take an order that their readers prefer; the
    host keeps them as the model has them beside that.
    """
    token = _MAY_ORDER.set(size is not None and size <= _MOST_ORDERED)
    try:
        yield
    finally:
        _MAY_ORDER.reset(token)


def may_order_weights() -> bool:
    """Whether the traced program may read its weights in an order from which the model's own can't be seen."""
    return _MAY_ORDER.get()


def library_called() -> bool:
    """Whether a program traced in this scope calls libraries."""
    return bool(_CALLED.get())


def note_call(name: str) -> None:
    """Record that the traced program calls a library."""
    called = _CALLED.get()
    if called is not None:
        called.append(name)


@dataclass(frozen=True)
class Computation(Generic[P, R]):
    """A function that may have other forms on some platforms; used as a decorator."""

    plain: Callable[P, R]  # the implementation for platforms without a form

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
    """Register modules of another package that define forms of computations; they are imported when one is needed."""
    _PLACES.update({name: f"{package}.{module}" for module, names in modules.items() for name in names.split()})


def _form(name: str, wanted: str) -> Callable[..., Any] | None:
    """The form of a computation on a platform; None if it has none."""
    if name in _PLACES:
        importlib.import_module(_PLACES[name])
    own = _FORMS.get((name, wanted))
    return own or (None if wanted == IPU else _FORMS.get((name, XLA)))
