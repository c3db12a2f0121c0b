"""Optimizer steps as modules."""

from __future__ import annotations

from .adam import AdamOptimizerStep as AdamOptimizerStep
