"""Memory that the C library (glibc) holds for this process: what it keeps after use, and what it returns."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_MOST = (1 << 31) - 1  # mallopt takes an int
_HEADER = 1 << 12  # more than what glibc and XLA's alignment add to a block
_BY_ITSELF = 32 << 20  # glibc keeps blocks of up to this size without being told, once some were freed
_asked: set[int] = set()  # sizes of programs that ran once
_least = _BY_ITSELF  # what glibc was told; this state is the process's, as glibc's is


class _Counters(ctypes.Structure):
    """`struct mallinfo2` of malloc.h; `fordblks` are the free bytes."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    )


@cache
def _function(name: str) -> Any:
    """One of glibc's functions; None with another C library, or an older release."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None


@cache
def _counters() -> Any:
    found = _function("mallinfo2")  # since glibc 2.33
    if found is not None:
        found.restype = _Counters
    return found


@cache
def _is_users() -> bool:
    """Whether the user has told glibc what to keep."""
    return any(n.startswith("MALLOC_") for n in os.environ) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")


def keep(size: int) -> None:
    """Keep that many freed bytes for the next run of a program that needs them, from its second run on.

    The system would else fill them with zeros again at each run: GPT-2's logits and their copy took 12 % of its time.
    The first run makes things that stay: they would lie in the middle of what is kept, too little for the next run.
    """
    global _least
    if size <= _least or _is_users() or _counters() is None:
        return
    if size not in _asked:
        _asked.add(size)
        return
    _least = size
    function = _function("mallopt")
    function(_M_MMAP_THRESHOLD, min(size + _HEADER, _MOST))
    function(_M_TRIM_THRESHOLD, min(2 * size, _MOST))  # other memory may be free beside it


def kept() -> int:
    """Freed bytes that `keep` made this process hold, and which the system counts as used."""
    return 0 if _least == _BY_ITSELF else int(_counters()().fordblks)


def give_back() -> None:
    """Return freed memory to the system; glibc keeps what the compiler has freed."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)
