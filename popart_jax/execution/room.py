"""Memory that a run needs in addition to its arguments, checked before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from .._memory import memory_free
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

    def check(self) -> None:
        """Raise popart_exception, with the memory needed and available, where there is not enough for a run."""
        if self.size:
            most = min(limits.memory, memory_free())
            limits.check_bytes(self.size, "A run of the program, beside its inputs and weights,", most)
