"""The notebooks run top to bottom in a kernel of their own."""

from __future__ import annotations

import json
import os
from html import escape
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import ipu_model

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    assert shown
    if path.stem != "popxl":
        assert any("text/html" in out.get("data", {}) for out in shown)


def test_there_are_three_without_stored_output() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        assert not any(cell.get("outputs") for cell in json.loads(path.read_text())["cells"])


def test_a_report_shows_itself_in_a_frame_and_as_text() -> None:
    report = ipu_model.profile(jnp.tanh, jax.ShapeDtypeStruct((8, 8), jnp.float32))
    shown = report._repr_html_()
    assert shown.startswith("<div><iframe srcdoc=")
    assert shown.count("<") == 10  # four elements and the div around them: the page is escaped inside the attribute
    assert f"<pre>{escape(str(report))}</pre>" in shown  # what is left where frames are not allowed
