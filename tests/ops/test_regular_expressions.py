"""Patterns of RegexFullMatch: Python's own answers, and none that runs for ever."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from popart_jax.errors import popart_exception
from popart_jax.ops import regular_expressions
from popart_jax.ops.regular_expressions import full_matches, nests


@pytest.mark.parametrize(
    ("pattern", "nested"),
    [
        (r"(a+)+$", True),
        (r"(\w+\.)+\w+", True),
        (r"((ab)*c)*", True),
        (r"(?:a|b+)*", True),
        (r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)", False),
        (r"(a{2,3})+", False),
        ("a*b*", False),
        ("", False),
    ],
)
def test_repeats_in_repeats_are_seen_and_answered_as_by_re(pattern: str, nested: bool) -> None:
    texts = np.array([["", "aaa", "ab.c.d"], ["ababc", "x@gmail.com", "a..b"]], object)
    assert nests(pattern) == nested
    expected = [[re.fullmatch(pattern, t) is not None for t in row] for row in texts]
    np.testing.assert_array_equal(full_matches(pattern, texts), expected)


def test_a_pattern_that_would_run_for_ever_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_expressions, "SECONDS", 1)
    start = time.monotonic()
    with pytest.raises(popart_exception, match=r"the pattern '\(a\+\)\+\$' takes longer than 1 s"):
        full_matches(r"(a+)+$", np.array(["a" * 60 + "b"], object))
    assert time.monotonic() - start < 10


def test_a_pattern_that_is_none() -> None:
    with pytest.raises(popart_exception, match=r"invalid pattern '\(a'"):
        full_matches("(a", np.array(["a"], object))
