"""The table as a whole: its page in the docs, and the size of the translations."""

from __future__ import annotations

import inspect
import re
import statistics
from collections.abc import Iterable
from pathlib import Path

from popart_jax.ops import Lowering, table

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


def test_the_page_lists_every_operator_and_version() -> None:
    sections = re.split(r"^## (\S+)$", PAGE.read_text(), flags=re.MULTILINE)
    listed = {
        ("" if domain == "ai.onnx" else domain, op): [int(v) for v in versions.split(", ")]
        for domain, body in zip(sections[1::2], sections[2::2], strict=True)
        for op, versions in re.findall(r"^\| `(\w+)` \| ([\d, ]+) \|", body, flags=re.MULTILINE)
    }
    own = {key: sorted(versions) for key, versions in table().items() if not _registered_elsewhere(versions.values())}
    assert listed == own, "run: python docs/operators.py"


def _registered_elsewhere(rows: Iterable[Lowering]) -> bool:
    """By another test of this process, or by popxl_addons when it was imported."""
    modules = (inspect.unwrap(row.fn).__module__ for row in rows)
    return all(m.startswith(("tests.", "__main__", "popart_jax.popxl_addons.")) for m in modules)


def test_a_translation_has_ten_lines_on_average() -> None:
    functions = {inspect.unwrap(row.fn) for versions in table().values() for row in versions.values()}
    own = [f for f in functions if inspect.isfunction(f) and f.__module__.startswith("popart_jax")]
    assert len(own) > 300
    assert statistics.mean(len(inspect.getsourcelines(f)[0]) for f in own) <= 10
