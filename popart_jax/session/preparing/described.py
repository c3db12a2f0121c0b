"""What is known of a session before its program is complete."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ...execution import Program, Type
from ...model.stripped import StrippedModel
from ..requests import Request
from .source import HostVariable


@dataclass(frozen=True)
class Described:
    """A session as far as its op list depends on it.

    Attributes
    ----------
    request : Request
        What the program asks for.
    source : StrippedModel
        The model as given, for saving.
    graph : onnx_ir.Graph
        Its graph before the patterns; nothing changes it.
    program : Program
        What runs, as far as it is known.
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
