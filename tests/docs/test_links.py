"""Links: their form, the hosts they name, and the headings that they point to.

No host is asked whether it answers: tests have no network. The links of built pages are checked by ``nox -s docs``.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
OTHERS = ["mkdocs.yml", "pyproject.toml", "CITATION.cff", *(str(p) for p in (ROOT / ".github").rglob("*.*"))]
URL = re.compile(r"[a-z]+://[^\s)\"'>`]+")
KNOWN = {
    "example.com": "stands for the address that the project does not have yet",
    "keepachangelog.com": "the form of CHANGELOG.md",
    "semver.org": "the form of versions",
}
LOCAL = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)")


def prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as MkDocs and code hosts make them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def source_of(page: Path) -> Path:
    """The file that a page of the site is made of."""
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    name = hooks.FROM_ROOT.get(page.name) if page.parent == ROOT / "docs" else None
    return ROOT / name if name else page


@pytest.mark.parametrize("page", [*PAGES, *(ROOT / name for name in OTHERS)], ids=lambda p: str(p.relative_to(ROOT)))
def test_links_to_other_hosts(page: Path) -> None:
    for url in URL.findall(page.read_text()):
        parts = urlsplit(url)
        assert parts.scheme == "https", url
        assert parts.hostname in KNOWN, f"{url}: a new host; open the link by hand, then say here what it is for"


def test_links_to_headings() -> None:
    found = [(page, *link) for page in PAGES for link in LOCAL.findall(prose(page))]
    assert found
    for page, target, anchor in found:
        there = source_of((page.parent / target).resolve() if target else page)
        assert anchor in anchors(there), f"{page.relative_to(ROOT)}: {there.name} has no heading #{anchor}"


def test_every_known_host_is_linked_to() -> None:
    text = "".join(page.read_text() for page in [*PAGES, *(ROOT / name for name in OTHERS)])
    assert {urlsplit(url).hostname for url in URL.findall(text)} == set(KNOWN)
