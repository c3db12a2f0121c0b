"""All element types."""

from __future__ import annotations

from .. import dtypes

__all__ = ["get_all_dtypes", "get_all_int_dtypes"]


def get_all_dtypes() -> set[dtypes.dtype]:
    """Every element type."""
    return set(dtypes.dtype._all)


def get_all_int_dtypes(include_signed: bool = True, include_unsigned: bool = True) -> set[dtypes.dtype]:
    """Types of whole numbers, with and without sign."""
    return {d for d in dtypes.dtype._all if d.is_int and (include_signed if d.is_signed else include_unsigned)}
