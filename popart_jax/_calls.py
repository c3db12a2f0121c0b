"""Checked calls: PopART's constructors and methods have overloads, and refuse wrong argument types with `TypeError`.

`@checked` reads the annotations of a function, or of its `typing.overload` declarations. It tries them in order,
converts the arguments as the original bindings do (an int is accepted as float, a tuple as list, a float never as int),
and calls the function with the values of the first declaration that matches.
"""

from __future__ import annotations

import enum
import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Callable as CallableABC
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_overloads, get_type_hints

import numpy as np

from .errors import logs_errors

F = TypeVar("F", bound=Callable[..., Any])


class Mismatch(TypeError):
    """A value does not have the expected type."""


def convert(value: Any, hint: Any) -> Any:
    """`value` as the type `hint`, by the rules of the original bindings; TypeError if it does not have that type."""
    if hint in _PLAIN:
        return _PLAIN[hint](value)
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(value, get_args(hint))
    if origin is not None:
        return _convert_container(value, origin, get_args(hint))
    if isinstance(hint, type):
        if isinstance(value, hint):
            return value
        from_other = getattr(hint, "_convert_from", None)
        if from_other is not None:
            return from_other(value)
    raise Mismatch(f"expected {type_name(hint)}, got {value!r} of type {type(value).__name__}")


def _convert_union(value: Any, choices: tuple[Any, ...]) -> Any:
    exact = [c for c in choices if isinstance(c, type) and type(value) is c]
    for choice in (*exact, *choices):
        try:
            return convert(value, choice)
        except TypeError:
            continue
    raise Mismatch(f"expected {' or '.join(map(type_name, choices))}, got {value!r}")


def _convert_container(value: Any, origin: Any, args: tuple[Any, ...]) -> Any:
    given = value  # stays of any type where `isinstance` makes the elements' types unknown
    if origin is list:
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, (Sequence, np.ndarray)):
            raise Mismatch(f"expected a list, got {value!r}")
        return [convert(v, args[0]) for v in given]
    if origin is set:
        if not isinstance(value, (set, frozenset)):
            raise Mismatch(f"expected a set, got {value!r}")
        return {convert(v, args[0]) for v in given}
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise Mismatch(f"expected a dict, got {value!r}")
        return {convert(k, args[0]): convert(v, args[1]) for k, v in given.items()}
    if origin is tuple:
        if not isinstance(value, (tuple, list)) or len(given) != len(args):
            raise Mismatch(f"expected a tuple of {len(args)}, got {value!r}")
        return tuple(convert(v, a) for v, a in zip(given, args, strict=True))
    if origin is CallableABC:
        if not callable(value):
            raise Mismatch(f"expected a function, got {value!r}")
        return value
    if isinstance(value, origin):
        return value
    raise Mismatch(f"expected a {origin.__name__}, got {value!r}")


def _to_int(value: Any) -> int:
    """A value as int: also NumPy's integers, and PopART's enums, which give their value."""
    try:
        return int(cast("Any", value)) if isinstance(value, np.bool_) else operator.index(value)
    except TypeError:
        raise Mismatch(f"expected an int, got {value!r}") from None


def _to_float(value: Any) -> float:
    number = isinstance(value, (int, float, np.number, np.bool_)) and not isinstance(value, enum.Enum)
    if number or (isinstance(value, np.ndarray) and value.ndim == 0):
        return float(cast("Any", value))
    raise Mismatch(f"expected a float, got {value!r}")


def _to_bool(value: Any) -> bool:
    if isinstance(value, (bool, int, np.bool_, np.integer)) and not isinstance(value, enum.Enum):
        return bool(cast("Any", value))
    raise Mismatch(f"expected a bool, got {value!r}")


def _to_str(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    raise Mismatch(f"expected a str, got {value!r}")


def _to_none(value: Any) -> None:
    if value is not None:
        raise Mismatch(f"expected None, got {value!r}")


_PLAIN: dict[Any, Callable[[Any], Any]] = {
    Any: lambda v: v,
    object: lambda v: v,
    int: _to_int,
    float: _to_float,
    bool: _to_bool,
    str: _to_str,
    type(None): _to_none,
    None: _to_none,
}


def type_name(hint: Any) -> str:
    """A type as written in source code."""
    return hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint).replace("typing.", "")


