"""What the builder has learnt of operators by importing JAX, for processes that have not: see `popart_jax.learnt`."""

from __future__ import annotations

from typing import Any

from ..learnt import learnt, name_of


def recall(*about: Any) -> Any:
    """What another process has noted; None if there is nothing, or if JAX is there to ask."""
    facts = learnt()
    key = None if facts is None else name_of(*about)
    return None if facts is None or key is None else facts.recall(key)


def note(operator: tuple[str, str, int], value: Any, *about: Any) -> None:
    """Note a JSON value about an operator (domain, type, version) of this package, for `recall`."""
    from ..ops.registry import is_known, resolve  # imports JAX

    facts = learnt()
    if facts is None:
        return
    row, key = resolve(*operator, popart=True), name_of(*about)
    if key is not None and row is not None and is_known(row.fn):
        facts.note(key, value)


def keep() -> None:
    """Write what this process has noted."""
    facts = learnt()
    if facts is not None:
        facts.keep()
