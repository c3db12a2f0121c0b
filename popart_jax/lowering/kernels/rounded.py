"""A product that no compiler joins with a sum; `passes.rounded_products` inserts it."""

from __future__ import annotations

from ...ops.arrays import Array, is_float
from ...ops.operator import ELEMENTWISE, operator
from ...ops.primitives import rounded
from ...ops.registry import lowers
from . import DOMAIN

operator("Rounded", ELEMENTWISE)


@lowers("Rounded", domain=DOMAIN)
def round_product(x: Array, /) -> Array:
    """The operand, rounded to its own type."""
    return rounded(x) if is_float(x) else x
