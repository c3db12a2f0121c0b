"""Operators of the domain ``popxl``: PopXL operators whose form (attributes, state) no ONNX or PopART operator has."""

from __future__ import annotations

DOMAIN = "popxl"
