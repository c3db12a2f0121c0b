"""Replica groupings by name, and groupings within one instance or one IPU-link domain."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TypeVar

from .. import popxl
from ..popxl import ReplicaGrouping
from .dot_tree import DotTree

CLS = TypeVar("CLS", bound="NamedReplicaGrouping")
_LARGEST_DOMAIN = 64


class NamedReplicaGrouping(DotTree[ReplicaGrouping]):
    """Replica groupings by name."""

    @classmethod
    def build_groups(cls: type[CLS], names: Sequence[str], value: ReplicaGrouping) -> CLS:
        """The same grouping under every name."""
        return cls.pack(names, [value] * len(names))


def fill_none_group(rg: ReplicaGrouping | None, none_value: ReplicaGrouping) -> ReplicaGrouping:
    """The grouping, or `none_value` where there is none."""
    return none_value if rg is None else rg


def _within(grouping: ReplicaGrouping | None, domain: int, what: str) -> ReplicaGrouping:
    """Groups cut to members that lie in one domain of `domain` neighbouring replicas.

    Neighbours of a group in two domains, and domains that are divided differently, raise ValueError.
    """
    ir = popxl.gcg().ir
    whole = fill_none_group(grouping, ir.replica_grouping())
    if not _crosses(whole, domain):
        return whole
    if whole.is_const and whole.stride >= domain:
        raise ValueError(f"replica grouping stride must be < {what}")
    replicas = range(0, len(whole.assignment), domain)
    patterns = [_renumbered(whole.assignment[start : start + domain]) for start in replicas]
    if any(pattern != patterns[0] for pattern in patterns):
        raise ValueError("Assignment pattern is different across instances")
    groups = max(patterns[0]) + 1
    return ir.replica_grouping_from_assignments([k * groups + g for k, part in enumerate(patterns) for g in part])


def _renumbered(assignment: Sequence[int | None]) -> list[int]:
    """Group numbers in order of their first appearance."""
    numbers: dict[int | None, int] = {}
    return [numbers.setdefault(group, len(numbers)) for group in assignment]


def _crosses(grouping: ReplicaGrouping, domain: int) -> bool:
    return any(member // domain != group[0] // domain for group in grouping.groups for member in group)


def get_instance_replica_grouping(replica_grouping: ReplicaGrouping | None = None) -> ReplicaGrouping:
    """The grouping (default: all replicas) restricted to the replicas of one process."""
    return _within(replica_grouping, popxl.gcg().ir.instance_replication_factor, "ir.instance_replication_factor")


def is_cross_instance(replica_grouping: ReplicaGrouping) -> bool:
    """Whether a group has members in several processes."""
    return _crosses(replica_grouping, popxl.gcg().ir.instance_replication_factor)


def get_ild_size_from_popdist() -> int:
    """Replicas in one IPU-link domain: ``ipuLinkDomainSize`` of POPLAR_TARGET_OPTIONS, else min(replicas, 64)."""
    options = json.loads(os.environ.get("POPLAR_TARGET_OPTIONS") or "{}")
    return int(options.get("ipuLinkDomainSize", min(popxl.gcg().ir.replication_factor, _LARGEST_DOMAIN)))


def get_ild_replica_grouping(replica_grouping: ReplicaGrouping | None = None) -> ReplicaGrouping:
    """The grouping (default: all replicas) restricted to one IPU-link domain."""
    return _within(replica_grouping, get_ild_size_from_popdist(), "IPU Link Domain size")


def is_cross_ild(replica_grouping: ReplicaGrouping) -> bool:
    """Whether a group spans several IPU-link domains."""
    return _crosses(replica_grouping, get_ild_size_from_popdist())
