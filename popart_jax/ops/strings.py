"""Operators on texts: they run on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import popart_exception
from .arrays import Array, is_text
from .operator import WIDE_RESULT, operator
from .registry import Static, lowers
from .regular_expressions import full_matches


def _texts(x: Array) -> np.ndarray:
    if not is_text(x):
        raise popart_exception(f"expected texts, got {getattr(x, 'dtype', type(x).__name__)}")
    return np.asarray(x, object)


@lowers("StringConcat", 20)
def string_concat(x: Array, y: Array, /) -> np.ndarray:
    return np.asarray(_texts(x) + _texts(y), object)


@lowers("StringSplit", 20)
def string_split(x: Array, /, *, delimiter: str = "", maxsplit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Pieces along a new last axis, shorter rows filled with empty texts, and the number of pieces."""
    pieces = [t.split(delimiter or None, -1 if maxsplit is None else maxsplit) for t in _texts(x).reshape(-1).tolist()]
    widest = max(map(len, pieces), default=0)
    rows = np.empty((len(pieces), widest), object)
    for row, found in zip(rows, pieces, strict=True):
        row[:] = [*found, *[""] * (widest - len(found))]
    return rows.reshape(*x.shape, widest), np.asarray(list(map(len, pieces)), np.int64).reshape(x.shape)


@lowers("RegexFullMatch", 20)
def regex_full_match(x: Array, /, *, pattern: str | None = None) -> np.ndarray:
    """Python's `re`, which covers the syntax of RE2 that ONNX asks for.

    Raises popart_exception where there is no pattern, one that `re` can't read, or one whose repeats in repeats take
    too long on these texts.
    """
    if pattern is None:
        raise popart_exception("RegexFullMatch: the attribute pattern is missing")
    return full_matches(pattern, _texts(x))


def _letter_by_letter(change: Callable[[str], str]) -> Callable[[str], str]:
    """Change case letter by letter, always to a single letter, as C's library does."""

    def changed(text: str) -> str:
        return "".join(other[0] if len(other := change(c)) == 1 or change is str.lower else c for c in text)

    return changed


_CASES: dict[str, Callable[[str], str]] = {
    "LOWER": _letter_by_letter(str.lower),
    "UPPER": _letter_by_letter(str.upper),
    "NONE": str,
}


operator("StringNormalizer", WIDE_RESULT)


@lowers("StringNormalizer", 10)
def string_normalizer(
    x: Array, /, *, case_change_action: str = "NONE", is_case_sensitive: int = 0, locale: str | None = None,
    stopwords: Sequence[str] = (),
) -> np.ndarray:  # fmt: skip
    """Stop words go and case changes; an empty result is one empty text.

    Accents stay, as in ONNX Runtime; ONNX's evaluator removes them, without a word in the specification.
    """
    change = _CASES.get(case_change_action)
    if change is None or x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise popart_exception(f"StringNormalizer: action {case_change_action!r}, input shape {list(x.shape)}")
    same = _CASES["NONE" if is_case_sensitive else "LOWER"]
    stops = {same(word) for word in stopwords}
    kept = [change(text) for text in _texts(x).reshape(-1).tolist() if same(text) not in stops]
    out = np.asarray(kept or [""], object)
    return out[None] if x.ndim == 2 else out


operator("TfIdfVectorizer", ranks="X 1-2")


@lowers("TfIdfVectorizer", 9)
def tf_idf_vectorizer(
    x: Static, /, *, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str,
    ngram_counts: Sequence[int], ngram_indexes: Sequence[int], pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None, weights: Sequence[float] | None = None,
) -> np.ndarray:  # fmt: skip
    """Counts of known n-grams, of neighbours and of items up to `max_skip_count` apart.

    `weights` stand in the order of the pool, counts in the order of `ngram_indexes`.
    """
    if mode not in ("TF", "IDF", "TFIDF"):
        raise popart_exception(f"TfIdfVectorizer: mode must be TF, IDF or TFIDF, got {mode!r}")
    pool = list(pool_strings if pool_strings is not None else pool_int64s or ())
    column = _ngram_columns(pool, ngram_counts, ngram_indexes, range(min_gram_length, max_gram_length + 1))
    rows = np.atleast_2d(np.asarray(x)).tolist()
    out = np.zeros((len(rows), max(ngram_indexes) + 1), np.float32)
    for counts, items in zip(out, rows, strict=True):
        for gram, count in _ngrams(items, range(min_gram_length, max_gram_length + 1), max_skip_count).items():
            if gram in column:
                counts[column[gram]] += count
    out = np.minimum(out, 1) if mode == "IDF" else out
    if mode != "TF" and weights is not None:
        scale = np.ones(out.shape[1], np.float32)
        scale[list(ngram_indexes)] = weights
        out = out * scale
    return out if np.ndim(x) == 2 else out[0]


def _ngram_columns(
    pool: list[Any], starts: Sequence[int], indexes: Sequence[int], lengths: range
) -> dict[tuple[Any, ...], int]:
    columns: dict[tuple[Any, ...], int] = {}
    number = 0
    for length, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for at in range(start, end, length):
            if length in lengths:
                columns[tuple(pool[at : at + length])] = indexes[number]
            number += 1
    return columns


def _ngrams(items: list[Any], lengths: range, skips: int) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for length in lengths:
        for step in range(1, skips + 2 if length > 1 else 2):
            reach = step * (length - 1)
            found.update(tuple(items[i : i + reach + 1 : step]) for i in range(len(items) - reach))
    return found
