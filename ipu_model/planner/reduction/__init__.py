"""Reductions over any axes, as the library runs them.

Each tile first reduces its own elements of every column (`held`, `workers`, `vertices`). Intermediate stages then
combine partial results in blocks on other tiles, until few tiles hold parts of a column, and the output stage reduces
them on the tiles of the output (`stages`). Only the cost of bringing rotated columns into order is fitted.
"""

from ipu_model.planner.reduction.plan import Reduction, plan_reduction

__all__ = ["Reduction", "plan_reduction"]
