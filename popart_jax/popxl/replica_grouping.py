"""Groups of replicas."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from math import gcd
from typing import Any, Protocol

from ..enums import VariableRetrievalMode
from ..model.variable_settings import ReplicaGrouping as View
from ..model.variable_settings import VariableSettings


class Replicated(Protocol):
    """The members of an Ir that a grouping uses."""

    @property
    def replication_factor(self) -> int:
        """Number of replicas."""
        ...

    def replica_grouping(self, stride: int = 1, group_size: int | None = None) -> ReplicaGrouping:
        """Groups with a constant stride."""
        ...

    def replica_grouping_from_assignments(self, assignment: list[int]) -> ReplicaGrouping:
        """Groups given by a group number for each replica."""
        ...


class ReplicaGrouping:
    """A partition of the replicas into groups of equal size; made by `Ir.replica_grouping` and its sibling.

    Raises
    ------
    RuntimeError
        On construction.
    """

    _ir: Replicated
    _assignment: tuple[int | None, ...]
    _stride: int | None
    _group_size: int

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self) -> None:
        raise RuntimeError("popxl.ReplicaGrouping cannot be constructed directly (use `ir.replica_grouping`).")

    @classmethod
    def _from_stride(cls, owner: Replicated, stride: int = 1, group_size: int | None = None) -> ReplicaGrouping:
        replicas = owner.replication_factor
        if not 0 < stride <= replicas:
            raise ValueError(
                "Stride must be greater than zero and less than or equal to number of replicas. "
                f"Stride: {stride}. Replicas: {replicas}"
            )
        if replicas % stride:
            raise ValueError(
                f"Stride must be a factor of the number of replicas. Stride: {stride}. Replicas: {replicas}"
            )
        size = replicas // stride if group_size is None else group_size
        if not 0 < size <= replicas:
            raise ValueError(
                "Group size must be greater than zero and less than or equal to number of replicas. "
                f"Group size: {size}. Replicas: {replicas}"
            )
        if size == 1:
            stride = 1
        return cls._new(owner, tuple(_assign(replicas, stride, size)), stride, size)

    @classmethod
    def _from_assignment(cls, owner: Replicated, assignment: list[int]) -> ReplicaGrouping:
        groups = _checked_groups(list(assignment), owner.replication_factor)
        gaps = {b - a for g in groups for a, b in pairwise(g)}
        size = len(groups[0])
        if len(gaps) <= 1:
            stride = gaps.pop() if gaps else 1
            return cls._new(owner, tuple(assignment), stride, size)
        return cls._new(owner, tuple(assignment), None, size)

    @classmethod
    def _new(
        cls, owner: Replicated, assignment: tuple[int | None, ...], stride: int | None, size: int
    ) -> ReplicaGrouping:
        self = object.__new__(cls)
        self._ir, self._assignment, self._stride, self._group_size = owner, assignment, stride, size
        return self

    @classmethod
    def _chosen(cls, given: ReplicaGrouping | None, owner: Replicated) -> ReplicaGrouping:
        """A grouping that a program gave, by default the one of all replicas.

        What is no grouping raises TypeError; one of another Ir, or of another number of replicas, ValueError.
        """
        if given is None:
            return owner.replica_grouping()
        if not isinstance(given, ReplicaGrouping):
            raise TypeError(f"Value must be of type popxl.ReplicaGrouping. Type: {type(given)}. Value: {given}.")
        if given._ir != owner or len(given._assignment) != owner.replication_factor:
            count = owner.replication_factor
            raise ValueError(f"{given!r} of {given._ir!r} does not fit {owner!r}, which has {count} replicas.")
        return given

    @property
    def stride(self) -> int:
        """Distance between neighbours of a group; NotImplementedError when it varies."""
        if self._stride is None:
            raise NotImplementedError("A non-constant stride replica grouping has no single stride.")
        return self._stride

    @property
    def group_size(self) -> int:
        """Replicas per group."""
        return self._group_size

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(self._assignment) // self._group_size

    @property
    def assignment(self) -> list[int | None]:
        """Group of each replica; None for replicas that are left over."""
        return list(self._assignment)

    @property
    def is_const(self) -> bool:
        """Whether all groups have one constant stride."""
        return self._stride is not None

    @property
    def groups(self) -> list[list[int]]:
        """Replicas of each group, in increasing order."""
        found: list[list[int]] = [[] for _ in range(self.num_groups)]
        for replica, group in enumerate(self._assignment):
            if group is not None:
                found[group].append(replica)
        return found

    @property
    def const_rg(self) -> ReplicaGrouping:
        """Coarsest constant-stride grouping that refines this one."""
        if self.is_const:
            return self
        least = min(b - a for g in self.groups for a, b in pairwise(g))
        sizes: list[int] = []
        for group in self.groups:
            run = 1
            for a, b in pairwise(group):
                if b - a > least:
                    sizes.append(run)
                    run = 0
                run += 1
            sizes.append(run)
        size = reduce(gcd, sizes)
        return self._ir.replica_grouping(least if size > 1 else 1, size)

    @property
    def to_device_map(self) -> list[int] | None:
        """For each group of `const_rg`, the group of this one that it is part of; None when constant."""
        if self.is_const:
            return None
        numbers = (self._assignment[group[0]] for group in self.const_rg.groups)
        return [n for n in numbers if n is not None]

    @property
    def to_host_map(self) -> list[int] | None:
        """For each group, the first group of `const_rg` in it; None when constant."""
        to_device = self.to_device_map
        return None if to_device is None else [to_device.index(g) for g in range(self.num_groups)]

    def transpose(self) -> ReplicaGrouping:
        """The grouping whose j-th group holds the j-th member of every group."""
        replicas = len(self._assignment)
        if self._stride is not None and not (self._stride > 1 and self._stride * self._group_size < replicas):
            return self._ir.replica_grouping(1 if self._stride > 1 else self._group_size, self.num_groups)
        assignment = [0] * replicas
        for group in self.groups:
            for j, replica in enumerate(group):
                assignment[replica] = j
        return self._ir.replica_grouping_from_assignments(assignment)

    @property
    def _pb_replica_grouping(self) -> Any:
        return View(len(self._assignment), self.stride, self.group_size)

    def _to_variable_settings(self, retrieval_mode: str | None = None) -> Any:
        mode = (
            VariableRetrievalMode.AllReplicas if retrieval_mode == "all_replicas" else VariableRetrievalMode.OnePerGroup
        )
        return VariableSettings(self.stride, self.group_size, mode)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReplicaGrouping):
            raise TypeError(f"Value must be of type popxl.ReplicaGrouping. Type: {type(other)}. Value: {other}.")
        return self._ir == other._ir and self._assignment == other._assignment

    def __repr__(self) -> str:
        if not self.is_const:
            return f"ReplicaGrouping(assignment={self.assignment})"
        return (
            f"ReplicaGrouping(num_replicas={len(self._assignment)}, stride={self._stride}, "
            f"group_size={self._group_size}, num_groups={self.num_groups})"
        )


def _checked_groups(assignment: list[int], replicas: int) -> list[list[int]]:
    if len(assignment) != replicas:
        raise ValueError(
            f"The length of `assignment` ({len(assignment)}) does not equal the number of replicas ({replicas})."
        )
    numbers = sorted(set(assignment))
    groups = [[r for r, g in enumerate(assignment) if g == n] for n in numbers]
    if len({len(g) for g in groups}) > 1:
        sizes = [(n, len(g)) for n, g in zip(numbers, groups, strict=True)]
        raise ValueError(f"All groups should have the same size but they dont. (Group, Sizes): {sizes}")
    if numbers != list(range(len(numbers))):
        raise ValueError(
            f"The group numbers are not numbered consecutively and/or do not start at 0. Groups: {numbers}"
        )
    order = list(dict.fromkeys(assignment))
    if order != numbers:
        raise ValueError(
            f"When ordered by first appearance, the group numbers are not monotonically increasing. Ordering: {order}"
        )
    return groups


def _assign(replicas: int, stride: int, size: int) -> list[int | None]:
    """The group of each replica, for as many groups of `size` replicas `stride` apart as there is room for.

    Replicas that are left over have None; ValueError when a group would run past the last replica.
    """
    assignment: list[int | None] = [None] * replicas
    for group in range(replicas // size):
        first = assignment.index(None)
        for j in range(size):
            replica = first + j * stride
            if replica >= replicas or assignment[replica] is not None:
                raise ValueError(
                    f"Groups of {size} replicas with stride {stride} do not partition {replicas} replicas."
                )
            assignment[replica] = group
    return assignment
