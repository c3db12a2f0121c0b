"""Memory that a run needs in addition to its arguments, checked before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from .._process.heap import keep, kept
from .._process.memory import memory_free
from ..limits import limits

_MUCH = 32 << 20


@dataclass(frozen=True)
class Room:
    """Memory that a run needs in addition to its arguments.

    XLA allocates it after the old state was donated; if the allocation failed then, the weights would be lost.
    """

    size: int  # bytes; 0 where they are too few to be worth a check before each run

    @classmethod
    def of(cls, size: int) -> Room:
        """The room for a number of bytes of host memory."""
        return cls(size if size >= _MUCH else 0)

    def ensure(self) -> None:
        """Before a run: raise popart_exception, with the memory needed and available, where there is not enough.

        The process keeps that memory between runs.
        """
        if not self.size:
            return
        free = memory_free()
        if self.size > free:
            free += kept()
        limits.check_bytes(self.size, "A run of the program, beside its inputs and weights,", min(limits.memory, free))
        keep(self.size)
