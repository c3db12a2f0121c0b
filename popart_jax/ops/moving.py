"""Texts in operators that only move elements: the operator moves indices, which then select the texts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .arrays import is_text


def moves_texts(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Extend a translation that moves elements (and fills with zeros) to texts (filled with '')."""

    @functools.wraps(fn)
    def call(*operands: Any, **attributes: Any) -> Any:
        if not any(is_text(x) for x in operands):
            return fn(*operands, **attributes)
        texts: list[Any] = [""]
        places: list[Any] = []
        for x in operands:
            if is_text(x):
                places.append(np.arange(len(texts), len(texts) + x.size, dtype=np.int32).reshape(x.shape))
                texts.extend(x.reshape(-1).tolist())
            else:
                places.append(x)
        held = np.asarray(texts, object)

        def texts_at(at: Any) -> np.ndarray:
            return held[np.asarray(at)]

        return jax.tree.map(texts_at, fn(*places, **attributes))

    return call
