"""Where the commands print: names of models are no markup, so ``[batch,8]`` stays as it is."""

from __future__ import annotations

from rich.console import Console


def console() -> Console:
    """A console that takes every text as it is."""
    return Console(markup=False, highlight=False, emoji=False)
