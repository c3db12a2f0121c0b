"""Checks of an array that is fed to a graph input: declared shape, and elements that fit the declared type."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx_ir as ir

from .._compat.jax import Tracer
from ..errors import popart_exception
from .given import check_held

_TEXT = "OUS"


def check_fed(value: ir.Value, array: Any) -> None:
    """Refuse an array that does not match the declaration of a graph input.

    Another width of numbers is accepted (NumPy defaults to float64 and int64), a change of kind or value is not. Raises
    popart_exception for another rank, another size of a fixed dimension, elements that do not fit the declared type, or
    none, as the array was donated.
    """
    check_held(f"Input '{value.name}'", array)
    _check_shape(value, array.shape)
    if value.dtype is not None and isinstance(value.type, (ir.TensorType, type(None))):
        _check_type(value, array)


def _check_shape(value: ir.Value, given: tuple[int, ...]) -> None:
    if value.shape is None or isinstance(value.type, (ir.SequenceType, ir.OptionalType)):
        return
    declared = [d if isinstance(d, int) and d >= 0 else None for d in value.shape]
    fits = len(declared) == len(given) and all(d in (None, n) for d, n in zip(declared, given, strict=True))
    if not fits:
        shown = ", ".join(str(d if isinstance(d, int) else d.value or "?") for d in value.shape)
        raise popart_exception(
            f"Input '{value.name}' has shape {list(given)}; the model declares [{shown}].\n"
            f"  fix: feed an array of that shape, or {_other_way(declared, given)}."
        )


def _other_way(declared: list[int | None], given: tuple[int, ...]) -> str:
    """How an array of another shape can be computed: a file with a fixed batch takes others in groups of that size."""
    symbolic = "export the model with a symbolic dimension there"
    first = declared[0] if declared and len(declared) == len(given) else None
    others = all(d in (None, n) for d, n in zip(declared[1:], given[1:], strict=False))
    if first is None or first == given[0] or not others:
        return symbolic
    return f"call the function for {first} at a time under jax.vmap (docs/tutorials/onnx.md has how), or {symbolic}"


def _check_type(value: ir.Value, array: Any) -> None:
    assert value.dtype is not None
    want = np.dtype(object) if value.dtype is ir.DataType.STRING else value.dtype.numpy()
    have = np.dtype(array.dtype)
    if _fits(have, np.dtype(want), array):
        return
    raise popart_exception(
        f"Input '{value.name}' has elements of type {have}; the model declares {value.dtype}, which can't hold them.\n"
        f"  fix: convert the array yourself, for example with astype."
    )


def _fits(have: np.dtype, want: np.dtype, array: Any) -> bool:
    texts = (have.kind in _TEXT, want.kind in _TEXT)
    if have == want or all(texts):
        return True
    if any(texts) or have.kind in "Mm" or have.type is np.void:  # dates, records
        return False
    if want == np.bool_ or _rank(have) > _rank(want):
        return False
    if _rank(have) == _rank(want) == 1 and not isinstance(array, Tracer):
        limits = ml_dtypes.iinfo(want)
        numbers = np.asarray(array)
        return not numbers.size or int(limits.min) <= int(numbers.min()) <= int(numbers.max()) <= int(limits.max)
    return True


def _rank(dtype: np.dtype) -> int:
    """Order of booleans, integers, reals and complex numbers: a type can hold those of the ranks below."""
    if dtype == np.bool_:
        return 0
    if dtype.kind == "c":
        return 3
    return 2 if jnp.issubdtype(dtype, np.floating) else 1
