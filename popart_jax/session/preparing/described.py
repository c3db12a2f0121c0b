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
    """The facts of a session that its op list depends on.

    Attributes
    ----------
    request : Request
        The arguments of the constructor.
    source : StrippedModel
        The model as given, for saving.
    graph : onnx_ir.Graph
        Its graph before the patterns; never changed.
    program : Program
        The step program, perhaps incomplete.
    infos : mapping of str to Type
        Type of every tensor as the IR has it.
    variables : mapping of str to HostVariable
        Variables as the host sees them.
    trained : collection of str
        Those that the optimizer updates.
    constants : frozenset of str
        Those that never change.
    state : frozenset of str
        Those that are optimizer state.
    """

    request: Request
    source: StrippedModel
    graph: ir.Graph
    program: Program
    infos: Mapping[str, Type]
    variables: Mapping[str, HostVariable]
    trained: Collection[str] = ()
    constants: frozenset[str] = frozenset()
    state: frozenset[str] = frozenset()

    @property
    def local_replicas(self) -> int:
        """Replicas of this process."""
        return self.request.local_replicas
