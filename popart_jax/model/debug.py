"""Debug contexts: where in a program a thing was created, and the file that records it."""

from __future__ import annotations

import itertools
import json
import sys
import weakref
from typing import Any, overload

from ipu_model.whole_files import write_whole

from .._calls import checked, overloaded

_ids = itertools.count(1)


class SourceLocation:
    """A function, file and line."""

    @checked
    def __init__(self, functionName: str, fileName: str, lineNumber: int) -> None:
        self.functionName, self.fileName, self.lineNumber = functionName, fileName, lineNumber

    def __repr__(self) -> str:
        return f"SourceLocation({self.functionName!r}, {self.fileName!r}, {self.lineNumber})"


def caller_location() -> SourceLocation:
    """The innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("popart_jax"):
        frame = frame.f_back
    return SourceLocation(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)


class DebugContext:
    """A name, the record it belongs to, and a source location. A str is accepted wherever one is expected."""

    @overload
    def __init__(self, name: str, loc: SourceLocation) -> None: ...
    @overload
    def __init__(self, debugInfo: DebugInfo, name: str, loc: SourceLocation) -> None: ...
    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, name: str) -> None: ...
    @overload
    def __init__(self, debugInfo: DebugInfo, name: str) -> None: ...
    @overloaded
    def __init__(self, name: str = "", loc: Any = None, debugInfo: Any = None) -> None:
        self._name, self._parent = name, debugInfo
        self._location = loc or caller_location()

    @classmethod
    def _convert_from(cls, value: Any) -> DebugContext:
        if isinstance(value, DebugInfo):
            return cls(value, "")
        if not isinstance(value, str):
            raise TypeError(f"expected a DebugContext or a str, got {value!r}")
        return _named(value)

    def getPathName(self) -> str:
        """The name, behind the path of the parent if that is not empty."""
        parent = self._parent.getPathName() if self._parent is not None else ""
        return f"{parent}/{self._name}" if parent else self._name

    def __repr__(self) -> str:
        return f"DebugContext({self.getPathName()!r})"


def _named(name: str) -> DebugContext:
    """A context without parent and location; the location is taken only if a record is written."""
    context = DebugContext.__new__(DebugContext)
    context._name, context._parent = name, None
    context._location = caller_location() if _file.open else None
    return context


def path_of(context: DebugContext | str) -> str:
    """Path of a debug context, or a plain text itself."""
    return context if isinstance(context, str) else context.getPathName()


class DebugInfo:
    """A record in the debug file: it is written when this object dies.

    Parameters
    ----------
    debugContext : DebugContext or str
        Name, parent and location.
    layer : str
        Part of the program that made the record.
    """

    @checked
    def __init__(self, debugContext: DebugContext, layer: str) -> None:
        self._context, self._layer = debugContext, layer
        self._id = next(_ids)
        self._values: dict[str, Any] = {}
        if _file.open:
            record = _Record(self._id, layer, debugContext, self._values)
            weakref.finalize(self, _file.write, record, _file.generation)

    def setValue(self, name: str, value: Any) -> bool:
        """Add a member to the record."""
        self._values[name] = value
        return True

    def getId(self) -> int:
        """Number of the record in this process; the first is 1."""
        return self._id

    def getPathName(self) -> str:
        """Path name of the context."""
        return self._context.getPathName()


class _Record:
    """The data of a `DebugInfo` that are written; it keeps the parent alive, so children come first."""

    def __init__(self, number: int, layer: str, context: DebugContext, values: dict[str, Any]) -> None:
        self.number, self.layer, self.context, self.values = number, layer, context, values


class _DebugFile:
    """The file that records go to, while it is open."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.generation = 0
        self.strings: dict[str, int] = {}
        self.contexts: list[dict[str, Any]] = []

    @property
    def open(self) -> bool:
        return self.path is not None

    def start(self, path: str) -> None:
        self.path, self.strings, self.contexts = path, {}, []
        self.generation += 1

    def close(self) -> None:
        if self.path is None:
            return
        path, self.path = self.path, None
        write_whole(path, json.dumps({"stringTable": list(self.strings), "contexts": self.contexts}))

    def write(self, record: _Record, generation: int) -> None:
        if not self.open or generation != self.generation:
            return
        context = record.context
        entry: dict[str, Any] = {"id": record.number, "layer": record.layer, "name": self._index(context._name)}
        if context._parent is not None:
            entry["parentId"] = context._parent.getId()
        where = context._location
        if where is not None:
            entry["location"] = {
                "fileName": self._index(where.fileName),
                "functionName": self._index(where.functionName),
                "lineNumber": where.lineNumber,
            }
        entry.update(record.values)
        self.contexts.append(entry)

    def _index(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))


_file = _DebugFile()


def recording() -> bool:
    """Whether a debug file is open."""
    return _file.open


def record(context: DebugContext | str, layer: str, **values: Any) -> DebugInfo | None:
    """Write a record for a thing that the library created; does nothing while no file is open."""
    if not _file.open:
        return None
    info = DebugInfo(context if isinstance(context, DebugContext) else DebugContext(context), layer)
    for name, value in values.items():
        if value is not None:
            info.setValue(name, value)
    return info


@checked
def initializePoplarDebugInfo(filename: str, format: str = "json") -> None:
    """Start writing debug records to a file.

    Raises
    ------
    ValueError
        A format other than json.
    """
    if format != "json":
        raise ValueError(f"Debug records are written as json, not {format!r}.")
    _file.start(filename)


def closePoplarDebugInfo() -> None:
    """Write the records made so far and stop."""
    _file.close()
