"""Queries of PopART's op-by-op picture of a session."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from .. import ir_view
from ..enums import IrSerializationFormat
from ..execution import Type
from ..model.session_model import read_session_model
from .ir_facts import ir_facts


class Ir:
    """Handle of a session's intermediate representation."""

    def __init__(self, facts: ir_view.IrFacts, request: Any) -> None:
        self._facts, self.request = facts, request

    def serialize(self) -> str:
        """The op list as JSON."""
        return ir_view.serialize_ir(self._facts)


def forward_text(request: Any) -> str:
    """The operators of a request's model as JSON, for a session that could not be made."""
    graph = read_session_model(request.model, request.shapes).model.graph
    shown = frozenset(o.name or "" for node in graph for o in node.outputs)
    return ir_view.serialize_forward(ir_view.IrFacts(graph, variables=frozenset(graph.initializers), anchors=shown))


class IrMethods:
    """`getIr`, `_serializeIr` and the types of tensors that only the op list has."""

    _prepared: Any
    _from_cache: bool

    def getIr(self) -> Ir:
        """A handle of the IR."""
        return Ir(ir_facts(self._prepared), self._prepared.request)

    @cached_property
    def _ir_types(self) -> dict[str, Type]:
        found = ir_view.tensor_types(ir_facts(self._prepared))
        return {n: Type(shape, np.dtype(dtype.numpy())) for n, (dtype, shape) in found.items()}

    def _ir_text(self) -> str:
        return ir_view.serialize_ir(ir_facts(self._prepared))

    def _ir_stages(self, checkpoints: list[str]) -> dict[str, str]:
        return ir_view.serialize_stages(ir_facts(self._prepared), checkpoints)

    def _serializeIr(self, format: IrSerializationFormat) -> str:
        """The op list after the patterns, as JSON; empty for an executable from a file."""
        if not isinstance(format, IrSerializationFormat):
            raise TypeError(f"_serializeIr takes an IrSerializationFormat, got {format!r}")
        return "" if self._from_cache else self._ir_text()
