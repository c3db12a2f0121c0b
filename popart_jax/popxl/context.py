"""The context stack: which graph is built, and where and in which order its operators go.

There is one stack per process. Entering a graph pushes it; `ipu`, `io_tiles`, `name_scope` and `in_sequence` change
what operators created inside get.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ._internal.created_hooks import CreatedHooks
from ._internal.enums import ExecutionContext, TileSet
from ._internal.sequence import Sequencer
from ._internal.settings import Settings

if TYPE_CHECKING:
    from .graph import Graph
    from .ir import Ir

InSequenceKey = tuple[Any, ExecutionContext]
Fn = TypeVar("Fn", bound=Callable[..., Any])


class Context(CreatedHooks):
    """State of the building process."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._graphs: list[Graph] = []
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

    def push_graph(self, g: Graph) -> None:
        """Enter a graph.

        Raises
        ------
        RuntimeError
            It belongs to another Ir than the graph that is being built.
        """
        if self._graphs and self._graphs[-1].ir != g.ir:
            raise RuntimeError("New graph is from a different `popxl.Ir` than the current graph.")
        self._graphs.append(g)

    def pop_graph(self) -> Graph:
        """Leave the innermost graph."""
        return self._graphs.pop()

    @property
    def graph(self) -> Graph:
        """The graph that is being built.

        Raises
        ------
        RuntimeError
            None is.
        """
        if not self._graphs:
            raise RuntimeError("A graph context has not been set. Use `with ir.main_graph:` or `with graph:`.")
        return self._graphs[-1]

    @property
    def main_graph(self) -> Graph:
        """Main graph of the Ir in use."""
        return self.graph.main_graph

    @property
    def ir(self) -> Ir:
        """The Ir in use."""
        return self.graph.ir

    @property
    def in_sequence(self) -> bool | str | None:
        """Mode of the innermost `in_sequence` block."""
        return self._sequencer.mode

    def _get_op_settings(self, name: str = "") -> Settings:
        """Placement, execution context and scope that an operator created now gets."""
        tile_set = TileSet.IO if self._io_tile_set else TileSet.Compute
        if self._ipu_id is None:
            tile_set = TileSet.Undefined
        return Settings("/".join([*self._name_scopes, name]), self._ipu_id, tile_set, self._execution_context)

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


def get_current_graph() -> Graph:
    """The graph that is being built; RuntimeError when there is none."""
    return _CURRENT.graph


def get_main_graph() -> Graph:
    """Main graph of the Ir in use; RuntimeError outside any graph."""
    return _CURRENT.main_graph


def get_ir() -> Ir:
    """The Ir in use; RuntimeError outside any graph."""
    return _CURRENT.ir


gcg, gmg, gir = get_current_graph, get_main_graph, get_ir


@contextmanager
def _swapped(attribute: str, value: Any) -> Iterator[Any]:
    old = getattr(_CURRENT, attribute)
    setattr(_CURRENT, attribute, value)
    try:
        yield value
    finally:
        setattr(_CURRENT, attribute, old)


@contextmanager
def ipu(ipu: int) -> Iterator[int]:
    """Operators created inside go to this IPU; None switches placement off."""
    with _swapped("_ipu_id", ipu):
        yield ipu


@contextmanager
def in_sequence(mode: bool | Literal["pass"] = True) -> Iterator[bool | str]:
    """Order of the operators created inside.

    Parameters
    ----------
    mode : bool or 'pass'
        True: one after the other; False: free among themselves, as one unit to what surrounds them; 'pass': no
        constraints at all.

    Raises
    ------
    TypeError
        `mode` is None.
    """
    if mode is None:
        raise TypeError("`None` cannot be passed to `in_sequence`. Use True, False or 'pass'.")
    _CURRENT._sequencer.push(mode)
    try:
        yield mode
    finally:
        _CURRENT._sequencer.pop()


@contextmanager
def io_tiles() -> Iterator[None]:
    """Operators created inside go to the IO tiles."""
    with _swapped("_io_tile_set", True):
        yield


@contextmanager
def name_scope(name: str) -> Iterator[list[str]]:
    """Names made inside get the prefix ``name/``."""
    _CURRENT.push_name_scope(name)
    try:
        yield _CURRENT.name_scopes
    finally:
        _CURRENT.pop_name_scope()


@contextmanager
def _execution_context(context: ExecutionContext) -> Iterator[ExecutionContext]:
    """Operators created inside belong to another program than `session.run`."""
    with _swapped("_execution_context", context):
        yield context


@contextmanager
def debug_context_frame_offset(i: int) -> Iterator[None]:
    """Kept for programs that wrap operators: source locations are taken `i` frames further out."""
    yield


def get_source_location(offset: int = 0) -> tuple[str, str, int]:
    """Function name, file and line of the caller, `offset` frames out."""
    frame = inspect.stack()[1 + offset]
    return frame.function, frame.filename, frame.lineno


def op_debug_context(name: str | Callable[..., Any]) -> Any:
    """Decorator of functions that create operators (with or without a name); the function stays as it is."""
    if callable(name):
        return name

    def decorate(fn: Fn) -> Fn:
        @wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return inner  # pyright: ignore[reportReturnType]

    return decorate
