"""Checked calls bind positional arguments as Python does, and try choices in the order of each function."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from popart_jax._calls import checked


@checked
def whole_first(x: int | float) -> Any:
    return x


@checked
def fraction_first(x: float | int) -> Any:
    return x


@checked
def several(a: int, b: float = 2, /, c: list[int] | None = None) -> Any:
    return a, b, c


def test_choices_are_tried_in_the_order_of_the_function() -> None:
    """The two types are equal in Python."""
    for _ in range(2):
        assert type(whole_first(np.int64(1))) is int
        assert type(fraction_first(np.int64(1))) is float


def test_positional_arguments_are_converted_and_completed() -> None:
    assert several(np.int64(1)) == (1, 2, None)
    assert several(1, 3, (4, 5)) == (1, 3.0, [4, 5])
    assert several(1, c=[4]) == (1, 2, [4])
    assert type(several(1, 3)[1]) is float


@pytest.mark.parametrize(
    ("given", "why"), [((), "missing"), ((1, 2, [3], 4), "too many"), ((1.5,), "expected an int"), ((1, "2"), "float")]
)
def test_others_are_refused(given: tuple[Any, ...], why: str) -> None:
    with pytest.raises(TypeError, match="incompatible function arguments") as caught:
        several(*given)
    assert re.search(why, "\n".join(caught.value.__notes__))
