"""The known gaps, by suite: case name to reason."""

from __future__ import annotations

import tomllib
from pathlib import Path


def gaps(suite: str) -> dict[str, str]:
    """Known gaps of a suite: newest, old or gradients."""
    return tomllib.loads(Path(__file__).with_name("gaps.toml").read_text())[suite]
