"""The report: one document of facts, and its renderings."""

from ipu_model.report.report import Report

__all__ = ["Report"]
