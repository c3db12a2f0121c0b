"""Whether a program imports us as ``popart``: such programs get PopART's rules, also where those are stricter."""

from __future__ import annotations

import sys


def imported_as_popart() -> bool:
    """Whether the program imported us by PopART's name."""
    return "popart" in sys.modules
