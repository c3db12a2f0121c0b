"""A modelled profile as `pva` shows one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ipu_model
from ipu_model import pva


class ProfileReport(pva.Report):
    """`pva`'s view of a modelled profile, with the model's own report as `model`."""

    def __init__(self, report: ipu_model.Report) -> None:
        super().__init__(report.graph_report(), report.execution_report(), report.name)
        self.model = report

    def summary(self, **options: Any) -> str:
        """The summary as text."""
        return self.model.summary(**options)

    def save_html(self, path: str | Path) -> Path:
        """Write the report as one self-contained page."""
        return self.model.save_html(path)
