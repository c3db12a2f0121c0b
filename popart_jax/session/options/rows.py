"""Descriptors for the options of `SessionOptions`, and the base class that collects them."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, MutableMapping
from functools import cache, partial
from typing import Any, cast, get_type_hints

from ..._calls import convert
from ...logs import module_logger
from ...model.settings import unknown_name

TREATMENTS = ("honoured", "modelled", "accepted", "refused")


class Option:
    """One option: treatment, default (or a function that makes it), and its meaning here.

    `in_program` says that nothing but the compiled program depends on it.
    """

    def __init__(self, treatment: str, default: Any, meaning: str, in_program: bool = False) -> None:
        self.make: Callable[[], Any] = default if callable(default) else lambda: default
        self.owner: type = object
        self.treatment, self.meaning, self.name = treatment, meaning, ""
        self.in_program = in_program or treatment in ("modelled", "accepted")

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, options: Any, owner: type | None = None) -> Any:
        if options is None:
            return self
        value = options.__dict__[self.name]
        return copy.copy(value) if type(value) in (list, dict, set) else value

    def __set__(self, options: Any, value: Any) -> None:
        options.__dict__[self.name] = copy.deepcopy(self.converted(value))

    def converted(self, value: Any) -> Any:
        """The value as the option's type; TypeError if it is not."""
        hint = hints(self.owner)[self.name]
        try:
            result = convert(value, hint)
        except TypeError as err:
            raise TypeError(f"{self.owner.__name__}.{self.name}: {err}") from None
        return int(result) if self.name == "numIOTiles" else result


class _Through(Option):
    """A dictionary whose items can be set in place: ``options.engineOptions["k"] = "v"``."""

    def __init__(self, treatment: str, meaning: str) -> None:
        super().__init__(treatment, dict, meaning)

    def __get__(self, options: Any, owner: type | None = None) -> Any:
        return self if options is None else WriteThroughDict(options.__dict__[self.name], self, options)


class _Deprecated(Option):
    """An older name of another option."""

    def __init__(self, successor: str) -> None:
        super().__init__("accepted", None, f"older name of {successor}")
        self.successor = successor

    def __get__(self, options: Any, owner: type | None = None) -> Any:
        return self if options is None else getattr(options, self.successor)

    def __set__(self, options: Any, value: Any) -> None:
        module_logger("session").warning("%s has been deprecated, use %s", self.name, self.successor)
        setattr(options, self.successor, value)


class _Refused(Option):
    """An option that cannot be used."""

    def __init__(self, why: str) -> None:
        super().__init__("refused", None, why)

    def __get__(self, options: Any, owner: type | None = None) -> Any:
        if options is None:
            return self
        raise AttributeError(self.name)

    def __set__(self, options: Any, value: Any) -> None:
        options.__getattr__(self.name)


_Mutable = cast("Any", MutableMapping)  # its methods' types are not those of dict


class WriteThroughDict(dict[str, Any]):
    """A copy of a dictionary option that passes every change on to the option."""

    def __init__(self, values: dict[str, Any], option: Option, options: Any) -> None:
        super().__init__(values)
        self._option, self._options = option, options

    def _store(self) -> None:
        self._option.__set__(self._options, dict(self))

    def __setitem__(self, key: str, value: Any) -> None:
        self._option.converted({key: value})
        super().__setitem__(key, value)
        self._store()

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._store()

    # dict's own methods would bypass __setitem__
    update, setdefault, pop = _Mutable.update, _Mutable.setdefault, _Mutable.pop
    popitem, clear = _Mutable.popitem, _Mutable.clear

    def __ior__(self, other: Any) -> WriteThroughDict:
        self.update(other)
        return self

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)

    def __copy__(self) -> dict[str, Any]:
        return dict(self)


# Constructors of options, typed as Any because the attribute reads as a value of the option's type.
honoured: Callable[..., Any] = partial(Option, "honoured")
"""An option that changes what programs see."""
computed: Callable[..., Any] = partial(Option, "honoured", in_program=True)
"""One that changes what the compiled program computes, and nothing else."""
modelled: Callable[..., Any] = partial(Option, "modelled")
"""An option that the IPU model and the IR take into account."""
accepted: Callable[..., Any] = partial(Option, "accepted")
"""An option without effect here."""
through: Callable[..., Any] = _Through
"""A dictionary option."""
deprecated: Callable[..., Any] = _Deprecated
"""An older name."""
refused: Callable[..., Any] = _Refused
"""An option that cannot be used."""


class OptionsBase:
    """Holds the values of the options that its class declares."""

    def __init__(self) -> None:
        for name, option in rows(type(self)).items():
            if not isinstance(option, (_Deprecated, _Refused)):
                self.__dict__[name] = option.make()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in rows(type(self)):
            object.__setattr__(self, name, value)
        elif (core := name.removeprefix("_")) in rows(type(self)) and isinstance(rows(type(self))[core], _Through):
            object.__setattr__(self, core, value)
        else:
            raise AttributeError(unknown_name(self, name, rows(type(self))))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # looked up by Python when it copies; no user would see a suggestion
            raise AttributeError(name)
        row = rows(type(self)).get(name)
        if row is not None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}': {row.meaning}")
        core = name.removeprefix("_")
        if core != name and isinstance(rows(type(self)).get(core), _Through):
            return dict(self.__dict__[core])
        raise AttributeError(unknown_name(self, name, rows(type(self))))

    def changed(self) -> dict[str, Any]:
        """Options that do not have their default value."""
        found: dict[str, Any] = {}
        for name, option in rows(type(self)).items():
            if name in self.__dict__ and self.__dict__[name] != option.make():
                found[name] = self.__dict__[name]
        return found

    def act_in_program(self) -> bool:
        """Whether a session with these options differs from one with default ones in its compiled program alone."""
        known = rows(type(self))
        return all(known[name].in_program for name in self.changed())

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(self) is type(other) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.changed().items())})"


@cache
def rows(cls: type) -> dict[str, Option]:
    """The options of a class by name."""
    return {name: row for name, row in vars(cls).items() if isinstance(row, Option)}


@cache
def hints(cls: type) -> dict[str, Any]:
    """The types of the options."""
    return get_type_hints(cls, vars(sys.modules[cls.__module__]))
