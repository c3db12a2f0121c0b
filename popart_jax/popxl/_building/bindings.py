"""Late binding: functions that methods of `Ir`, `Graph` and `Tensor` call although they are built on these classes.

Each function is registered where it is defined, and importing `popxl` imports them all. So the classes need not import
modules that import them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Bindings:
    """Functions by name, looked up when they are called: ``bindings.index(tensor, key)``."""

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}

    def enter(self, name: str) -> Callable[[F], F]:
        """Decorator that registers a function under this name."""

        def remember(function: F) -> F:
            self._functions[name] = function
            return function

        return remember

    def enter_at(self, name: str, module: str, attribute: str) -> None:
        """Register what a module has under `attribute`; the module is imported by the first call."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(import_module(module), attribute)(*args, **kwargs)

        self._functions[name] = call

    def enter_all(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Register functions by name."""
        self._functions.update(functions)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            return self.__dict__["_functions"][name]
        except KeyError:
            raise AttributeError(f"nothing is bound to {name!r}; import popart_jax.popxl first") from None


above = Bindings()
"""Functions of layers above the classes: views of the internal IR, building of graphs, indexing, constants."""

operators = Bindings()
"""The functions of `popxl.ops`."""
