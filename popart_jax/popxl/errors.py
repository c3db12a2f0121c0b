"""Errors of its own that PopXL has."""

from __future__ import annotations


class UndefinedValue(Exception):
    """A placement (IPU, tile set) was asked for that is not known."""
