"""The context stack: which graph is built, and where and in which order its operators go.

There is one stack per process. Entering a graph pushes it; `ipu`, `io_tiles`, `name_scope` and `in_sequence` change
what operators created inside get.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Literal, TypeVar

from ..model.debug import SourceLocation
from ._building.context import Context as Context
from ._building.context import get_current_context
from ._building.spec import whole_number
from ._internal.enums import ExecutionContext
from .graph import Graph
from .ir import Ir

InSequenceKey = tuple[Any, ExecutionContext]
Fn = TypeVar("Fn", bound=Callable[..., Any])


def get_current_graph() -> Graph:
    """The graph that is being built; RuntimeError when there is none."""
    return get_current_context().graph


def get_main_graph() -> Graph:
    """Main graph of the Ir in use; RuntimeError outside any graph."""
    return get_current_context().main_graph


def get_ir() -> Ir:
    """The Ir in use; RuntimeError outside any graph."""
    return get_current_context().ir


gcg = get_current_graph
gmg = get_main_graph
gir = get_ir


@contextmanager
def _swapped(attribute: str, value: Any) -> Generator[Any]:
    current = get_current_context()
    old = getattr(current, attribute)
    setattr(current, attribute, value)
    try:
        yield value
    finally:
        setattr(current, attribute, old)


@contextmanager
def ipu(ipu: int) -> Generator[int]:
    """Operators created inside go to this IPU; None switches placement off. TypeError unless it is a whole number."""
    if ipu is not None:
        whole_number("ipu", ipu)
    with _swapped("_ipu_id", ipu):
        yield ipu


@contextmanager
def in_sequence(mode: bool | Literal["pass"] = True) -> Generator[bool | str]:
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
    current = get_current_context()
    current.in_sequence = mode
    try:
        yield mode
    finally:
        del current.in_sequence


@contextmanager
def io_tiles() -> Generator[None]:
    """Operators created inside go to the IO tiles."""
    with _swapped("_io_tile_set", True):
        yield


@contextmanager
def name_scope(name: str) -> Generator[list[str]]:
    """Names made inside get the prefix ``name/``. TypeError unless it is text."""
    if not isinstance(name, str):
        raise TypeError(f"`name` must be text, got {name!r}.")
    get_current_context().push_name_scope(name)
    try:
        yield get_current_context().name_scopes
    finally:
        get_current_context().pop_name_scope()


@contextmanager
def _execution_context(context: ExecutionContext) -> Generator[ExecutionContext]:
    """Operators created inside belong to another program than `session.run`."""
    with _swapped("_execution_context", context):
        yield context


@contextmanager
def _apart() -> Generator[None]:
    """Operators created inside take no part in the caller's sequences and name scopes."""
    with _swapped("_sequencer", type(get_current_context()._sequencer)()), _swapped("_name_scopes", []):
        yield


@contextmanager
def debug_context_frame_offset(i: int) -> Generator[None]:
    """Kept for programs that wrap operators: source locations are taken `i` frames further out."""
    yield


def get_source_location(offset: int = 0) -> SourceLocation:
    """Function name, file and line of the caller, `offset` frames out, as debug contexts take them."""
    frame = sys._getframe(1 + offset)
    return SourceLocation(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)


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
