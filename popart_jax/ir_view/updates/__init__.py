"""Optimizer ops: one module per family."""
