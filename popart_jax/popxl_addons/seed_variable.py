"""Random seeds as variables."""

from __future__ import annotations

from .. import popxl


def seed_variable(
    seed: int, replica_grouping: popxl.ReplicaGrouping | None = None
) -> tuple[popxl.Tensor, popxl.Tensor]:
    """A uint32 (2,) seed for each group of replicas (default: each replica has its own).

    Returns
    -------
    (variable, tensor)
        The variable for the session, and the tensor that operators read and update.
    """
    ir = popxl.gcg().ir
    grouping = replica_grouping or ir.replica_grouping(group_size=1)
    data = (
        popxl.create_seeds(seed, replicas=grouping.num_groups) if grouping.num_groups > 1 else popxl.create_seeds(seed)
    )
    variable = popxl.variable(data, popxl.uint32, name="seed", replica_grouping=grouping)
    return variable, variable
