"""Regular expressions of models, by Python's `re` with a time limit for patterns with catastrophic backtracking.

`re` tries alternatives one after the other. Nested repeats, ``(a+)+b``, can make it try exponentially many, and it
can't be interrupted; so such patterns run in a separate process, for a limited time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from ..errors import popart_exception

SECONDS = 10
"""Time limit of a pattern with nested repeats, for all its texts."""

_CHILD = (
    "import json, re, sys; pattern, texts = json.load(sys.stdin); "
    "print(json.dumps([re.fullmatch(pattern, t) is not None for t in texts]))"
)


def full_matches(pattern: str, texts: np.ndarray) -> np.ndarray:
    """Whether each text as a whole matches.

    A pattern that `re` can't read, or that takes longer than `SECONDS` on these texts, raises popart_exception.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as err:
        raise popart_exception(f"RegexFullMatch: invalid pattern {pattern!r}: {err}") from err
    every = [str(t) for t in texts.ravel()]
    found = _in_time(pattern, every) if nests(pattern) else [compiled.fullmatch(t) is not None for t in every]
    return np.array(found, bool).reshape(texts.shape)


def nests(pattern: str) -> bool:
    """Whether the pattern has a repeat without a small bound inside another one."""
    return any(_repeats(inner) for _, inner in _open_repeats(re._parser.parse(pattern)))  # pyright: ignore


def _repeats(part: Any) -> bool:
    return next(_open_repeats(part), None) is not None


def _open_repeats(part: Any) -> Iterator[tuple[int, Any]]:
    """Repeats of ten times or more in a parsed pattern, at any depth: the bound, and what is repeated."""
    parts = cast("Sequence[Any]", part)
    if isinstance(part, tuple) and len(parts) == 3 and isinstance(parts[0], int) and hasattr(parts[2], "data"):
        if parts[1] >= 10:
            yield int(parts[1]), parts[2]
        yield from _open_repeats(parts[2])
    elif isinstance(part, (tuple, list)) or hasattr(part, "data"):
        for inner in parts:
            yield from _open_repeats(inner)


def _in_time(pattern: str, texts: list[str]) -> list[bool]:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _CHILD], input=json.dumps([pattern, texts]), capture_output=True, text=True,
            timeout=SECONDS, check=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise popart_exception(
            f"RegexFullMatch: the pattern {pattern!r} takes longer than {SECONDS} s on its texts; repeats inside "
            "repeats can take exponential time.\n  fix: write the pattern without them."
        ) from None
    return json.loads(done.stdout)
