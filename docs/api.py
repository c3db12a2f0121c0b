"""Which public names the pages of docs/api show: read from the sources, so that a new name appears by itself.

A page has marks such as ``<!-- names of popart_jax from session, optimizers -->``: the names that this package exports
and modules below these prefixes define. A mark without prefixes takes what no other mark of its package does. A name
that several packages export stands with the innermost one. Nothing is imported: MkDocs needs none of our requirements.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "api"
MARK = re.compile(r"^<!-- names of (\S+)(?: from (.+?))? -->$", re.MULTILINE)
BY_HAND = re.compile(r"^::: (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Module:
    """What a source file says: names it defines, with the bases of classes; imports, with their origin; exports."""

    name: str
    defined: dict[str, tuple[str, ...]]
    imported: dict[str, tuple[str, str]]
    exported: tuple[str, ...]


@dataclass(frozen=True)
class Mark:
    """A place on a page for names of a package."""

    page: str
    text: str
    package: str
    prefixes: tuple[str, ...]

    def prefix(self, target: Target) -> str | None:
        """The longest prefix that fits a name, empty for a mark that takes all; None where none fits."""
        fitting = [p for p in self.prefixes if f"{target.module}.".startswith(f"{self.package}.{p}.")]
        return max(fitting, key=len, default=None) if self.prefixes else ""

    def place(self, target: Target) -> int:
        """Where a name stands: names follow the order of the prefixes."""
        return self.prefixes.index(self.prefix(target) or "") if self.prefixes else 0


@dataclass(frozen=True)
class Target:
    """Where a public name is defined; `name` is empty for a module, `spelled` false for one made while importing."""

    module: str
    name: str
    spelled: bool = True

    @property
    def path(self) -> str:
        """What mkdocstrings looks for."""
        return f"{self.module}.{self.name}" if self.name and self.spelled else self.module


def source(module: str) -> Path | None:
    """The file that defines the names of a module: of a package that loads lazily, its stub."""
    base = ROOT / module.replace(".", "/")
    stub, package, plain = base / "__init__.pyi", base / "__init__.py", base.with_suffix(".py")
    return next((path for path in (stub, package, plain) if path.is_file()), None)


@functools.cache
def read(name: str) -> Module:
    """A module of ours, from its source."""
    path = source(name)
    assert path is not None, name
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    defined: dict[str, tuple[str, ...]] = {}
    imported: dict[str, tuple[str, str]] = {}
    again: list[str] = []  # `import x as x`, by which a module exports what it imports
    listed: tuple[str, ...] | None = None
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.FunctionDef():
                defined[node.name] = ()
            case ast.ClassDef():
                defined[node.name] = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
                pass
            case ast.AnnAssign(target=ast.Name(id=target)):
                defined[target] = ()
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() as values):
                listed = tuple(ast.literal_eval(values))
            case ast.AugAssign(target=ast.Name(id="__all__"), value=ast.Attribute(value=ast.Name(id=module))):
                listed = (*(listed or ()), *read(".".join(imported[module])).exported)
            case ast.Assign(targets=[ast.Name(id=target)]):
                defined[target] = ()
            case ast.ImportFrom():
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                origin = ".".join([*above, *([node.module] if node.module else [])])
                if node.names[0].name == "*":
                    imported |= {exported: (origin, exported) for exported in read(origin).exported}
                    continue
                for alias in node.names:
                    imported[alias.asname or alias.name] = (origin, alias.name)
                    again += [alias.name] if alias.asname == alias.name else []
    public = [n for n in (*again, *defined) if not n.startswith("_")]
    return Module(name, defined, imported, listed if listed is not None else tuple(dict.fromkeys(public)))


def resolve(module: str, name: str) -> Target | None:
    """Where a name of a module is defined; None outside of our packages."""
    here = read(module)
    if name not in here.imported:
        return Target(module, name, name in here.defined)
    origin, other = here.imported[name]
    if source(origin) is None:
        return None
    inner = f"{origin}.{other}"
    is_bound = origin != module and other in {*read(origin).defined, *read(origin).imported}
    return Target(inner, "") if not is_bound and source(inner) else resolve(origin, other)


@functools.cache
def marks() -> tuple[Mark, ...]:
    """The marks of all pages."""
    return tuple(
        Mark(path.name, found[0], found[1], tuple(p.strip() for p in (found[2] or "").split(",") if p.strip()))
        for path in sorted(PAGES.glob("*.md"))
        for found in MARK.finditer(path.read_text())
    )


@functools.cache
def by_hand() -> frozenset[str]:
    """What pages name themselves."""
    return frozenset(name for path in PAGES.glob("*.md") for name in BY_HAND.findall(path.read_text()))


@functools.cache
def layout() -> dict[Mark, dict[str, Target]]:
    """The names of every mark, prefix by prefix, in the order in which their package exports them."""
    found: dict[Mark, dict[str, Target]] = {mark: {} for mark in marks()}
    packages = {mark.package for mark in found}
    modules = {target.module for package in packages for _, target in _targets(package) if not target.name} - packages
    owner: dict[Target, str] = {}
    for package in sorted(packages, key=len):  # the innermost package comes last and keeps the name
        for _, target in _targets(package):
            inside = f"{target.module}.".startswith(f"{package}.")
            owner[target] = package if inside else owner.get(target, package)
    for package in packages:
        for name, target in _targets(package):
            elsewhere = {target.path, target.module} & (by_hand() | packages - {package})
            with_module = target.name and target.module in modules  # the module itself is exported too
            if owner[target] == package and not elsewhere and not with_module:
                takers = [m for m in found if m.package == package and m.prefix(target) is not None]
                assert takers, f"no mark of docs/api takes {package}.{name}"
                found[max(takers, key=lambda m: len(m.prefix(target) or ""))][name] = target
    return {m: dict(sorted(names.items(), key=lambda item: m.place(item[1]))) for m, names in found.items()}


def _targets(package: str) -> Iterator[tuple[str, Target]]:
    for name in read(package).exported:
        target = resolve(package, name)
        if target is not None:
            yield name, target


def expand(page: str, markdown: str) -> str:
    """The text of a page of docs/api with its names in place of the marks."""
    for mark, names in layout().items():
        if mark.page == page:
            markdown = markdown.replace(mark.text, _blocks(names))
    return markdown


def _blocks(names: dict[str, Target]) -> str:
    spelled = dict.fromkeys(target for target in names.values() if target.spelled)
    made: dict[str, list[str]] = {}
    for name, target in names.items():
        if not target.spelled:
            made.setdefault(target.module, []).append(name)
    lists = [
        f"## {module.rpartition('.')[2]}\n\n{', '.join(f'`{n}`' for n in sorted(found))}\n\n::: {module}\n"
        "    options: { show_root_heading: false, show_root_toc_entry: false }\n"
        for module, found in made.items()
    ]
    return "\n".join([*(_block(target) for target in spelled), *lists])


def _block(target: Target) -> str:
    package = not target.name and (ROOT / target.module.replace(".", "/")).is_dir()
    if package:
        return f"::: {target.path}\n    options: {{ members: false }}\n"
    if target.name and any(_is_hidden(target.module, base) for base in read(target.module).defined[target.name]):
        return f"::: {target.path}\n    options: {{ inherited_members: true }}\n"
    return f"::: {target.path}"


def _is_hidden(module: str, base: str) -> bool:
    """Whether a class of ours has no place of its own, so that its members stand with those that inherit them."""
    here = read(module)
    target = resolve(module, base) if base in {*here.defined, *here.imported} else None
    shown = {target for names in layout().values() for target in names.values()}
    return target is not None and target not in shown and target.module not in by_hand()
