"""Constants found by `ipu_model.calibrate`, from the data file beside those of the targets."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parent / "targets" / "fitted.json"


@functools.cache
def _rows() -> dict[str, dict[str, Any]]:
    return json.loads(_FILE.read_text())["constants"]


@functools.cache
def fitted_constants() -> dict[str, float]:
    """The constants by dotted name; the file holds how each was found."""
    return {name: float(row["value"]) for name, row in _rows().items()}


@functools.cache
def starting_constants() -> dict[str, float]:
    """Where a fit from scratch begins: published estimates, or values read off the figures; the file says which."""
    return {name: row["start"] for name, row in _rows().items() if "start" in row}
