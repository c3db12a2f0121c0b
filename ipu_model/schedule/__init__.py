"""Schedules: steps one after another, or pipeline stages at the same time."""

from ipu_model.schedule.pipeline import Span
from ipu_model.schedule.schedule import Timing, timing

__all__ = ["Span", "Timing", "timing"]
