"""Functions that make graphs from graphs."""

from __future__ import annotations
