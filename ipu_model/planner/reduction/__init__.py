"""Reductions over any axes, as the library runs them: what tiles hold, stages in which partial results meet.

Each tile first adds up what it holds of every column (`held`, `workers`, `vertices`). Partial results then meet in
blocks on other tiles until few enough hold a column, and on the tiles of the output last (`stages`). Nothing is fitted
but the cost of bringing rotated columns into order.
"""

from ipu_model.planner.reduction.plan import Reduction, plan_reduction

__all__ = ["Reduction", "plan_reduction"]
