"""Gradient clipping groups of an optimizer, as the weight update takes them."""

from __future__ import annotations

from collections.abc import Collection

from ...errors import popart_exception
from ...optimizers import SGD, Adam, Optimizer


def clip_groups(optimizer: Optimizer, trained: Collection[str]) -> tuple[tuple[tuple[str, ...], float], ...]:
    """Weights and largest norm of every group; popart_exception for a listed weight that is not updated."""
    if not isinstance(optimizer, (SGD, Adam)):
        return ()
    groups: list[tuple[tuple[str, ...], float]] = []
    for clip in optimizer.clip_norms():
        members = tuple(trained) if clip.covers_all() else tuple(clip.weightIds)
        for name in members:
            if name not in trained:
                raise popart_exception(f"Could not find a varupdate op for tensor {name}")
        if members:
            groups.append((members, clip.maxNorm))
    return tuple(groups)
