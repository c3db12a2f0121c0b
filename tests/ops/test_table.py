"""The table as a whole: its page in the docs, and the size of the translations."""

from __future__ import annotations

import inspect
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import popart_jax.lowering  # noqa: F401 - its operators belong to the table
from popart_jax.ops import Lowering, operators, registry, table
from popart_jax.ops.registry import Key, Static

if TYPE_CHECKING:
    from popart_jax.ops.arrays import Array

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


def test_the_page_lists_every_operator_and_version() -> None:
    sections = re.split(r"^## (\S+)$", PAGE.read_text(), flags=re.MULTILINE)
    listed = {
        ("" if domain == "ai.onnx" else domain, op, mark): [int(v) for v in versions.split(", ")]
        for domain, body in zip(sections[1::2], sections[2::2], strict=True)
        for op, mark, versions in re.findall(r"^\| `(\w+)`( \*PopART\*)? \| ([\d, ]+) \|", body, flags=re.MULTILINE)
    }
    own = {
        (*key, mark): sorted(versions)
        for mark, rows in (("", table()), (" *PopART*", table(popart=True)))
        for key, versions in rows.items()
        if not _registered_elsewhere(versions.values())
    }
    assert listed == own, "run: python docs/operators.py"


def test_a_popart_row_comes_before_onnx_in_popart_sessions_only() -> None:
    rows = [registry.resolve("", "Round", 11, popart=popart) for popart in (False, True)]
    assert [row is not None and row.popart for row in rows] == [False, True]
    newest = registry.resolve("", "Dropout", 22, popart=True)
    assert newest is not None
    assert newest.since == 12
    plain = registry.resolve("", "Relu", 14, popart=True)
    assert plain is registry.resolve("", "Relu", 14)


def _registered_elsewhere(rows: Iterable[Lowering]) -> bool:
    """By another test of this process, or by popxl_addons when it was imported."""
    modules = (inspect.unwrap(row.fn).__module__ for row in rows)
    return all(m.startswith(("tests.", "__main__", "page", "popart_jax.popxl_addons.")) for m in modules)


@pytest.mark.processes
def test_the_page_shows_the_facts_of_every_operator() -> None:
    """In a process of its own: other tests declare operators."""
    code = "import runpy, sys\nprint(runpy.run_path(sys.argv[1])['facts'](), end='')"
    script = str(PAGE.with_suffix(".py"))
    done = subprocess.run([sys.executable, "-c", code, script], capture_output=True, text=True, check=True)
    assert "| `ConvTranspose` | - | - | ConvTranspose | `ConvTransposeOp` |" in done.stdout
    assert PAGE.read_text().endswith(done.stdout), "run: python docs/operators.py"


def test_a_translation_has_ten_lines_on_average() -> None:
    functions = {inspect.unwrap(row.fn) for versions in table().values() for row in versions.values()}
    own = [f for f in functions if inspect.isfunction(f) and f.__module__.startswith("popart_jax")]
    assert len(own) > 300
    assert statistics.mean(len(inspect.getsourcelines(f)[0]) for f in own) <= 10


@pytest.mark.processes
def test_the_contents_name_the_module_of_every_operator() -> None:
    """In a process of its own: where each row is entered, by the module that is being imported then."""
    code = (
        "import sys\n"
        "import popart_jax.lowering\n"
        "from popart_jax.ops import registry\n"
        "found, enter = {}, registry.add\n"
        "def add(row, **options):\n"
        "    frame = sys._getframe()\n"
        "    while frame.f_code.co_name != '<module>':\n"
        "        frame = frame.f_back\n"
        "    found[row.domain, row.op] = frame.f_globals['__name__']\n"
        "    enter(row, **options)\n"
        "registry.add = add\n"
        "registry.table()\n"
        "places = registry._PLACES\n"
        "print(*sorted(found.items() - places.items()), *sorted(places.items() - found.items()), sep='\\n')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "", "change popart_jax/ops/contents.py or popart_jax/lowering/__init__.py"


@pytest.mark.processes
def test_a_lookup_imports_only_the_module_of_its_operator() -> None:
    """In a process of its own, operator by operator from a table that starts empty."""
    code = (
        "import sys\n"
        "from popart_jax.ops import registry\n"
        "assert registry.resolve('', 'Relu', 13).op == 'Relu'\n"
        "loaded = {m for m in sys.modules if m.startswith('popart_jax.ops.')}\n"
        "assert 'popart_jax.ops.activation' in loaded\n"
        "others = ('recurrent', 'quantize', 'sequence', 'microsoft', 'ml')\n"
        "print(*(m for m in others if f'popart_jax.ops.{m}' in loaded))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.processes
def test_the_row_of_any_type_is_found_without_importing_all_modules() -> None:
    """In a process of its own, from a table that starts empty; the last is an operator that nobody declared."""
    code = (
        "import sys\n"
        "import popart_jax.lowering\n"
        "from popart_jax.ops import facts, operators, registry\n"
        "facts('Unheard')\n"
        "assert not any(m.startswith('popart_jax.ops.microsoft.') for m in sys.modules)\n"
        "fill, registry._load_families = registry._load_families, None\n"
        "names = sys.argv[1:]\n"
        "early = {name: facts(name) for name in names}\n"
        "registry._load_families = fill\n"
        "print(*(name for name in names if early[name] is not operators()[name]))\n"
    )
    names = [name for name in operators() if not name.startswith("Test")]
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [], "change DECLARED_IN of popart_jax/ops/contents.py"


@pytest.mark.processes
def test_an_operator_of_a_module_not_yet_imported_can_be_replaced() -> None:
    code = (
        "import inspect\n"
        "from popart_jax.ops import custom_op, registry\n"
        "@custom_op('com.microsoft', 'QuickGelu')\n"
        "def mine(x, /):\n"
        "    return x\n"
        "assert inspect.unwrap(registry.resolve('com.microsoft', 'QuickGelu', 1).fn) is mine\n"
        "assert inspect.unwrap(registry.table()['com.microsoft', 'QuickGelu'][1].fn) is mine\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_name_of_a_type_need_not_be_there_when_a_translation_is_registered() -> None:
    assert "Array" not in globals()

    def translation(x: Array, shape: Static, gap: registry.Gap, last, /, *, key: Key, n: int = 1) -> Any: ...

    row = registry.describe(translation, "Op", 1)
    assert (row.static, row.optional) == ({1}, {2})
    assert (row.context, row.attributes) == ({"key": "key"}, {"n": 1})
