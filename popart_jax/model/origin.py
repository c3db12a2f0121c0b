"""Where a program comes from: PopART's own keep PopART's rules, also where those are narrower than ours."""

from __future__ import annotations

import sys


def imported_as_popart() -> bool:
    """Whether the program imported us by PopART's name."""
    return "popart" in sys.modules
