"""Replica groupings of the internal IR."""

from __future__ import annotations

from typing import Any


class ReplicaGrouping:
    """Groups of replicas with a constant stride."""

    def __init__(self, num_replicas: int, stride: int | None = None, group_size: int | None = None) -> None:
        if group_size is None:
            stride, group_size = 1, num_replicas if stride is None else stride
        self._n, self._stride, self._size = (
            int(num_replicas),
            1 if group_size == 1 else int(stride or 1),
            int(group_size),
        )
        self._assignment = assign(self._n, self._stride, self._size)

    def getNumReplicas(self) -> int:
        return self._n

    def getStride(self) -> int:
        return self._stride

    def getGroupSize(self) -> int:
        return self._size

    def getNumGroups(self) -> int:
        return self._n // self._size

    def getGroupAt(self, replica: int) -> int | None:
        return self._assignment[replica]

    def getReplicasAt(self, group: int | None) -> list[int]:
        return [r for r, g in enumerate(self._assignment) if g == group]

    def getIndexInGroupAt(self, replica: int) -> int:
        return self.getReplicasAt(self.getGroupAt(replica)).index(replica)

    def getReplicaAt(self, group: int, index: int = 0) -> int:
        return self.getReplicasAt(group)[index]

    def getTranspose(self) -> ReplicaGrouping:
        return ReplicaGrouping(self._n, 1 if self._stride > 1 else self._size, self.getNumGroups())

    def str(self) -> str:
        return repr(self)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ReplicaGrouping) and self._assignment == other._assignment

    def __hash__(self) -> int:
        return hash(tuple(self._assignment))

    def __repr__(self) -> str:
        return f"ReplicaGrouping(numReplicas={self._n}, stride={self._stride}, groupSize={self._size})"


def assign(replicas: int, stride: int, size: int) -> list[int | None]:
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
