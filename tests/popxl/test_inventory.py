"""The package has every public name of PopXL 3.4, with the same parameters and defaults; nothing is missing."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
INVENTORY = json.loads((DATA / "inventory.json").read_text())
INTERNAL = json.loads((DATA / "internal.json").read_text())


def _ours(name: str) -> str:
    return f"popart_jax.{name}"


@pytest.mark.parametrize("module", sorted(INVENTORY))
def test_module_has_every_name(module):
    found = importlib.import_module(_ours(module))
    names = {n for n in INVENTORY[module] if not n.startswith("__") and n != "msg"}
    missing = sorted(n for n in names if not hasattr(found, n))
    assert not missing, f"{module} lacks {missing}"
    for sub in INVENTORY[module].get("__submodules__", []):
        importlib.import_module(_ours(f"{module}.{sub}"))
        assert hasattr(found, sub), f"{module} does not lead to its module {sub}"


@pytest.mark.parametrize("module", sorted(INVENTORY))
def test_functions_have_the_parameters(module):
    found = importlib.import_module(_ours(module))
    for name, entry in INVENTORY[module].items():
        if not isinstance(entry, dict) or "parameters" not in entry or not hasattr(found, name):
            continue
        fn = inspect.unwrap(getattr(found, name))
        if not inspect.isfunction(fn):
            continue
        wanted = [p.partition("=")[0].lstrip("*") for p in entry["parameters"]]
        given = list(inspect.signature(fn).parameters)
        assert given == wanted, f"{module}.{name}: {given} instead of {wanted}"


def test_classes_have_every_member():
    gaps = []
    for module, entries in INVENTORY.items():
        found = importlib.import_module(_ours(module))
        for name, entry in entries.items():
            if isinstance(entry, dict) and "members" in entry and hasattr(found, name):
                cls = getattr(found, name)
                gaps += [f"{module}.{name}.{m}" for m in entry["members"] if not hasattr(cls, m)]
    assert not gaps


def test_enums_of_the_internal_ir():
    ir = importlib.import_module(_ours("popxl._internal.ir"))
    gaps = []
    for name, members in INTERNAL["enums"].items():
        where = next((m for m in (ir, ir.op, ir.patterns, ir.transforms) if hasattr(m, name)), None)
        assert where is not None, name
        gaps += [f"{name}.{m}" for m in members if not hasattr(getattr(where, name), m)]
    assert not gaps


def test_operator_classes_of_the_internal_ir():
    for name, (module, base, op_type) in INTERNAL["ops"].items():
        found = importlib.import_module(_ours("popxl") + module.removeprefix("popart"))
        cls = getattr(found, name)
        assert [b.__name__ for b in cls.__bases__] == [base], name
        if op_type is not None:
            assert cls._facts.op_type == op_type