_NONE = inspect.Parameter.empty


class _Overload:
    """One declaration of a function: its signature and the types of its parameters."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.signature = inspect.signature(fn)
        taken = types.SimpleNamespace(__annotations__={n: h for n, h in fn.__annotations__.items() if n != "return"})
        self.hints = get_type_hints(taken, vars(sys.modules[fn.__module__]))
        known = self.signature.parameters.values()
        self._positional = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in known)
        self._rows = [(p.name != "self", self.hints.get(p.name, Any), p.default) for p in known]

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The values of a call, converted and completed by defaults; TypeError where they don't fit."""
        missing = self._rows[len(args) :]
        plain = self._positional and not kwargs and len(args) <= len(self._rows)
        if not plain or any(default is _NONE for _, _, default in missing):  # `inspect` takes three times as long
            return self._bound(args, kwargs)
        given = zip(args, self._rows, strict=False)
        values = [convert(value, hint) if checks else value for value, (checks, hint, _) in given]
        return (*values, *(default for _, _, default in missing)), {}

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        bound = self.signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind = self.signature.parameters[name].kind
            if name != "self" and name in self.hints and kind not in (2, 4):
                bound.arguments[name] = convert(value, self.hints[name])
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def __str__(self) -> str:
        return str(self.signature)


def refused(
    name: str, signatures: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any], reasons: Sequence[str]
) -> TypeError:
    """The error for arguments that match no declaration; a note says for each why not."""
    error = TypeError(no_overload(name, signatures, args, kwargs))
    error.add_note("\n".join(reasons))
    return error


def no_overload(name: str, signatures: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The error text for arguments that match no declaration, in the words of PopART's Python bindings."""
    lines = "\n".join(f"    {i}. {name}{signature}" for i, signature in enumerate(signatures, 1))
    given = ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())])
    head = f"{name}(): incompatible function arguments. The following argument types are supported:"
    return f"{head}\n{lines}\n\nInvoked with: {given}"


def checked(fn: F) -> F:
    """Check and convert arguments by the annotations of `fn`; with `typing.overload`s, by the first that matches.

    Such a function is public: PopART errors that it raises are logged.

    A function with overloads gets the values by keyword; it should take ``self, **values`` or have a default for every
    parameter that some overload lacks. Raises TypeError, which lists all declarations, where the arguments of a call
    match none.
    """
    state: list[list[_Overload]] = []

    @logs_errors
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not state:
            declared = get_overloads(fn)
            state.append([_Overload(f) for f in declared or [fn]])
            call.__dict__["_by_keyword"] = bool(declared)
        reasons: list[str] = []
        for overload in state[0]:
            try:
                values, named = overload.bind(args, kwargs)
            except TypeError as err:
                reasons.append(f"{overload}: {err}")
                continue
            if not call.__dict__["_by_keyword"]:
                return fn(*values, **named)
            names = list(overload.signature.parameters)
            first = 1 if names and names[0] == "self" else 0
            return fn(*values[:first], **dict(zip(names[first:], values[first:], strict=False)), **named)
        shown = args[1:] if next(iter(inspect.signature(fn).parameters), "") == "self" else args
        raise refused(fn.__name__, state[0], shown, kwargs, reasons)

    return call  # pyright: ignore[reportReturnType]


def overloaded(fn: Callable[..., Any]) -> Any:
    """As `checked`, for the implementation behind `typing.overload`s; type checkers do not compare it with them."""
    return checked(fn)


def signatures(fn: Callable[..., Any]) -> list[inspect.Signature]:
    """All signatures with which a function may be called."""
    declared = get_overloads(inspect.unwrap(fn)) if hasattr(fn, "__module__") else ()
    return [inspect.signature(f) for f in declared or [fn]]
