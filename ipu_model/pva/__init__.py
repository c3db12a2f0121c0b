"""Read API for profiles with the attributes of Graphcore's `pva` module.

``openReport(path)`` reads a profile that `save_profile` wrote; the tree is the one of the graph and execution
profiles, with pva's attribute names. All figures are modelled.
"""

from ipu_model.pva import pva_core
from ipu_model.pva.programs import ComputeSet, Exchange, Program, ProgramType, ProgramVisitor, VertexType
from ipu_model.pva.report import Report, fromReport, openReport, save_profile

__all__ = [
    "ComputeSet",
    "Exchange",
    "Program",
    "ProgramType",
    "ProgramVisitor",
    "Report",
    "VertexType",
    "fromReport",
    "openReport",
    "pva_core",
    "save_profile",
]
