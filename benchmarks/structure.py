"""The shape of the code, in figures: `python -m benchmarks.structure [--at REVISION] [--list WHAT]`.

What is read is the source, as text: nothing is imported. Imports inside functions and for types count like others.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

from rich.console import Console
from rich.table import Table

PACKAGES = ("popart_jax", "ipu_model", "patterns")
OPERATOR_ROOM = "popart_jax.ops"
CONTENTS = ("popart_jax.lowering.control", "popart_jax.lowering.kernels")
"""Modules that also translate operators: their collections only say which module translates which operator."""
_OF_PROGRAMS = ["popdist", "poponnx", "libpvti", "dropin", "popxl.session", "popxl.utils"]
PUBLISHED = tuple(f"popart_jax.{name}" for name in _OF_PROGRAMS)
"""Modules whose functions are only called by users' programs."""
FEWEST = 4  # names of operators that make a collection a table of operator facts
LAYERS = (
    (
        "ipu_model",
        "patterns",
        "popart_jax._compat",
        "popart_jax.enums",
        "popart_jax.errors",
        "popart_jax.limits",
        "popart_jax.logs",
    ),
    ("popart_jax.model",),
    ("popart_jax.ops", "popart_jax.optimizers"),
    ("popart_jax.autodiff", "popart_jax.lowering"),
    ("popart_jax.builder",),
    ("popart_jax.execution", "popart_jax.ir_view"),
    ("popart_jax.functions",),
    ("popart_jax.profiling",),
    ("popart_jax.session",),
    ("popart_jax.popxl", "popart_jax.poponnx"),
    ("popart_jax.popxl_addons",),
    ("popart_jax.compare", "popart_jax.backend", "popart_jax.demo"),
    ("popart_jax.commands",),
    ("popart_jax.__main__",),
)
"""Layers, lowest first: a module imports from its own layer and from those below."""


@dataclass(frozen=True)
class Source:
    """One module: its dotted name, whether it is a package, and its syntax tree."""

    name: str
    is_package: bool
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed source."""
        return ast.parse(self.text)

    def absolute(self, node: ast.ImportFrom) -> str:
        """The module that a ``from ... import`` names."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        base = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*base, *filter(None, [node.module])])


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements below a node, without a look into expressions, which are most of a tree."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)


def read(root: Path) -> dict[str, Source]:
    """All modules of the three packages."""
    found: dict[str, Source] = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            found[name] = Source(name, is_package, path.read_text(encoding="utf-8"))
    return found


def imports(source: Source, known: Mapping[str, Source]) -> set[str]:
    """Modules of the project that this one imports, wherever in the file."""
    found: set[str] = set()
    for node in statements(source.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = source.absolute(node)
            inner = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name if name in known else base for name in inner}
    return {name for name in found if name in known and name != source.name}


