"""The worked diffs of CONTRIBUTING.md apply to the tree as it is; by name, their tests run too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
SECTIONS = dict(re.findall(r"^## (First .+?)\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL))
OPERATOR, PATTERN, POPXL, COST = SECTIONS


def hunks(title: str) -> Iterator[tuple[str, list[str]]]:
    """The files of a section's diff, with the lines of each."""
    (diff,) = re.findall(r"^```diff\n(.*?)^```", SECTIONS[title], re.MULTILINE | re.DOTALL)
    for part in re.split(r"^\+\+\+ b/", diff, flags=re.MULTILINE)[1:]:
        name, *lines = part.splitlines()
        yield name, lines


def applied(text: str, lines: list[str]) -> str:
    """A file with the new lines of a hunk beside the line that shows where they go, or at its end."""
    new = "".join(f"{line[1:]}\n" for line in lines if line.startswith("+"))
    around = [k for k, line in enumerate(lines) if not line.startswith("+")]
    if not around:
        return f"{text}\n\n{new}" if text else new
    (at,) = around
    known = f"{lines[at][1:]}\n"
    assert text.count(known) == 1, f"{known!r} stands {text.count(known)} times in the file"
    return text.replace(known, known + new if at == 0 else new + known)


def entry_points(tables: dict[str, dict[str, str]]) -> str:
    """What an installed distribution has in its folder for these tables of pyproject.toml."""
    return "\n".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in rows.items())
        for group, rows in tables.items()
    )


def test_there_are_four_worked_diffs() -> None:
    titles = ["First operator", "First pattern", "First operator of PopXL", "First cost rule, and first target"]
    assert list(SECTIONS) == titles


@pytest.mark.parametrize("title", [OPERATOR, PATTERN, POPXL])
def test_a_diff_applies(title: str) -> None:
    for name, lines in hunks(title):
        path = ROOT / name
        before = path.read_text() if path.is_file() else ""
        after = applied(before, lines)
        assert after.count("\n") > before.count("\n")
        if name.endswith(".py"):
            compile(after, name, "exec")


@pytest.mark.processes
def test_the_cost_rule_and_the_target_give_the_figures_of_the_page(tmp_path: Path) -> None:
    files = {name: applied("", lines) for name, lines in hunks(COST)}
    (tmp_path / "acme.py").write_text(files["acme.py"])
    tables = tomllib.loads(files["pyproject.toml"])["project"]["entry-points"]
    information = tmp_path / "acme-1.dist-info"  # as pip leaves it
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (information / "entry_points.txt").write_text(entry_points(tables))
    call, cycles = re.findall(r"`(ipu_model\.profile\(.+?\))` then says ([\d,]+) cycles", SECTIONS[COST])[0]
    code = f"import ipu_model, jax, jax.numpy as jnp\nprint({call}.cycles.compute)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == float(cycles.replace(",", ""))


@pytest.mark.sweep  # it runs the tests of two folders in a copy of the tree
@pytest.mark.parametrize("title", [OPERATOR, PATTERN, POPXL])
def test_the_steps_of_a_section_pass(title: str, tmp_path: Path) -> None:
    for folder in ("popart_jax", "ipu_model", "patterns", "tests", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, lines in hunks(title):
        path = tmp_path / name
        path.write_text(applied(path.read_text() if path.is_file() else "", lines))
    steps = re.findall(r"`(python [^`]+)`", SECTIONS[title].replace("\n   ", " "))
    assert len(steps) == 2
    for step in steps:
        command = [sys.executable, *step.split()[1:]]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
