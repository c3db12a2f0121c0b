"""Inputs that reach new lines of the readers, by Atheris: for nights, and where it is installed."""

from __future__ import annotations

import sys

from . import bytewise
from .corpus import corpus


def run(seconds: int) -> int:
    """Exit status 0 when nothing was found in this time, 2 where Atheris is not installed."""
    try:
        import atheris  # pyright: ignore[reportMissingImports]
    except ImportError:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        print(f"Atheris is not installed (Python {version}): pip install 'popart-jax[fuzz]', or run ``bytes``.")
        return 2
    with atheris.instrument_imports(include=["popart_jax.model", "popart_jax.lowering"]):
        handle = bytewise.start()
    assert handle is not None

    def one(data: bytes) -> None:
        came = bytewise.outcome(data, corpus()[0].feeds, "trace")
        if came not in ("value", "error"):
            raise AssertionError(came)

    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-max_len=8000"], one)
    atheris.Fuzz()
    return 0
