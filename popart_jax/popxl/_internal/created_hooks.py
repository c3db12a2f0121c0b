"""Functions that are called for each new operator, of one graph or of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class CreatedHooks:
    """The hooks of a graph or of the context."""

    _hooks: dict[int, Callable[[Any], Any]]
    _hook_count: int

    def _clear_hooks(self) -> None:
        self._hooks, self._hook_count = {}, 0

    def register_op_created_hook(self, fn: Callable[[Any], Any]) -> int:
        """Call `fn(op)` after each operator created here from now on; returns a handle."""
        self._hook_count += 1
        self._hooks[self._hook_count] = fn
        return self._hook_count

    def remove_op_created_hook(self, handle: int) -> None:
        """Undo `register_op_created_hook`.

        Raises
        ------
        ValueError
            Unknown handle.
        """
        if handle not in self._hooks:
            raise ValueError(f"Unknown op created hook {handle}")
        del self._hooks[handle]
