"""Memory available to this process: the machine's, limited by its control groups and by `ulimit`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_UNKNOWN = 1 << 36
_GROUPS, _LISTING = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


@cache
def _machine() -> int:
    """Bytes of main memory; 64 GiB where the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""


def _group_folders(groups: Path, listing: Path) -> list[Path]:
    """The control groups that limit this process: its own and those that contain it."""
    found: list[Path] = []
    for line in _text(listing).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        root = groups / "memory" if controllers else groups
        own = root / path.lstrip("/")
        while own != root and own.is_relative_to(root):
            found.append(own)
            own = own.parent
        found.append(root)  # in a container it is the only visible one, if the path is outside of the container
    return found


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def _group_limits(folders: list[Path]) -> Iterator[tuple[Path, int]]:
    for folder in folders:
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _number(_text(folder / name))
            if limit is not None:
                yield folder, limit


def _group_used(folder: Path) -> int:
    """Bytes that a group uses and can't reclaim; the cache of files that were read can be reclaimed."""
    used = _number(_text(folder / "memory.current")) or _number(_text(folder / "memory.usage_in_bytes")) or 0
    rows = dict(line.split(" ", 1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
    return used - (_number(rows.get("total_inactive_file", rows.get("inactive_file", ""))) or 0)


def _process_limits() -> Iterator[tuple[int, int]]:
    """Limits set by `ulimit`, each with the index of the field in ``/proc/self/statm`` that counts against it."""
    try:
        import resource  # no such module on Windows
    except ImportError:
        return
    for kind, place in ((resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5)):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit, place


def is_limited() -> bool:
    """Whether `ulimit` limits this process, so that an allocation may fail."""
    return any(True for _ in _process_limits())


def groups_at(groups: Path, listing: Path) -> tuple[tuple[Path, int], ...]:
    """Folders of the control groups that limit this process, with their limits in bytes.

    `groups` is the folder of the groups (version 2 in the folder itself, version 1 in its subfolder ``memory``),
    `listing` the file that lists the groups of this process.
    """
    return tuple(_group_limits(_group_folders(groups, listing)))


@cache
def _own_groups() -> tuple[tuple[Path, int], ...]:
    return groups_at(_GROUPS, _LISTING)


def memory_allowed(groups: tuple[tuple[Path, int], ...] | None = None) -> int:
    """Bytes that this process may use: the smallest of all limits."""
    held = _own_groups() if groups is None else groups
    return min([_machine(), *(n for _, n in held), *(n for n, _ in _process_limits())])


def memory_free(groups: tuple[tuple[Path, int], ...] | None = None) -> int:
    """Bytes that are free now; all that is allowed where the system does not report it."""
    held = _own_groups() if groups is None else groups
    rows = dict(line.split(":", 1) for line in _text(Path("/proc/meminfo")).splitlines() if ":" in line)
    available = _number(rows.get("MemAvailable", "").replace("kB", ""))
    pages, size = _text(Path("/proc/self/statm")).split(), os.sysconf("SC_PAGE_SIZE") if os.name == "posix" else 4096
    left = [memory_allowed(groups) if available is None else available << 10]
    left += [limit - _group_used(folder) for folder, limit in held]
    left += [limit - int(pages[place]) * size for limit, place in _process_limits() if len(pages) > place]
    return max(0, min(left))
