"""Memory that the C library (glibc) holds for this process: what it keeps after use, and what it returns."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_MOST = (1 << 31) - 1  # mallopt takes an int
_HEADER = 1 << 12  # more than what glibc and XLA's alignment add to a block
_least = 32 << 20  # glibc keeps blocks of up to this size by itself, once some were freed


class _Counters(ctypes.Structure):
    """`struct mallinfo2` of malloc.h: bytes in use are `uordblks` and `hblkhd`, bytes that are free `fordblks`."""

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
    """Keep that many freed bytes from now on, for the next run of a program that needs them.

    The system would else fill them with zeros again at each run: GPT-2's logits and their copy took 12 % of its time.
    """
    global _least
    if size <= _least or _is_users() or _counters() is None:
        return
    _least = size
    function = _function("mallopt")
    function(_M_MMAP_THRESHOLD, min(size + _HEADER, _MOST))
    function(_M_TRIM_THRESHOLD, min(2 * size, _MOST))  # other memory may be free beside it


def kept() -> int:
    """Freed bytes that the process still holds, and which the system counts as used."""
    counters = _counters()
    if counters is None:
        return 0
    found = counters()
    held = _resident() - found.uordblks - found.hblkhd  # what was given back is free too, but not held
    return max(0, min(found.fordblks, held))


def _resident() -> int:
    """Bytes of main memory that are this process's alone."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(rows.get("RssAnon", "0 kB").split()[0]) << 10


def give_back() -> None:
    """Return freed memory to the system; glibc keeps what the compiler has freed."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)
