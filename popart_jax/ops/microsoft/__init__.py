"""Contributed operators of ONNX Runtime (domain com.microsoft) that exported and quantised models carry."""

from __future__ import annotations

DOMAIN = "com.microsoft"
