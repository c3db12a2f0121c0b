"""The facts of a session that are known before its step program is complete."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ...execution import Program, Type
from ...model.files.stripped import StrippedModel
from ..requests import Request
from .source import HostVariable


@dataclass(frozen=True)
class Described:
    """The facts of a session that its op list depends on."""

    request: Request  # arguments of the constructor
    source: StrippedModel  # the model as given, for saving
    graph: ir.Graph  # its graph before the patterns; never changed
    program: Program  # the step program, perhaps incomplete
    infos: Mapping[str, Type]  # type of every tensor as the IR has it
    variables: Mapping[str, HostVariable]  # variables as the host sees them
    trained: Collection[str] = ()  # those that the optimizer updates
    constants: frozenset[str] = frozenset()  # those that never change
    state: frozenset[str] = frozenset()  # those that are optimizer state

    @property
    def local_replicas(self) -> int:
        """Replicas of this process."""
        return self.request.local_replicas
