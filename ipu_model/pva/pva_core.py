"""The classes of reports under the name of the compiled half of Graphcore's `pva`."""

from ipu_model.pva.execution import Execution, ExecutionStep
from ipu_model.pva.programs import ComputeSet, Exchange, Program, ProgramType, ProgramVisitor, VertexType
from ipu_model.pva.report import Report

__all__ = [
    "ComputeSet",
    "Exchange",
    "Execution",
    "ExecutionStep",
    "Program",
    "ProgramType",
    "ProgramVisitor",
    "Report",
    "VertexType",
]
