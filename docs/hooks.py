"""Hook of MkDocs: pages that are files of the root folder, links between those and the site, names of the API pages."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # MkDocs runs this file without its folder

import api

ROOT = Path(__file__).parents[1]
FROM_ROOT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
SOURCE = "https://example.com/popart_jax/source/"  # as `project.urls` of pyproject.toml


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page."""
    name = FROM_ROOT.get(page.file.src_uri)
    if page.file.src_uri.startswith("api/"):
        markdown = api.expand(Path(page.file.src_uri).name, markdown)
    if name is None:
        depth = page.file.src_uri.count("/") + 1
        return markdown.replace(f"]({'../' * depth}", f"]({SOURCE}")  # out of docs: files of the source
    return re.sub(r"\]\((?!https?:|#)([^)]+)\)", _link, (ROOT / name).read_text())


def _link(found: re.Match[str]) -> str:
    target = found[1]
    inside = target.startswith("docs/") and target.partition("#")[0].endswith(".md")
    return f"]({target.removeprefix('docs/')})" if inside else f"]({SOURCE}{target})"
