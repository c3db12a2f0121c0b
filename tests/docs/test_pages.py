"""Every block of Python in the documentation runs, page by page; blocks that can't say why in a comment above."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

import ipu_model
from popart_jax import dropin

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- not run: .+ -->\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if any(not why for why, _ in BLOCK.findall(page.read_text()))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the pages' files lie; `import popart` is not answered afterwards."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    onnx.save(importlib.import_module("example_models").classifier(64, 32), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    dropin.uninstall()


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_runs(page: Path, folder: Path) -> None:
    names: dict[str, object] = {"__name__": "page", "target": ipu_model.get_target("mk2")}
    text = page.read_text()
    for found in BLOCK.finditer(text):
        if not found[1]:
            line = text.count("\n", 0, found.start(2))
            exec(compile("\n" * line + found[2], str(page), "exec"), names)


def test_files_that_pages_link_to_are_there() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
        if not (page.parent / target).exists()
    ]
    assert not missing


def test_the_examples_have_pages_with_a_picture() -> None:
    scripts = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"example_models"}
    pages = {path.stem for path in (ROOT / "docs" / "examples").glob("*.md")} - {"index"}
    assert scripts == pages
    texts = {name: (ROOT / "docs" / "examples" / f"{name}.md").read_text() for name in pages}
    assert [name for name, text in texts.items() if f"](../images/examples/{name}.svg)" not in text] == []


def test_figures_of_the_readme_are_those_of_the_measurements() -> None:
    readme, measured = ((ROOT / name).read_text() for name in ("README.md", "docs/measurements.md"))
    section = readme[readme.index("## Measured") : readme.index("## Where to go on")]
    rows = [line.partition(" | ")[2] for line in section.splitlines() if line.startswith("| ") and "---" not in line]
    (sentence,) = re.findall(r"^Correct: .*?smooth cases", section, re.MULTILINE | re.DOTALL)
    figures = re.findall(r"\d[\d.,]*\d|\d+", " ".join([*rows, sentence]))
    assert len(figures) > 20
    assert [f for f in figures if not re.search(rf"(?<![\d.]){re.escape(f)}(?![\d])", measured)] == []


def test_the_citation_names_this_version() -> None:
    from popart_jax import __version__

    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.read_text().strip()], ids=lambda page: str(page.relative_to(ROOT))
)
def test_a_page_opens_with_a_sentence(page: Path) -> None:
    title, _, rest = page.read_text().partition("\n")
    if title.startswith("# "):  # not so are pages that another file fills
        assert re.match(r"[A-Z`*\[]", rest.lstrip()), f"after its title stands {rest.lstrip()[:40]!r}"
