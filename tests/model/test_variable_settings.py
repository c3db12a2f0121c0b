"""Groups of replicas (semantics 9.3)."""

from __future__ import annotations

import pytest

from popart_jax import CommGroup, CommGroupType, VariableRetrievalMode, VariableSettings, popart_exception
from popart_jax.errors import popart_internal_exception

ALL, CONSECUTIVE, ORTHOGONAL, UNGROUPED = (CommGroupType[n] for n in ("All", "Consecutive", "Orthogonal", "Ungrouped"))


@pytest.mark.parametrize(
    ("settings", "groups", "lowest"),
    [
        (VariableSettings(), [[0, 1, 2, 3]], [0]),
        (VariableSettings(CommGroup(CONSECUTIVE, 2)), [[0, 1], [2, 3]], [0, 2]),
        (VariableSettings(CommGroup(ORTHOGONAL, 2)), [[0, 2], [1, 3]], [0, 1]),
        (VariableSettings(CommGroup(UNGROUPED, 0)), [[0], [1], [2], [3]], [0, 1, 2, 3]),
        (VariableSettings(1, 2, VariableRetrievalMode.OnePerGroup), [[0, 1], [2, 3]], [0, 2]),
        (VariableSettings(2, 2, VariableRetrievalMode.OnePerGroup), [[0, 2], [1, 3]], [0, 1]),
    ],
)
def test_groups(settings, groups, lowest):
    assert settings.groups(4) == groups
    assert settings.getGroupCount(4) == len(groups)
    assert settings.getRealGroupSize(4) == len(groups[0])
    assert [settings.getGroupRepresentative(g) for g in range(len(groups))] == lowest
    shape = [2, 3] if len(groups) == 1 else [len(groups), 2, 3]
    assert settings.shapeOnHost([2, 3], 4) == shape
    assert settings.shapeOnReplica(shape, 4, "w") == [2, 3]


def test_retrieval():
    group = CommGroup(CONSECUTIVE, 2)
    assert VariableSettings(group, VariableRetrievalMode.AllReplicas).numReplicasReturningVariable(4) == 4
    assert VariableSettings(group).numReplicasReturningVariable(4) == 2
    assert VariableSettings(VariableRetrievalMode.AllReduceReplicas).numReplicasReturningVariable(4) == 1


def test_errors():
    with pytest.raises(popart_internal_exception):
        VariableSettings(CommGroup(CONSECUTIVE, 2)).shapeOnReplica([3, 2], 4, "w")
    for kind in (CONSECUTIVE, ORTHOGONAL):
        with pytest.raises(popart_exception):
            VariableSettings(CommGroup(kind, 0))
    with pytest.raises(popart_exception):
        VariableSettings(CommGroup(CONSECUTIVE, 3)).groups(4)
    with pytest.raises(TypeError):
        VariableSettings("All")


def test_comm_groups_and_groupings_agree():
    for kind, size in ((ALL, 0), (CONSECUTIVE, 2), (ORTHOGONAL, 4), (UNGROUPED, 0)):
        group = CommGroup(kind, size)
        again = CommGroup(group.toReplicaGrouping(8))
        assert (again.type, again.replicaGroupSize) == (kind, size)
    grouping = CommGroup(ORTHOGONAL, 2).toReplicaGrouping(4)
    assert [grouping.getGroupAt(r) for r in range(4)] == [0, 1, 0, 1]
