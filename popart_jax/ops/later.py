"""Texts inside a trace: JAX's arrays hold numbers, so a traced program has a mark in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import jax
import numpy as np

from .._compat.jax import Tracer
from ..errors import popart_exception


class LaterTexts:
    """Stands for texts, or for what follows from them, that only a call outside of `jit` can give.

    It is a tree without leaves, so that transformations hand it on.
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        raise popart_exception(
            "These are texts, and a compiled program has numbers only: call the function from to_jax itself, outside "
            "jit, for texts; the numbers beside them (such as scores) are there in both."
        )

    def __repr__(self) -> str:
        return "<texts: call the function itself, outside jit>"


LATER = LaterTexts()


def _apart(_: LaterTexts) -> tuple[tuple[()], None]:
    return (), None


def _again(_aux: None, _leaves: object) -> LaterTexts:
    return LATER


jax.tree_util.register_pytree_node(LaterTexts, _apart, _again)


def named_by(names: Sequence[str] | np.ndarray, index: Any) -> Any:
    """Texts by position; `LATER` where the position is traced."""
    return LATER if isinstance(index, Tracer) else np.asarray(names, object)[np.asarray(index)]
