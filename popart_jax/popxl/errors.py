"""Errors of its own that PopXL has."""


class UndefinedValue(Exception):
    """A placement (IPU, tile set) was asked for that is not known."""
