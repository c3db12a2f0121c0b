"""Sync patterns of devices as texts."""

from __future__ import annotations

from ..._calls import checked
from ...enums import SyncPattern
from ...errors import noted, popart_exception


@checked
def syncPatternFromString(str: str, /) -> SyncPattern:
    """The sync pattern of a text: full, singlePipeline or replicaAndLadder.

    Raises
    ------
    popart_exception
        Any other text.
    """
    for pattern in SyncPattern:
        if f"{pattern}" == str:
            return pattern
    raise noted(
        popart_exception(f"Unknown syncPattern setting: {str}"), f"There are {', '.join(map(format, SyncPattern))}."
    )


@checked
def syncPatternToString(pattern: SyncPattern, /) -> str:
    """The text of a sync pattern."""
    return f"{pattern}"
