"""A pluggable, differentiable model of the IPU: cycles and memory of any JAX function."""

# pyright: strict
from ipu_model.options import ModelOptions
from ipu_model.placement import Argument, Location, NodePlacement, Placement
from ipu_model.profile import cycles, profile, profile_jaxpr, trace
from ipu_model.report.report import Report
from ipu_model.search import Found, search
from ipu_model.target import Target
from ipu_model.target import get as get_target

__all__ = [
    "Argument",
    "Found",
    "Location",
    "ModelOptions",
    "NodePlacement",
    "Placement",
    "Report",
    "Target",
    "cycles",
    "get_target",
    "profile",
    "profile_jaxpr",
    "search",
    "trace",
]
