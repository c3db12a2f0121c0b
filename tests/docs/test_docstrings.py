"""Every public name says what it is, and stands on a page of docs/api."""

from __future__ import annotations

import ast
import functools
import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "docs"))
import api  # docs/api.py

OURS = ("popart_jax", "ipu_model", "patterns")
PACKAGES = sorted({mark.package for mark in api.marks()})
DOCUMENTED_CALLS = (types.FunctionType, property, functools.cached_property)


def exported(package: str) -> dict[str, Any]:
    """What ``from package import *`` gives, or, of packages without such a list, what the source exports."""
    module = importlib.import_module(package)
    names = getattr(module, "__all__", None) or api.read(package).exported
    return {name: getattr(module, name) for name in names if not name.startswith("_")}


def is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in OURS


def says_something(value: Any) -> bool:
    """Whether there is a docstring that was written: a dataclass without one gets its signature."""
    text = (vars(value).get("__doc__") if isinstance(value, type) else getattr(value, "__doc__", None)) or ""
    return bool(text.strip()) and not text.startswith(f"{getattr(value, '__name__', '')}(")


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class, those that it inherits from classes of ours included."""
    seen: set[str] = set()
    for base in filter(is_ours, owner.__mro__):
        for name, value in vars(base).items():
            found = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            if not name.startswith("_") and name not in seen and isinstance(found, DOCUMENTED_CALLS):
                yield f"{base.__module__}.{base.__qualname__}.{name}", found
            seen.add(name)


def has_sentence(target: api.Target) -> bool:
    """Whether a constant is followed by a string that says what it is, which the pages show."""
    path = api.source(target.module)
    assert path is not None
    body = ast.parse(path.read_text()).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        names = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(n, ast.Name) and n.id == target.name for n in names):
            return isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    return False


def undocumented(package: str) -> Iterator[str]:
    for name, value in exported(package).items():
        where = f"{package}.{name}"
        if isinstance(value, type) and is_ours(value):
            if not says_something(value):
                yield where
            yield from (path for path, member in members(value) if not says_something(member))
        elif isinstance(value, types.FunctionType | types.ModuleType) or hasattr(value, "__wrapped__"):
            if not says_something(value):
                yield where
        elif (target := api.resolve(package, name)) and target.name and not has_sentence(target):
            yield where


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_says_what_it_is(package: str) -> None:
    assert sorted(undocumented(package)) == []


def test_a_class_without_a_docstring_is_found() -> None:
    made = types.new_class("Made", exec_body=lambda space: space.update(__module__="ipu_model", run=lambda self: None))
    assert not says_something(made)
    assert [path for path, member in members(made) if not says_something(member)] == ["ipu_model.Made.run"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_on_a_page(package: str) -> None:
    shown = {target for names in api.layout().values() for target in names.values()}
    whole = api.by_hand() | set(PACKAGES) | {target.module for target in shown if not target.name}
    missing = []
    for name in exported(package):
        target = api.resolve(package, name)
        if target is not None and target not in shown and not {target.path, target.module} & (whole - {package}):
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize("package", PACKAGES)
def test_pages_name_what_is_there(package: str) -> None:
    for name, value in exported(package).items():
        target = api.resolve(package, name)
        if target is not None:
            module = importlib.import_module(target.module)
            assert (getattr(module, target.name) if target.name else module) is value, name


def test_expanding_leaves_no_mark() -> None:
    for page in api.PAGES.glob("*.md"):
        assert "<!--" not in api.expand(page.name, page.read_text()), page.name
