"""Queries of PopART's op-by-op picture of a session."""

from __future__ import annotations

from typing import Any

from ..enums import IrSerializationFormat
from ..ir_view import IrFacts, serialize_ir
from .ir_facts import ir_facts


class Ir:
    """Handle of a session's intermediate representation."""

    def __init__(self, facts: IrFacts, request: Any) -> None:
        self._facts, self.request = facts, request

    def serialize(self) -> str:
        """The op list as JSON."""
        return serialize_ir(self._facts)


class IrMethods:
    """`getIr` and `_serializeIr`."""

    _prepared: Any
    _from_cache: bool

    def getIr(self) -> Ir:
        """A handle of the IR."""
        return Ir(ir_facts(self._prepared), self._prepared.request)

    def _ir_text(self) -> str:
        return serialize_ir(ir_facts(self._prepared))

    def _serializeIr(self, format: IrSerializationFormat) -> str:
        """The op list after the patterns, as JSON; empty for an executable from a file."""
        if not isinstance(format, IrSerializationFormat):
            raise TypeError(f"_serializeIr takes an IrSerializationFormat, got {format!r}")
        return "" if self._from_cache else self._ir_text()
