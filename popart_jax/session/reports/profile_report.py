"""A modelled profile as `pva` shows one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ipu_model
from ipu_model import pva
from ipu_model.pva.report import profiles


class ProfileReport(pva.Report):
    """`pva`'s view of a modelled profile, with the model's own report as `model`.

    `runs` are the debug names of the runs; repeated runs with the same arrays are entered once.
    """

    def __init__(self, report: ipu_model.Report, runs: Sequence[str] = ("run",)) -> None:
        super().__init__(*profiles(report), report.name, runs)
        self.model = report

    def __str__(self) -> str:
        """Ten lines: time, where it goes, memory, and the most expensive operations."""
        return str(self.model)

    def summary(self, **options: Any) -> str:
        """The summary as text."""
        return self.model.summary(**options)

    def save_html(self, path: str | Path) -> Path:
        """Write the report as one self-contained page."""
        return self.model.save_html(path)

    def save_trace(self, path: str | Path) -> Path:
        """Write a Chrome/Perfetto trace of one run, with counters of memory."""
        return self.model.save_trace(path)
