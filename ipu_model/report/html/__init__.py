"""The report as one self-contained page: no network, charts as inline SVG, a little script of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from ipu_model.report.html import charts, formats
from ipu_model.report.html.view import view
from ipu_model.report.model import Document
from ipu_model.whole_files import write_whole

FOLDER = Path(__file__).parent
SCRIPTS = ("page", "help", "operations", "tiles", "liveness", "timeline")  # the first holds what the others share


def render(report: Document, compare: Document | None = None) -> str:
    """The page as text; `compare` is an earlier report to show the differences from."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    shown = ("count", "percent", "signed", "plural")
    filters: dict[str, Any] = {"bytes": formats.size, **{name: getattr(formats, name) for name in shown}}
    environment.filters.update(filters)
    page = environment.get_template("page.html.j2")
    scripts = [Markup((FOLDER / "scripts" / f"{name}.js").read_text()) for name in SCRIPTS]
    style = Markup((FOLDER / "style.css").read_text())
    return page.render(r=report, v=view(report, compare), charts=charts, style=style, scripts=scripts)


def save(report: Document, path: str | Path, compare: Document | None = None) -> Path:
    """Write the page to a file."""
    path = Path(path)
    write_whole(path, render(report, compare).encode())
    return path
