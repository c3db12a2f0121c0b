"""Where a remote variable is stored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemotePlace:
    """Entry of a remote buffer; `shards` is the number of shards of a sharded variable."""

    buffer: int
    offset: int
    shards: int | None
