"""Operators of domain ai.graphcore, one module per family."""
