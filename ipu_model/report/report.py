"""The report that users get: the document together with its renderings."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from ipu_model.report import compare, execution, explain, graph, summary, trace
from ipu_model.report.compare import Comparison
from ipu_model.report.model import Document
from ipu_model.uncertainty import Uncertainty
from ipu_model.whole_files import write_whole


@dataclass(frozen=True)
class Report(Document):
    """A document, and how to show it: text, one page of HTML, a trace, and the reports that Poplar writes."""

    def save(self, path: str | Path) -> Path:
        """Write the JSON document."""
        path = Path(path)
        write_whole(path, self.to_json().encode())
        return path

    def summary(
        self, *, show_execution_steps: bool = False, show_var_storage: bool = False, group_host_copies: bool = False
    ) -> str:
        """Text for people and for programs that parse Poplar's summary.

        Parameters
        ----------
        show_execution_steps : bool
            Add the nested program, one step per line.
        show_var_storage : bool
            Add the variables of the peak.
        group_host_copies : bool
            In the nested program all inputs are copied at once before everything else, and all outputs after it.
        """
        return summary.render(
            self,
            show_execution_steps=show_execution_steps,
            show_var_storage=show_var_storage,
            group_host_copies=group_host_copies,
        )

    def __str__(self) -> str:
        """Ten lines: time, where it goes, memory, and the most expensive operations."""
        return summary.short(self)

    def explain(self, steps: int = 10) -> str:
        """Text: cycles by sort of operation, how far off each sort was, and the plans of the most expensive steps."""
        return explain.explain(self, steps)

    def uncertainty(self, quantity: str = "cycles") -> Uncertainty | None:
        """Relative errors to expect of ``"cycles"``, ``"total memory"`` or ``"max tile memory"``."""
        return explain.uncertainty(self, quantity)

    def graph_report(self) -> dict[str, Any]:
        """Poplar's graph profile tree."""
        return graph.graph_profile(self)

    def execution_report(self) -> dict[str, Any]:
        """Poplar's execution profile tree."""
        return execution.execution_profile(self)

    def save_html(self, path: str | Path, compare: Document | None = None) -> Path:
        """Write one self-contained page, which loads nothing from the network.

        Parameters
        ----------
        path : str or pathlib.Path
            The file to write.
        compare : Document, optional
            An earlier report, to show the differences from it.

        Returns
        -------
        pathlib.Path
            The file written.
        """
        from ipu_model.report import html  # Jinja takes long to import, and few programs write pages

        return html.save(self, path, compare)

    def compare(self, earlier: Document) -> Comparison:
        """What differs from an earlier report: cycles, memory, operations and variables; text when printed."""
        return compare.compare(self, earlier)

    def _repr_html_(self) -> str:
        """The page in a frame for notebooks, with the summary as text for viewers that do not show frames."""
        from ipu_model.report import html

        page = f'<iframe srcdoc="{escape(html.render(self))}" style="width: 100%; height: 40em; border: 0"></iframe>'
        return f"<div>{page}<details><summary>Report as text</summary><pre>{escape(str(self))}</pre></details></div>"

    def save_trace(self, path: str | Path) -> Path:
        """Write a Chrome/Perfetto trace."""
        return trace.save(self, path)
