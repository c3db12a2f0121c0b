"""Printing in the order of the program."""

from __future__ import annotations

import jax.numpy as jnp

from ..arrays import Array
from ..graphcore.printing import Format, show
from ..registry import ProgramState, lowers
from . import DOMAIN

_ORDER = "print:order"


@lowers("PrintTensor", domain=DOMAIN)
def print_tensor(
    x: Array, /, *, title: str, summariseThreshold: int, edgeItems: int, maxLineWidth: int, digits: int,
    floatFormat: int, separator: str, openBracket: str, closeBracket: str, program: ProgramState,
) -> Array:  # fmt: skip
    """The identity; prints the operand after all earlier output of the program."""
    layout = Format(summariseThreshold, edgeItems, maxLineWidth, digits, floatFormat, separator,
                    (openBracket, closeBracket))  # fmt: skip
    before = program.state.get(_ORDER)
    value, done = show(title, layout, jnp.asarray(x), *(() if before is None else (before,)))
    if before is not None:
        program.state[_ORDER] = done
    return value
