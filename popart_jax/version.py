"""Version of the package."""

from __future__ import annotations

import hashlib

__version__ = "0.2.0"


def versionString() -> str:
    """The version as text."""
    return __version__


def versionNumber() -> tuple[int, int, int]:
    """Major, minor and point version."""
    major, minor, point = (int(n) for n in __version__.split("."))
    return major, minor, point


def packageHash() -> str:
    """A hexadecimal hash that identifies the version."""
    return hashlib.sha256(__version__.encode()).hexdigest()[:16]
