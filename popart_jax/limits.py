"""Limits on the size of models: `popart_jax.limits`.

Sizes are computed as exact integers before anything is allocated, so that a model that is too large raises an error
instead of ending the process.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Sequence
from numbers import Number

from ._process.memory import memory_allowed
from .errors import popart_exception

_NODES = 200_000
_CACHE = 10 << 30


class Limits:
    """Limits on the resources of one model.

    Attributes
    ----------
    memory : int
        Bytes of one tensor, and of all memory of one run of a session's program. By default the memory available to
        this process: that of the machine, or less if a control group (a container) or ``ulimit`` limits it.
    nodes : int
        Nodes of a graph after functions are inlined; by default 200,000.
    cache : int
        Bytes of compiled programs in one folder; beyond that the least recently used are deleted; by default 10 GiB.

    Examples
    --------
    >>> with limits.set(memory=1 << 20):
    ...     limits.check_size((1024, 1024), 4, "a matrix")
    Traceback (most recent call last):
    popart_jax.errors.popart_exception: a matrix of shape [1024, 1024] needs 4.19 MB; the limit is 1.05 MB.
      fix: raise popart_jax.limits.memory (bytes), or make the tensors smaller.
    """

    def __init__(self) -> None:
        self._memory: int | None = None
        self.nodes = _NODES
        self.cache = _CACHE

    @property
    def memory(self) -> int:
        """Bytes that one tensor, and one run, may use."""
        return memory_allowed() if self._memory is None else self._memory

    @memory.setter
    def memory(self, value: int) -> None:
        self._memory = int(value)

    @property
    def are_default(self) -> bool:
        """Whether the limits on memory and nodes have their default values."""
        return self._memory is None and self.nodes == _NODES

    @contextlib.contextmanager
    def set(self, *, memory: int | None = None, nodes: int | None = None, cache: int | None = None) -> Generator[None]:
        """Set other limits inside a `with` block."""
        before = self._memory, self.nodes, self.cache
        self._memory = self._memory if memory is None else memory
        self.nodes = self.nodes if nodes is None else nodes
        self.cache = self.cache if cache is None else cache
        try:
            yield
        finally:
            self._memory, self.nodes, self.cache = before

    def check_size(self, shape: Sequence[int], item_size: float, what: str, most: int | None = None) -> None:
        """Raise popart_exception for a tensor above the limit, or above `most` bytes (the memory that is free now).

        A dimension that is a symbol counts as one.
        """
        size = math.prod(int(n) for n in shape if isinstance(n, Number)) * item_size
        self.check_bytes(size, f"{what} of shape {list(shape)}", most)

    def check_bytes(self, size: float, what: str, most: int | None = None) -> None:
        """Raise popart_exception for a size above the limit, or above `most` bytes."""
        limit = self.memory if most is None else most
        if size > limit:
            raise popart_exception(
                f"{what} needs {_shown(size)}; the limit is {_shown(limit)}.\n"
                "  fix: raise popart_jax.limits.memory (bytes), or make the tensors smaller."
            )

    def check_nodes(self, count: int, what: str) -> None:
        """Raise popart_exception for a graph with more nodes than the limit."""
        if count > self.nodes:
            raise popart_exception(
                f"{what} {count:.3g} nodes; the limit is {self.nodes}.\n  fix: raise popart_jax.limits.nodes."
            )


def _shown(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} EB"


limits = Limits()
"""The limits of this process; ``with limits.set(memory=..., nodes=...):`` changes them for a block."""
