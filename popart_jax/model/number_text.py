"""Numbers in messages. Imports no ONNX."""

from __future__ import annotations

import numpy as np


def number_text(value: float) -> str:
    """A single-precision number as in PopART's messages: the fewest digits that read back to it."""
    return str(np.float32(value)).removesuffix(".0")
