"""When things happen: one IPU after another, or stages of a pipeline at the same time."""

from ipu_model.schedule.pipeline import Span
from ipu_model.schedule.schedule import Timing, timing

__all__ = ["Span", "Timing", "timing"]
