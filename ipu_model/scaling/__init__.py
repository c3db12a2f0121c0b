"""Plans for many chips: data, tensor and pipeline parallel, priced over links and gateways."""

from ipu_model.scaling.interconnect import Interconnect, Level, interconnect_of
from ipu_model.scaling.plan import Batches, Parts, Plan, Spread
from ipu_model.scaling.search import best_plans, single
from ipu_model.scaling.work import Block, Work

__all__ = [
    "Batches",
    "Block",
    "Interconnect",
    "Level",
    "Parts",
    "Plan",
    "Spread",
    "Work",
    "best_plans",
    "interconnect_of",
    "single",
]
