"""Queries of PopART's op-by-op picture of a session."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..enums import IrSerializationFormat
from ..execution import Type
from ..ir_view import IrFacts, serialize_ir, tensor_types
from .ir_facts import ir_facts


class Ir:
    """Handle of a session's intermediate representation."""

    def __init__(self, facts: IrFacts, request: Any) -> None:
        self._facts, self.request = facts, request

    def serialize(self) -> str:
        """The op list as JSON."""
        return serialize_ir(self._facts)


class IrMethods:
    """`getIr`, `_serializeIr` and the types of tensors that only the op list has."""

    _prepared: Any
    _from_cache: bool

    def getIr(self) -> Ir:
        """A handle of the IR."""
        return Ir(ir_facts(self._prepared), self._prepared.request)

    @cached_property
    def _ir_types(self) -> dict[str, Type]:
        found = tensor_types(ir_facts(self._prepared))
        return {n: Type(shape, np.dtype(dtype.numpy())) for n, (dtype, shape) in found.items()}

    def _ir_text(self) -> str:
        return serialize_ir(ir_facts(self._prepared))

    def _serializeIr(self, format: IrSerializationFormat) -> str:
        """The op list after the patterns, as JSON; empty for an executable from a file."""
        if not isinstance(format, IrSerializationFormat):
            raise TypeError(f"_serializeIr takes an IrSerializationFormat, got {format!r}")
        return "" if self._from_cache else self._ir_text()
