"""``python -m ipu_model``: renderings of a stored report."""

from __future__ import annotations

import json

import jax.numpy as jnp
import pytest

import ipu_model
from ipu_model.__main__ import main


@pytest.fixture
def stored(tmp_path):
    return str(ipu_model.profile(jnp.sin, jnp.ones(64)).save(tmp_path / "report.json"))


def test_summary_is_the_default(stored, capsys):
    assert main([stored]) == 0
    assert "Memory Usage:" in capsys.readouterr().out


def test_steps(stored, capsys):
    assert main([stored, "--steps"]) == 0
    assert "OnTileExecute: sin/Op/Sin" in capsys.readouterr().out


def test_page_and_trace(stored, tmp_path, capsys):
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    assert main([stored, "--html", str(page), "--compare", stored, "--trace", str(trace)]) == 0
    assert "Compared with sin" in page.read_text()
    assert json.loads(trace.read_text())["traceEvents"]
    assert not capsys.readouterr().out


def test_comparison_without_a_page_is_text(stored, tmp_path, capsys):
    earlier = ipu_model.profile(jnp.sin, jnp.ones(4096)).save(tmp_path / "earlier.json")
    assert main([stored, "--compare", str(earlier)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("compared with sin:")
    assert "cycles of a run" in out


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": 1}'])
def test_other_files_are_refused_by_name(text, tmp_path, capsys):
    path = tmp_path / "other.json"
    path.write_text(text)
    assert main([str(path)]) == 2
    assert "other.json" in capsys.readouterr().err


def test_a_page_that_can_not_be_written_is_named(stored, tmp_path, capsys):
    assert main([stored, "--html", str(tmp_path / "none" / "page.html")]) == 2
    assert "none" in capsys.readouterr().err


def test_missing_file(tmp_path, capsys):
    assert main([str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