def circles(arrows: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of modules that import one another (strongly connected components of two and more), largest first."""
    order: list[str] = []
    seen: set[str] = set()
    for start in arrows:
        order.extend(_finished(start, arrows, seen))
    back: dict[str, list[str]] = {name: [] for name in arrows}
    for name, targets in arrows.items():
        for target in targets:
            back[target].append(name)
    seen = set()
    groups = [sorted(_finished(name, back, seen)) for name in reversed(order) if name not in seen]
    return sorted((g for g in groups if len(g) > 1), key=len, reverse=True)


def _finished(start: str, arrows: Mapping[str, Iterable[str]], seen: set[str]) -> Iterator[str]:
    """Modules reachable from `start` that were not seen, each after those it leads to."""
    if start in seen:
        return
    seen.add(start)
    stack = [(start, iter(arrows[start]))]
    while stack:
        name, targets = stack[-1]
        fresh = next((t for t in targets if t not in seen), None)
        if fresh is None:
            stack.pop()
            yield name
        else:
            seen.add(fresh)
            stack.append((fresh, iter(arrows[fresh])))


def layer(module: str) -> int | None:
    """The layer of a module; None for public packages such as ``popart_jax`` itself."""
    prefixes = {folder: i for i, folders in enumerate(LAYERS) for folder in folders}
    parts = module.split(".")
    names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((prefixes[n] for n in names if n in prefixes), None)


def upward(arrows: Mapping[str, Iterable[str]]) -> list[str]:
    """Imports of a higher layer."""
    pairs = ((a, b, layer(a), layer(b)) for a, targets in arrows.items() for b in targets)
    return sorted(f"{a} -> {b}" for a, b, low, high in pairs if low is not None and high is not None and high > low)


def operator_names(sources: Mapping[str, Source]) -> set[str]:
    """Types that the contents of the operator table list."""
    constants = (n for n in ast.walk(sources[f"{OPERATOR_ROOM}.contents"].tree) if isinstance(n, ast.Constant))
    words = (word for c in constants if isinstance(c.value, str) for word in c.value.split())
    return {word for word in words if word[:1].isupper() and word.isalnum()}


def tables(sources: Mapping[str, Source]) -> list[str]:
    """Module-level collections outside the operator folder that name several operators."""
    operators = operator_names(sources)
    found: list[str] = []
    for source in sources.values():
        if source.name.startswith(OPERATOR_ROOM) or source.name in CONTENTS:
            continue
        for node in source.tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                named = {w for w in _words(node.value) if w in operators or w.removesuffix("Op") in operators}
                if len(named) >= FEWEST:
                    found.append(f"{source.name}:{node.lineno} ({len(named)} operators)")
    return found


def _words(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield from inner.value.split()


def shared_private(sources: Mapping[str, Source], folder: str) -> list[str]:
    """Private attributes that a file of a folder sets on `self` and another file of it reads."""
    sets: dict[str, set[str]] = {}
    reads: dict[str, set[str]] = {}
    for source in sources.values():
        if source.name.startswith(folder):
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                    own = (
                        isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self"
                    )
                    (sets if own else reads).setdefault(node.attr, set()).add(source.name)
    return sorted(name for name, where in sets.items() if reads.get(name, set()) - where)


def uncalled(sources: Mapping[str, Source], root: Path) -> list[str]:
    """Functions and private methods whose names occur only in their definition.

    Tests do not count as use, but for the lists of public names that they hold.
    """
    words: Counter[str] = Counter()
    listed = [p for package in PACKAGES for p in (root / package).rglob("*") if p.suffix in (".pyi", ".j2")]
    for text in (*(s.text for s in sources.values()), *map(Path.read_text, (*listed, *root.glob("tests/**/*.json")))):
        words.update(re.findall(r"\w+", text))
    found: list[str] = []
    for source in sources.values():
        if not source.name.startswith(PUBLISHED):
            functions = (f for f in statements(source.tree) if isinstance(f, ast.FunctionDef) and not f.decorator_list)
            alone = (f for f in functions if words[f.name] == 1 and not f.name.startswith(("__", "_repr_")))
            own = [f for f in alone if f in source.tree.body or f.name.startswith("_")]
            found += [f"{source.name}:{f.lineno} {f.name}" for f in own]
    return found


def measure(root: Path) -> dict[str, list[str]]:
    """Everything that is counted, as lists that can be shown."""
    sources = read(root)
    arrows = {name: imports(source, sources) for name, source in sources.items()}
    lines: Counter[str] = Counter({package: 0 for package in PACKAGES})  # noqa: C420
    for source in sources.values():
        parts = source.name.split(".")
        lines[".".join(parts[:2]) if parts[0] == "popart_jax" and len(parts) > 2 else parts[0]] += source.text.count(
            "\n"
        )
    groups = circles(arrows)
    return {
        "tables of operator facts outside the operator folder": tables(sources),
        "modules in the largest circle of imports": groups[0] if groups else [],
        "circles of more than three modules": [" ".join(g) for g in groups if len(g) > 3],
        "imports of a higher layer": upward(arrows),
        "private attributes shared between files of session": shared_private(sources, "popart_jax.session"),
        "imports inside functions without a reason": inner_imports(sources),
        "functions that nothing calls": uncalled(sources, root),
        **{f"lines of {name}": [""] * count for name, count in sorted(lines.items())},
        "lines in all": [""] * sum(lines.values()),
    }


def inner_imports(sources: Mapping[str, Source]) -> list[str]:
    """Imports inside functions without a reason: they defer no external module, and avoid no import cycle."""
    loads = {name: _loaded(source, sources) for name, source in sources.items()}
    found: set[str] = set()
    for source in sources.values():
        functions = (f for f in statements(source.tree) if isinstance(f, ast.FunctionDef))
        nodes = {n for f in functions for n in statements(f) if isinstance(n, ast.ImportFrom | ast.Import)}
        mine = set[str]().union(*(_reached(name, loads, source.name) for name in loads[source.name] if nodes))
        for node in nodes:
            wanted = set[str]().union(*(_reached(name, loads, source.name) for name in _names(node, source, sources)))
            if wanted - set(sources) <= mine and not any(source.name in loads.get(name, ()) for name in wanted):
                found.add(f"{source.name}:{node.lineno}")
    return sorted(found)


def _names(node: ast.Import | ast.ImportFrom, source: Source, known: Mapping[str, Source]) -> set[str]:
    """Modules that one statement imports, of other projects too."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    base = source.absolute(node)
    inner = {f"{base}.{alias.name}" for alias in node.names}
    return {name if name in known else base for name in inner}


def _loaded(source: Source, known: Mapping[str, Source]) -> set[str]:
    """Modules that importing a module imports."""
    found: set[str] = set()
    pending: list[ast.stmt] = list(source.tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= _names(node, source, known)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
        elif not isinstance(node, ast.FunctionDef):
            pending += [inner for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.stmt)]
    return found


def _reached(name: str, loads: Mapping[str, Iterable[str]], within: str) -> set[str]:
    """Modules that importing a module loads, if the packages around `within` are already loaded."""
    seen: set[str] = set()
    pending = [name]
    while pending:
        module = pending.pop()
        if module not in seen and not f"{within}.".startswith(f"{module}."):
            seen.add(module)
            pending += [*loads.get(module, ()), *filter(None, [module.rpartition(".")[0]])]
    return seen


def measure_at(revision: str) -> dict[str, list[str]]:
    """The figures of an earlier revision."""
    packed = subprocess.run(["git", "archive", revision, *PACKAGES], check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        return measure(Path(folder))


def main() -> None:
    """Print the figures, beside those of an earlier revision if one is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", metavar="REVISION", help="compare with this revision")
    parser.add_argument("--list", metavar="WHAT", help="show the places of the figures that contain this text")
    given = parser.parse_args()
    console = Console()
    now = measure(Path(__file__).parent.parent)
    before = measure_at(given.at) if given.at else {}
    table = Table("figure", *([given.at] if before else []), "now")
    for name in dict.fromkeys([*now, *before]):
        table.add_row(name, *([str(len(before.get(name, [])))] if before else []), str(len(now.get(name, []))))
    console.print(table)
    for name, places in now.items():
        if given.list and given.list in name:
            console.print(f"\n{name}:", *places, sep="\n  ", markup=False)


if __name__ == "__main__":
    main()
