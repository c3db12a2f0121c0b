"""Pooling: how a window operation is split over tiles, where its parts go, and what a pass costs; nothing is fitted."""

from ipu_model.planner.pooling.params import PoolParams
from ipu_model.planner.pooling.plan import Pooling, plan_pooling

__all__ = ["PoolParams", "Pooling", "plan_pooling"]
