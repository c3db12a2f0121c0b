"""Access to Orbax, an optional dependency: its import, and reading parts of its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import popart_exception


def orbax() -> Any:
    """The package `orbax.checkpoint`; ImportError if it is not installed."""
    try:
        import orbax.checkpoint
    except ImportError:
        raise ImportError("Checkpoints need Orbax.\n  fix: pip install popart-jax[checkpoints]") from None
    return orbax.checkpoint


def checkpointer() -> Any:
    """A checkpointer for checkpoints of several parts; close it, or use it in a `with` block."""
    package = orbax()
    return package.Checkpointer(package.CompositeCheckpointHandler())


def read_part(path: Path, part: str, how: Any) -> Any:
    """One part of a checkpoint, or popart_exception; `how` is one of Orbax's arguments for restoring."""
    try:
        with checkpointer() as reader:
            return reader.restore(path, args=orbax().args.Composite(**{part: how}))[part]
    except Exception as err:  # Orbax, TensorStore and JSON each raise errors of their own for a damaged file
        raise popart_exception(f"The checkpoint '{path}' can't be read: {err}") from err
