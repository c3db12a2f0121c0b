"""Modules of `ipu_model` import downwards: circles are at most two files, and each has a reason."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
from scipy.sparse.csgraph import connected_components

import ipu_model

ROOT = Path(ipu_model.__file__).parent

#: Circles that stay. A loop's body is walked like a program, and a program holds loops: one recursion in two files.
ALLOWED = [{"ipu_model.walk.control", "ipu_model.walk.walker"}]


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("ipu_model", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of the package that a file imports, also inside functions and for types."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= (whole & known.keys()) or {str(node.module)}
    return names & known.keys()


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    names = sorted(edges)
    matrix = np.array([[b in edges[a] for b in names] for a in names])
    count, label = connected_components(matrix, directed=True, connection="strong")
    groups = [{n for n, g in zip(names, label, strict=True) if g == k} for k in range(count)]
    return [g for g in groups if len(g) > 1]


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]
    assert circles({"a": {"b"}, "b": set()}) == []


def test_imports_form_no_circle_without_a_reason():
    known = modules()
    assert len(known) > 80
    assert circles({name: imported(path, known) - {name} for name, path in known.items()}) == ALLOWED


def test_no_relative_imports_that_the_test_above_would_miss():
    for path in modules().values():
        assert not any(isinstance(n, ast.ImportFrom) and n.level for n in ast.walk(ast.parse(path.read_text()))), path
