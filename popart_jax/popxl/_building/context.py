"""The state of the building process: a stack of graphs, and the placement, scope and order of new operators.

Graphs use this module, so it uses only `ir` and `main_graph` of a graph; `context` has the functions for programs.
"""

from __future__ import annotations

from typing import Any

from .._internal.created_hooks import CreatedHooks
from .._internal.enums import ExecutionContext, TileSet
from .._internal.sequence import Sequencer
from .._internal.settings import Settings


class Context(CreatedHooks):
    """State of the building process."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._graphs: list[Any] = []
        self._name_scopes: list[str] = []
        self._ipu_id: int | None = 0
        self._io_tile_set = False
        self._execution_context = ExecutionContext.Normal
        self._sequencer = Sequencer()
        self._clear_hooks()

    @property
    def ipu_id(self) -> int | None:
        """IPU of new operators; None switches placement off."""
        return self._ipu_id

    @property
    def io_tile_set(self) -> bool:
        """Whether new operators go to the IO tiles."""
        return self._io_tile_set

    @property
    def name_scopes(self) -> list[str]:
        """Active name scopes, outermost first."""
        return self._name_scopes

    def push_name_scope(self, name: str) -> None:
        """Enter a name scope."""
        self._name_scopes.append(name)

    def pop_name_scope(self) -> str:
        """Leave the innermost name scope."""
        return self._name_scopes.pop()

    def push_graph(self, g: Any) -> None:
        """Enter a graph, which has to be of the same Ir as the graph that is being built (RuntimeError)."""
        if self._graphs and self._graphs[-1].ir != g.ir:
            raise RuntimeError(
                "Trying to a create a context manager nested in another context, when the previous context's Ir is "
                f"different. {self._graphs[-1].ir} != {g.ir}"
            )
        self._graphs.append(g)

    def pop_graph(self) -> Any:
        """Leave the innermost graph."""
        return self._graphs.pop()

    @property
    def graph(self) -> Any:
        """The graph that is being built; RuntimeError where there is none."""
        return self._current("a graph,")

    def _current(self, what: str) -> Any:
        if not self._graphs:
            raise RuntimeError(
                f"Trying to access {what} but no graph has been selected. Hint - try performing the operations in a "
                "context manager such as `with ir.main_graph:`."
            )
        return self._graphs[-1]

    @property
    def main_graph(self) -> Any:
        """Main graph of the Ir in use."""
        return self._current("the main_graph,").main_graph

    @property
    def ir(self) -> Any:
        """The Ir in use."""
        return self._current("the ir,").ir

    @property
    def in_sequence(self) -> bool | str | None:
        """Mode of the innermost `in_sequence` block; setting it enters a block, deleting it leaves the innermost."""
        return self._sequencer.mode

    @in_sequence.setter
    def in_sequence(self, mode: bool | str) -> None:
        if mode is None:
            raise TypeError("`None` cannot be passed to `in_sequence`. Try `False` instead.")
        self._sequencer.push(mode)

    @in_sequence.deleter
    def in_sequence(self) -> None:
        self._sequencer.pop()

    def _get_op_settings(self, name: str = "") -> Settings:
        """Placement, execution context and scope that an operator created now gets."""
        tile_set = TileSet.IO if self._io_tile_set else TileSet.Compute
        if self._ipu_id is None:
            tile_set = TileSet.Undefined
        graph = self._graphs[-1]._pb_graph if self._graphs else None
        return Settings(graph, "/".join([*self._name_scopes, name]), self._ipu_id, tile_set, self._execution_context)

    def _op_created(self, op: Any) -> Any:
        """Order a new operator and tell the hooks; returns the operator."""
        graph = op._graph
        self._sequencer.created(op, (graph, op._settings.executionContext), graph._topo_cons)
        for fn in [*graph._hooks.values(), *self._hooks.values()]:
            fn(op)
        return op


_CURRENT = Context()


def get_current_context() -> Context:
    """The one context."""
    return _CURRENT
