"""Groups of replicas: which replicas share one value of a variable, and which values are returned to the host."""

from __future__ import annotations

from typing import Any, overload

from .._calls import checked, overloaded
from ..enums import CommGroupType, VariableRetrievalMode
from ..errors import logs_errors, noted, popart_exception, popart_internal_exception
from .settings import Settings


class ReplicaGrouping:
    """`num_replicas` replicas in groups of `group_size` whose members are `stride` apart; groups of one have stride 1.

    Raises
    ------
    popart_exception
        The sizes do not divide the replicas into such groups.
    """

    @logs_errors
    def __init__(self, num_replicas: int, stride: int = 1, group_size: int | None = None) -> None:
        size = num_replicas if group_size is None else group_size
        apart = 1 if size == 1 else stride
        if min(num_replicas, stride, size) < 1 or num_replicas % (apart * size):
            raise popart_exception(
                f"Invalid replica grouping: {num_replicas} replicas, stride {stride}, group size {size}; "
                "stride times group size must divide the number of replicas."
            )
        self._replicas, self._stride, self._size = num_replicas, apart, size

    def getNumReplicas(self) -> int:
        """Number of replicas."""
        return self._replicas

    def getStride(self) -> int:
        """Distance between members of a group."""
        return self._stride

    def getGroupSize(self) -> int:
        """Members of one group."""
        return self._size

    def getNumGroups(self) -> int:
        """Number of groups."""
        return self._replicas // self._size

    def getGroupAt(self, replica: int) -> int:
        """Group that a replica belongs to."""
        self._check("replica", replica, self._replicas)
        block, within = divmod(replica, self._stride * self._size)
        return block * self._stride + within % self._stride

    def getIndexInGroupAt(self, replica: int) -> int:
        """Which member of its group a replica is."""
        self._check("replica", replica, self._replicas)
        return replica % (self._stride * self._size) // self._stride

    def getReplicaAt(self, group: int, index: int = 0) -> int:
        """Member `index` of a group."""
        self._check("group", group, self.getNumGroups())
        self._check("member", index, self._size)
        block, offset = divmod(group, self._stride)
        return block * self._stride * self._size + offset + index * self._stride

    def getReplicasAt(self, group: int) -> list[int]:
        """Members of a group, in order."""
        return [self.getReplicaAt(group, i) for i in range(self._size)]

    def getTranspose(self) -> ReplicaGrouping:
        """The groups of members with equal index.

        Raises
        ------
        popart_exception
            They have no constant stride.
        """
        if self._stride > 1 and self._stride * self._size < self._replicas:
            raise popart_exception(f"The transpose of {self} has no constant stride.")
        return ReplicaGrouping(self._replicas, 1 if self._stride > 1 else self._size, self.getNumGroups())

    def groups(self) -> list[list[int]]:
        """Members of every group, in order."""
        return [self.getReplicasAt(g) for g in range(self.getNumGroups())]

    def _check(self, what: str, i: int, n: int) -> None:
        if not 0 <= i < n:
            raise popart_exception(f"The requested {what} index {i} is out of range: {self} has {n}.")

    def str(self) -> str:
        """The same as ``repr``."""
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, ReplicaGrouping) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._replicas, self._stride, self._size))

    def __repr__(self) -> str:
        return f"ReplicaGrouping(numReplicas={self._replicas}, stride={self._stride}, groupSize={self._size})"


class CommGroup(Settings):
    """Kind and size of the groups in which replicas communicate."""

    type: CommGroupType
    replicaGroupSize: int

    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, type: CommGroupType, replicaGroupSize: int) -> None: ...
    @overload
    def __init__(self, grouping: ReplicaGrouping) -> None: ...
    @overloaded
    def __init__(self, type: Any = CommGroupType.All, replicaGroupSize: int = 0, grouping: Any = None) -> None:
        if grouping is not None:
            type, replicaGroupSize = _as_group(grouping)
        self.type = type
        self.replicaGroupSize = replicaGroupSize

    @logs_errors
    def toReplicaGrouping(self, numReplicas: int) -> ReplicaGrouping:
        """The groups among `numReplicas` replicas.

        Raises
        ------
        popart_exception
            The group size does not divide the number of replicas.
        """
        size = self.replicaGroupSize
        if self.type is CommGroupType.All:
            return ReplicaGrouping(numReplicas)
        if self.type is CommGroupType.Ungrouped:
            return ReplicaGrouping(numReplicas, 1, 1)
        if size < 1 or numReplicas % size:
            raise popart_exception(f"CommGroup size {size} does not divide the number of replicas {numReplicas}.")
        stride = 1 if self.type is CommGroupType.Consecutive else numReplicas // size
        return ReplicaGrouping(numReplicas, stride, size)


def _as_group(grouping: ReplicaGrouping) -> tuple[CommGroupType, int]:
    replicas, stride, size = grouping.getNumReplicas(), grouping.getStride(), grouping.getGroupSize()
    if size == replicas:
        return CommGroupType.All, 0
    if size == 1:
        return CommGroupType.Ungrouped, 0
    if stride == 1:
        return CommGroupType.Consecutive, size
    if stride == replicas // size:
        return CommGroupType.Orthogonal, size
    raise popart_exception(f"{grouping} is no CommGroup: its stride is neither 1 nor replicas / group size.")


