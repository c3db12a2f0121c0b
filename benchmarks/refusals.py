"""How many refusals have a test: `python -m benchmarks.refusals [--list ROOM]`.

Errors that the packages raise, beside the tests that expect one; each case of a parametrised test counts.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .structure import Source, read, statements

ROOT = Path(__file__).parent.parent


def raised(source: Source) -> list[int]:
    """Lines that raise a new error, without re-raised errors and NotImplementedError of abstract methods."""
    found = (n for n in statements(source.tree) if isinstance(n, ast.Raise) and isinstance(n.exc, ast.Call))
    return [n.lineno for n in found if n.exc is not None and "NotImplementedError" not in ast.unparse(n.exc)]


def expected(path: Path) -> int:
    """Errors that the tests of a file expect."""
    text = path.read_text(encoding="utf-8")
    if "raises" not in text:
        return 0
    tree = ast.parse(text)
    assigned = (n for n in tree.body if isinstance(n, ast.Assign | ast.AnnAssign) and n.value is not None)
    tables = {target.id: n.value for n in assigned if n.value for target in _targets(n) if isinstance(target, ast.Name)}
    functions = [n for n in statements(tree) if isinstance(n, ast.FunctionDef)]
    helpers = {f.name: _expectations(f) for f in functions if not f.name.startswith("test")}
    return sum(_cases(f, tables) * _expectations(f, helpers) for f in functions if f.name.startswith("test"))


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _expectations(function: ast.FunctionDef, helpers: Mapping[str, int] = {}) -> int:
    """Calls of `pytest.raises` in a function, those in functions of the file that it calls included."""
    names = [_name(n.func) for n in ast.walk(function) if isinstance(n, ast.Call)]
    return sum(1 if name == "raises" else helpers.get(name, 0) for name in names)


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _cases(function: ast.FunctionDef, tables: Mapping[str, ast.expr]) -> int:
    return prod(_parameters(function, tables))


def _parameters(function: ast.FunctionDef, tables: Mapping[str, ast.expr]) -> Iterator[int]:
    """How many values each `parametrize` of a test gives; 1 where that takes running the file."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and _name(decorator.func) == "parametrize" and len(decorator.args) > 1:
            values = decorator.args[1]
            while isinstance(values, ast.Call) and isinstance(values.func, ast.Attribute):  # table.items()
                values = values.func.value
            values = tables.get(values.id, values) if isinstance(values, ast.Name) else values
            size = len(values.elts) if isinstance(values, ast.List | ast.Tuple | ast.Set) else 0
            yield max(1, len(values.keys) if isinstance(values, ast.Dict) else size)


def count(root: Path) -> tuple[Counter[str], Counter[str]]:
    """Raises, and errors that tests expect, by folder."""
    errors: Counter[str] = Counter()
    for source in read(root).values():
        errors[_folder(source.name.split("."))] += len(raised(source))
    tests: Counter[str] = Counter()
    for path in (root / "tests").rglob("*.py"):
        parts = path.relative_to(root / "tests").parts
        tests[parts[0] if len(parts) > 1 else "tests"] += expected(path)
    return errors, tests


def _folder(parts: list[str]) -> str:
    return parts[1] if parts[0] == "popart_jax" and len(parts) > 1 else parts[0]


def main() -> None:
    """Print both by folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", metavar="ROOM", help="show the lines that raise in the modules of this name")
    given = parser.parse_args()
    errors, tests = count(ROOT)
    table = Table("folder", "raises", "expected by its tests")
    for folder in sorted(errors | tests):
        table.add_row(folder, str(errors[folder]), str(tests[folder]))
    table.add_row("all", str(errors.total()), str(tests.total()), style="bold")
    console = Console()
    console.print(table)
    console.print(f"{tests.total() / errors.total():.2f} error tests per raise")
    for name, source in read(ROOT).items() if given.list else ():
        if name.startswith(given.list):
            console.print(*(f"{name}:{line}" for line in raised(source)), sep="\n", markup=False)


if __name__ == "__main__":
    main()
