"""What functions of a program compute, as plain data: their code, and the values and functions that it reads."""

from __future__ import annotations

import dis
import inspect
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

import jax
import numpy as np

from .described import fields_of

_PLAIN: tuple[type, ...] = (str, bytes, bool, int, float, complex, Enum, np.generic, np.dtype, type(None))
_MEMBERS: tuple[type, ...] = (FunctionType, staticmethod, classmethod, property, *_PLAIN)
_RULES = ("fwd", "bwd", "jvp")  # attributes of functions with derivatives of their own
_PACKAGES = ("site-packages", "dist-packages")
_OWN = ("popart_jax", "patterns", "ipu_model")
_PROCESS = uuid.uuid4().hex


def code_of(function: Any) -> Any:
    """Describe a function by its code, its defaults, and all that it reads: closures, globals, functions it calls.

    What installed packages define is described by its name. A value without a description is one of this process
    alone, so that a program that reads it is never found in a file of another process.
    """
    return _Reader().of(function)


class _Reader:
    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no number is given twice

    def of(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, ModuleType):
            return value.__name__
        if isinstance(value, (np.ndarray, jax.Array)):
            return self._array(value)
        if isinstance(value, Mapping):
            return ["mapping", *([self.of(k), self.of(v)] for k, v in cast("Mapping[Any, Any]", value).items())]
        if isinstance(value, (set, frozenset)):
            return {"set": {repr(self.of(v)) for v in cast("Iterable[Any]", value)}}
        if isinstance(value, (list, tuple)):
            return ["sequence", *map(self.of, cast("Iterable[Any]", value))]
        name = _installed_name(value)
        if name:
            return name
        if id(value) in self.seen:
            return ["again", self.seen[id(value)]]
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        return self._object(value)

    def _array(self, value: Any) -> Any:
        try:
            array = np.asarray(value)
        except TypeError:  # a random key
            array = np.asarray(jax.random.key_data(value))
        return array if array.dtype != object else self.of(array.tolist())

    def _object(self, value: Any) -> Any:
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            return ["method", self.of(value.__func__), self.of(value.__self__)]
        if isinstance(value, partial):
            return ["partial", *map(self.of, (value.func, value.args, value.keywords))]
        if isinstance(value, type):
            return ["class", *map(self.of, value.__bases__), self._members(value)]
        if hasattr(value, "__wrapped__"):
            rules = [getattr(value, rule, None) for rule in _RULES]
            return [type(value).__name__, *map(self.of, (value.__wrapped__, *rules))]
        found = fields_of(value)
        return [_PROCESS, id(value)] if found is None else [self.of(type(value)), self.of(found)]

    def _members(self, owner: type) -> Any:
        members = {n: v for n, v in vars(owner).items() if isinstance(v, _MEMBERS)}
        return self.of({n: getattr(v, "fget", getattr(v, "__func__", v)) for n, v in members.items()})

    def _function(self, function: FunctionType) -> Any:
        codes = list(_codes(function.__code__))
        closed = [self.of(_contents(cell)) for cell in function.__closure__ or ()]
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
        names = {i.argval for code in codes for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
        read = {n: function.__globals__[n] for n in sorted(names) if n in function.__globals__}
        modules = [v for v in read.values() if isinstance(v, ModuleType) and not is_installed(v.__name__)]
        attributes = sorted({name for code in codes for name in code.co_names}) if modules else ()
        of_modules = [{n: getattr(m, n) for n in attributes if hasattr(m, n)} for m in modules]
        return [*map(_parts, codes), self.of(defaults), closed, self.of(read), self.of(of_modules)]


def _installed_name(value: Any) -> str:
    """Name of a function or class of an installed package; '' for others, and for one that wraps something else."""
    inner = inspect.unwrap(value) if callable(value) else value
    name = getattr(inner, "__qualname__", getattr(inner, "__name__", None))
    module = getattr(inner, "__module__", None)
    named = isinstance(inner, BuiltinFunctionType) or (name is not None and is_installed(module))
    return f"{module}.{name}" if named else ""


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is bound yet
        return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _parts(code: CodeType) -> Any:
    """What decides what code does, as values whose text is the same in every process."""
    constants = [_constant(c) for c in code.co_consts if not isinstance(c, CodeType)]
    return [code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants]


def _constant(value: Any) -> Any:
    is_set = isinstance(value, frozenset)  # without an order of its own
    return sorted(map(repr, cast("frozenset[Any]", value))) if is_set else repr(value)


@cache
def _is_installed(package: str) -> bool:
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    installed = package in _OWN or package in sys.stdlib_module_names
    return installed or any(folder in Path(file).parts for folder in _PACKAGES)


def is_installed(module: str | None) -> bool:
    """Whether a module is Python's, this package's or one of an installed package, and no part of a program."""
    package = (module or "").partition(".")[0]
    return package != "__main__" and _is_installed(package)
