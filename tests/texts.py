"""Assertions on error texts."""

from __future__ import annotations

import re
from typing import Any

import pytest


def says(error: type[Exception], text: str) -> Any:
    """A context that expects an error whose text begins so."""
    return pytest.raises(error, match=f"^{re.escape(text)}")
