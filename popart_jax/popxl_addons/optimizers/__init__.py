"""Optimizer steps as modules."""

from .adam import AdamOptimizerStep as AdamOptimizerStep
