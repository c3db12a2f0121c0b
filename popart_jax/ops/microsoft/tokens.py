"""Texts and token sequences: tokenizer, hashing, n-grams, alignment paths. Results of open length are host values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import popart_exception
from ..arrays import Array, is_text
from ..registry import Static, lowers
from . import DOMAIN

_MARKS = ("\x02", "\x03")


@lowers("Tokenizer", domain=DOMAIN)
def tokenizer(
    x: Array, /, *, mark: str, mincharnum: int, pad_value: int, separators: Sequence[str] | None = None,
    tokenexp: str | None = None,
) -> np.ndarray:  # fmt: skip
    """Every text as a row of tokens, padded to the longest row."""
    if (separators is None) == (tokenexp is None):
        raise popart_exception("Tokenizer needs either `separators` or `tokenexp`.")
    if x.ndim not in (1, 2):
        raise popart_exception(f"Tokenizer takes texts of shape [C] or [N, C], not {list(x.shape)}.")
    split = _splitter(tuple(separators or ()), tokenexp, mincharnum)
    rows = [split(text) for text in np.asarray(x).reshape(-1).tolist()]
    rows = [[_MARKS[0], *row, _MARKS[1]] if mark else row for row in rows]
    longest = max(map(len, rows), default=0)
    padded = [row + [pad_value] * (longest - len(row)) for row in rows]
    return np.asarray(padded, object).reshape(*x.shape, longest)


def _nothing(text: str) -> list[str]:
    return []


def _splitter(separators: tuple[str, ...], expression: str | None, least: int) -> Callable[[str], list[str]]:
    if expression == "." or separators == ("",):
        return list if least <= 1 else _nothing
    if expression is not None:
        tokens = re.compile(expression)

        def found(text: str) -> list[str]:
            return [m.group() for m in tokens.finditer(text) if len(m.group()) >= max(least, 1)]

        return found
    breaks = [re.compile(s) for s in separators]

    def split(text: str) -> list[str]:
        parts = [text]
        for one in breaks:
            parts = [piece for part in parts for piece in _cut(one, part)]
        return [p for p in parts if len(p) >= max(least, 1)]

    return split


def _cut(at: re.Pattern[str], text: str) -> list[str]:
    ends = [(m.start(), m.end()) for m in at.finditer(text)]
    starts = [0, *(end for _, end in ends)]
    return [text[a:b] for a, b in zip(starts, [*(start for start, _ in ends), len(text)], strict=True)]


def _rotl(x: Any, by: int) -> Any:
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))


def _mixed(h: Any, word: Any, last: bool = False) -> Any:
    """One round of MurmurHash3 (x86, 32 bits); the last, incomplete word is not mixed further."""
    h = h ^ _rotl(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return h if last else _rotl(h, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(h: Any, length: int) -> Any:
    h = h ^ np.uint32(length)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def _text_hash(text: str, seed: int) -> np.uint32:
    data = text.encode()
    whole = len(data) // 4 * 4
    h = np.uint32(seed)
    with np.errstate(over="ignore"):
        for word in np.frombuffer(data[:whole], "<u4"):
            h = _mixed(h, word)
        if whole < len(data):
            h = _mixed(h, np.uint32(int.from_bytes(data[whole:], "little")), last=True)
        return _finished(h, len(data))


@lowers("MurmurHash3", domain=DOMAIN)
def murmur_hash_3(x: Array, /, *, positive: int = 1, seed: int = 0) -> np.ndarray:
    """32-bit hash of every element's bytes."""
    kind = np.uint32 if positive else np.int32
    if is_text(x):
        hashes = [_text_hash(t, seed) for t in np.asarray(x).reshape(-1).tolist()]
        return np.asarray(hashes, np.uint32).astype(kind).reshape(x.shape)
    words = jax.lax.bitcast_convert_type(jnp.asarray(x), jnp.uint32)
    words = words[..., None] if words.ndim == x.ndim else words
    h = jnp.full(x.shape, seed, jnp.uint32)
    for i in range(words.shape[-1]):
        h = _mixed(h, words[..., i])
    return _finished(h, 4 * words.shape[-1]).astype(kind)


