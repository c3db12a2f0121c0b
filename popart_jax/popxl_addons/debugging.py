"""Prints that an environment variable switches on."""

from __future__ import annotations

import logging
import os
from typing import Any, Literal

from .. import popxl
from ..popxl import ops
from ..popxl.context import debug_context_frame_offset

logger = logging.getLogger(__name__)
LEVELS_TYPE = Literal["TRACE", "DEBUG", "INFO", "WARN"]
LEVELS = {"TRACE": 0, "DEBUG": 1, "INFO": 2, "WARN": 3}
MODEL_LOG_LEVEL = os.environ.get("MODEL_LOG_LEVEL", "INFO")
MODEL_LOG_LEVEL_VAL = LEVELS[MODEL_LOG_LEVEL]


@debug_context_frame_offset(1)
def print_tensor(t: popxl.Tensor, *args: Any, level: LEVELS_TYPE = "DEBUG", **kwargs: Any) -> popxl.Tensor:
    """`ops.print_tensor` where MODEL_LOG_LEVEL is at or below `level`, else the tensor itself."""
    return ops.print_tensor(t, *args, **kwargs) if LEVELS[level] >= MODEL_LOG_LEVEL_VAL else t


@debug_context_frame_offset(1)
def print_text(text: str, num: popxl.Tensor | None = None, level: LEVELS_TYPE = "DEBUG") -> None:
    """Print a text, with a number if one is given, when the program runs."""
    if LEVELS[level] >= MODEL_LOG_LEVEL_VAL:
        ops.print_tensor(popxl.constant(0) if num is None else num, title=text)
