"""PopART's op list of a session: as text, at PopART's checkpoints, and the types of its tensors."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ... import ir_view
from ...execution import Type
from ...model.debug import recording
from ...model.session_model import read_session_model
from ..preparing import Prepared
from ..requests import Request


class Ir:
    """Handle of a session's intermediate representation."""

    def __init__(self, facts: ir_view.IrFacts, request: Request) -> None:
        self._facts, self.request = facts, request

    def serialize(self) -> str:
        """The op list as JSON."""
        return ir_view.serialize_ir(self._facts)


class OpList:
    """The op list that PopART would have for a session, made when it is asked for."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared

    def handle(self) -> Ir:
        """A handle for programs."""
        return Ir(self._prepared.op_list_facts, self._prepared.request)

    @cached_property
    def types(self) -> dict[str, Type]:
        """Types of its tensors."""
        found = ir_view.tensor_types(self._prepared.op_list_facts)
        return {n: Type(shape, np.dtype(dtype.numpy())) for n, (dtype, shape) in found.items()}

    def text(self) -> str:
        """The op list after the patterns, as JSON."""
        return ir_view.serialize_ir(self._prepared.op_list_facts)

    def stages(self, checkpoints: list[str]) -> dict[str, str]:
        """The op list at each of the checkpoints that was passed, as JSON."""
        return ir_view.serialize_stages(self._prepared.op_list_facts, checkpoints)

    def check(self) -> None:
        """Make the op list if only it can show an error, and write its debug records if a debug file is open.

        Raises popart_exception where the graph has too few parts for the IPUs, a pipeline would compute a tensor again
        twice, or the batch can't be serialised.
        """
        options = self._prepared.request.options
        recomputes_stages = options.enablePipelining and options.autoRecomputation.name == "Pipeline"
        if options.virtualGraphMode.name == "Auto" or recomputes_stages:
            ir_view.build(self._prepared.op_list_facts)
        if options.batchSerializationSettings.factor > 1:
            ir_view.check_batch(self._prepared.op_list_facts)
        if recording():
            from .ir_records import record_ir

            record_ir(self._prepared.op_list_facts)


def forward_text(request: Request) -> str:
    """The operators of a request's model as JSON, for a session that could not be made."""
    graph = read_session_model(request.model, request.shapes, anywhere=request.strict).model.graph
    shown = frozenset(o.name or "" for node in graph for o in node.outputs)
    return ir_view.serialize_forward(ir_view.IrFacts(graph, variables=frozenset(graph.initializers), anchors=shown))