@lowers("NGramRepeatBlock", domain=DOMAIN)
def ngram_repeat_block(ids: Array, scores: Array, /, *, ngram_size: int) -> jax.Array:
    """-inf for tokens that would repeat an n-gram of their row."""
    length, n = ids.shape[1], ngram_size
    if length < n:
        return jnp.asarray(scores)
    starts = np.arange(length - n + 1)
    windows = ids[:, starts[:, None] + np.arange(n - 1)]
    repeated = (windows == ids[:, None, length - n + 1 :]).all(-1)
    rows = jnp.arange(ids.shape[0])[:, None]
    lowest = jnp.where(repeated, -jnp.inf, jnp.inf).astype(scores.dtype)
    return jnp.asarray(scores).at[rows, ids[:, n - 1 :]].min(lowest)


@lowers("BifurcationDetector", domain=DOMAIN)
def bifurcation_detector(
    source: Static, current: Static, previous: Static, predicted: Static = None, /, *, max_ngram_size: int = 3,
    min_ngram_size: int = 1,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Predicted tokens up to the first that differs from the source, and where the last n-gram occurs in the source."""
    tokens, start = current, int(np.reshape(previous, ()))
    if predicted is not None:
        if len(predicted) != len(source) + 1 - start:
            raise popart_exception(
                f"BifurcationDetector: {len(predicted)} predicted tokens; expected {len(source) + 1 - start}."
            )
        differs = np.append(predicted[:-1] != source[start:], True)
        tokens = np.concatenate([current, predicted[: int(differs.argmax()) + 1]])
    return tokens, np.asarray([_suffix(source, tokens, min_ngram_size, max_ngram_size)], np.int64)


def _suffix(source: np.ndarray, tokens: np.ndarray, least: int, most: int) -> int:
    """Position behind the only occurrence of the last n-gram, for the smallest n with just one; -1 if there is none."""
    for n in range(least, most + 1):
        if n > len(tokens):
            return -1
        found = [i for i in range(len(source) - n + 1) if (source[i : i + n] == tokens[-n:]).all()]
        if not found:
            return -1
        if len(found) == 1 or found[0] + n >= len(source):
            return found[0] + n
    return -1


@lowers("Unique", domain=DOMAIN)
def unique(x: Static, /) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values in order of first occurrence, the index of every element among them, and counts."""
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return values[order], rank[inverse].astype(np.int64), counts[order].astype(np.int64)


@lowers("DynamicTimeWarping", domain=DOMAIN)
def dynamic_time_warping(cost: Static, /) -> np.ndarray:
    """The cheapest path through a matrix of costs, as rows of two lists of indices."""
    matrix = cost.reshape(cost.shape[-2:])
    rows, columns = matrix.shape
    total = np.full((rows + 1, columns + 1), np.inf, matrix.dtype)
    step = np.full((rows + 1, columns + 1), -1, np.int8)
    total[0, 0], step[0, 1:], step[1:, 0] = 0, 2, 1
    for j in range(1, columns + 1):
        for i in range(1, rows + 1):
            both, down, right = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
            step[i, j] = 0 if both < down and both < right else 1 if down < both and down < right else 2
            total[i, j] = matrix[i - 1, j - 1] + (both, down, right)[step[i, j]]
    path, (i, j) = [], (rows, columns)
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        i, j = i - (step[i, j] != 2), j - (step[i, j] != 1)
    return np.asarray(path[::-1], np.int32).T


@lowers("WordConvEmbedding", domain=DOMAIN)
def word_conv_embedding(
    words: Array, w: Array, b: Array, table: Array, /, *, char_embedding_size: int = 0, conv_window_size: int = 0,
    embedding_size: int = 0,
) -> jax.Array:  # fmt: skip
    """Characters to vectors, a convolution over them, tanh, and the maximum over the places inside the word."""
    window = w.shape[2]
    letters = jnp.asarray(table)[words]
    starts = np.arange(words.shape[-1] - window + 1)
    windows = letters[..., starts[:, None] + np.arange(window), :]
    response = jnp.tanh(jnp.einsum("...pwc,fwc->...pf", windows, w[:, 0]) + b)
    length = (jnp.asarray(words) != 0).sum(-1, keepdims=True)
    inside = (starts < jnp.maximum(length - window + 1, 1)) & (length > 0)
    return jnp.where(length > 0, jnp.where(inside[..., None], response, -jnp.inf).max(-2), 0)