class VariableSettings:
    """Which replicas share one value of a variable, and which of the values the host gets.

    Raises
    ------
    popart_exception
        `Consecutive` or `Orthogonal` groups without a size.
    """

    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, sharedVariableDomain_: CommGroup) -> None: ...
    @overload
    def __init__(self, retrievalMode_: VariableRetrievalMode) -> None: ...
    @overload
    def __init__(self, sharedVariableDomain_: CommGroup, retrievalMode_: VariableRetrievalMode) -> None: ...
    @overload
    def __init__(self, stride: int, groupSize: int, mode: VariableRetrievalMode) -> None: ...
    @overloaded
    def __init__(
        self,
        sharedVariableDomain_: Any = None,
        retrievalMode_: Any = VariableRetrievalMode.OnePerGroup,
        stride: int | None = None,
        groupSize: int = 0,
        mode: Any = None,
    ) -> None:
        self._domain = sharedVariableDomain_ or CommGroup()
        self._by_stride = None if stride is None else (stride, groupSize)
        self._mode = retrievalMode_ if mode is None else mode
        self.verify()

    @logs_errors
    def verify(self) -> None:
        """Raise popart_internal_exception if the group type needs a size and has none, popart_exception otherwise."""
        sized = (CommGroupType.Consecutive, CommGroupType.Orthogonal)
        if self._by_stride is None and self._domain.type in sized and self._domain.replicaGroupSize < 1:
            raise popart_internal_exception(
                f"Attempting to use 0 as a CommGroupSize, groups of type {self._domain.type.name} must have legal "
                "size.\n"
            )
        if self._by_stride is not None and min(self._by_stride) < 1:
            raise popart_exception(
                f"Bad variable groups: stride and group size must be positive, got {self._by_stride}."
            )

    def getReplicaGrouping(self, numReplicas: int, /) -> ReplicaGrouping:
        """The groups among `numReplicas` replicas."""
        if self._by_stride is not None:
            return ReplicaGrouping(numReplicas, *self._by_stride)
        return self._domain.toReplicaGrouping(numReplicas)

    def getGroupCount(self, replicaCount: int, /) -> int:
        """Number of groups, that is of values of the variable."""
        return self.getReplicaGrouping(replicaCount).getNumGroups()

    def getRealGroupSize(self, replicaCount: int, /) -> int:
        """Replicas in one group."""
        return self.getReplicaGrouping(replicaCount).getGroupSize()

    @checked
    def getGroupRepresentative(self, group: int) -> int:
        """The replica whose value stands for the group: its lowest."""
        if self._by_stride is not None:
            stride, size = self._by_stride
            return group // stride * stride * size + group % stride
        match self._domain.type:
            case CommGroupType.All:
                return 0
            case CommGroupType.Consecutive:
                return group * self._domain.replicaGroupSize
        return group

    def numReplicasReturningVariable(self, replicaCount: int, /) -> int:
        """How many values the host gets."""
        if self._mode is VariableRetrievalMode.AllReplicas:
            return replicaCount
        return self.getGroupCount(replicaCount)

    def getSharedVariableDomain(self) -> CommGroup:
        """The group description."""
        return self._domain

    def isUsingCommGroup(self) -> bool:
        """Whether groups are described by a CommGroup rather than by stride and size."""
        return self._by_stride is None

    def getCommGroupType(self) -> CommGroupType:
        """Kind of the groups."""
        return self._domain.type

    def getStride(self) -> int:
        """Distance between members of a group, if given so; else 0."""
        return 0 if self._by_stride is None else self._by_stride[0]

    def getGroupSize(self) -> int:
        """Size of the groups as given."""
        return self._domain.replicaGroupSize if self._by_stride is None else self._by_stride[1]

    def getRetrievalMode(self) -> VariableRetrievalMode:
        """Which values the host gets."""
        return self._mode

    def shapeOnReplica(self, full_shape: list[int], replicaCount: int, name: str, /) -> list[int]:
        """Shape of one value, from the shape of the host array.

        Raises
        ------
        popart_internal_exception
            The leading dimension is not the number of groups.
        """
        groups = self.getGroupCount(replicaCount)
        if groups == 1:
            return list(full_shape)
        if not full_shape or full_shape[0] != groups:
            raise noted(
                popart_internal_exception(
                    f"Return mismatch with possibly appended outer dimension ({full_shape[0] if full_shape else 0}) of "
                    f'Tensor: "{name}". should match numGroups: {groups}'
                ),
                f"Its host shape is {list(full_shape)}; there are {replicaCount} replicas.",
            )
        return list(full_shape[1:])

    def shapeOnHost(self, replica_shape: list[int], replicaCount: int, /) -> list[int]:
        """Shape of the host array, from the shape of one value."""
        groups = self.getGroupCount(replicaCount)
        return list(replica_shape) if groups == 1 else [groups, *replica_shape]

    def groups(self, replicaCount: int, /) -> list[list[int]]:
        """Replicas of every group."""
        return self.getReplicaGrouping(replicaCount).groups()

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, VariableSettings) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        groups = (
            f"{self._domain}" if self._by_stride is None else f"stride={self._by_stride[0]}, size={self._by_stride[1]}"
        )
        return f"VariableSettings({groups}, {self._mode})"
