"""ONNX models: loading, saving, tensor types, placement annotations. No JAX here."""

from __future__ import annotations

from .load import load as load
from .load import to_bytes as to_bytes
