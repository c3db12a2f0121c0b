"""Operators of the domain ``popxl``: PopXL operators whose form (attributes, state) no ONNX or PopART operator has."""

DOMAIN = "popxl"

STARTS, GRADIENTS = "recomputes_from", "recomputes_after"
"""Metadata of a call that computes activations again: which of its inputs are activations, and which inputs of its
graph are gradients, by number."""
