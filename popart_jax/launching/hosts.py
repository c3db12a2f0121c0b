"""Hosts of a job's processes: this machine, or those in a host file."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from ..errors import popart_exception

_HERE = ("localhost", "127.0.0.1", "::1")
_FIXED_PORT = 29400  # for a coordinator on another machine, where we can't look for a free one


def read(path: Path) -> list[str]:
    """One name per slot of a host file: lines ``HOST [slots=N]``, as Open MPI reads them; ``#`` opens a comment.

    Raises popart_exception where a line has another form, or there is no host.
    """
    found: list[str] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        count = words[1].removeprefix("slots=") if len(words) == 2 else "1"
        if len(words) > 2 or not count.isdecimal() or not int(count):
            raise popart_exception(f"{path}:{number}: expected 'HOST [slots=N]', got {line.strip()!r}.")
        found += [words[0]] * int(count)
    if not found:
        raise popart_exception(f"{path} names no host; write one per line, 'HOST [slots=N]'.")
    return found


def assign(processes: int | None, slots: Sequence[str] | None) -> list[str]:
    """The host of each process; popart_exception for more processes than slots, or fewer than one."""
    if processes is not None and processes < 1:
        raise popart_exception(f"{processes} processes: expected at least 1.")
    if slots is None:
        return ["localhost"] * (processes or 1)
    if processes is not None and processes > len(slots):
        raise popart_exception(f"{processes} processes, but the hosts have {len(slots)} slots; write 'slots=N' to add.")
    return list(slots[:processes])


def is_here(host: str) -> bool:
    """Whether a name means this machine."""
    return host in (*_HERE, socket.gethostname())


def coordinator(places: Sequence[str], port: int | None) -> str:
    """Address of process 0, as the others reach it."""
    first = places[0]
    if is_here(first) and any(not is_here(h) for h in places):
        first = socket.gethostname()
    return f"{first}:{port or (_free_port() if is_here(places[0]) else _FIXED_PORT)}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
