"""Pooling: the split of a window operation over tiles, the placement of its parts, its cycles; nothing is fitted."""

from ipu_model.planner.pooling.params import PoolParams
from ipu_model.planner.pooling.plan import Pooling, plan_pooling

__all__ = ["PoolParams", "Pooling", "plan_pooling"]
