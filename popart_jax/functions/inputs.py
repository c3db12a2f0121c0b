"""Inputs of a function: checks of their names, and conversion to the declared types."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from ..buffers import truths
from ..errors import popart_exception
from ..lowering.control.values import staged
from ..ops.cast import HOST_ONLY, convert
from .feeds import check_fed
from .reduced import is_half


def as_mapping(graph: ir.Graph, inputs: Any) -> Mapping[str, Any]:
    """Inputs by name; a single array is the input of a model with one input.

    Raises popart_exception for a single array for a model of several inputs.
    """
    if isinstance(inputs, Mapping):
        return cast("Mapping[str, Any]", inputs)
    needed = needed_inputs(graph)
    if len(needed) != 1:
        raise popart_exception(
            f"The model takes {len(needed)} inputs {needed}, got one {type(inputs).__name__}.\n"
            "  fix: pass a dictionary with these names."
        )
    return {needed[0]: inputs}


def needed_inputs(graph: ir.Graph) -> list[str]:
    """Names of the inputs that have no initializer."""
    return [v.name for v in graph.inputs if v.name and v.name not in graph.initializers]


def check_inputs(graph: ir.Graph, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Fed values as arrays of the declared types; initializers may be fed as well.

    Raises popart_exception that names missing and unknown inputs, or one whose type can't be the declared one.
    """
    declared = {v.name: v for v in graph.inputs if v.name}
    needed = needed_inputs(graph)
    missing = [n for n in needed if n not in inputs]
    unknown = [n for n in inputs if n not in declared and n not in graph.initializers]
    if missing or unknown:
        raise popart_exception(
            f"Inputs do not match the model: missing {missing}, unknown {unknown}; it takes {needed}.\n"
            "  fix: pass a dictionary with exactly these names."
        )
    return {n: as_declared(declared.get(n), x) for n, x in inputs.items()}


def as_declared(value: ir.Value | None, x: Any) -> Any:
    """A fed value as an array of the declared type, for translations; texts and types that XLA lacks stay NumPy.

    So do lists of whole numbers and single truth values that a traced function closes over: axes, sizes and conditions
    among them stay known. Raises popart_exception for another rank or size than declared, or elements that do not fit
    the declared type.
    """
    tensor = value is not None and isinstance(value.type, ir.TensorType)
    if isinstance(x, dict) or (not tensor and (isinstance(x, list) or x is None)):  # ai.onnx.ml has maps as inputs
        return cast("Any", x)
    if value is not None and _is_sequence(value.type):
        if isinstance(x, tuple):
            return list(cast("tuple[Any, ...]", x))
        raise popart_exception(f"Input '{value.name}' is declared as a sequence; feed a list, not {type(x).__name__}.")
    array = x if isinstance(x, jax.Array) else _array(value, x)
    if value is not None:
        check_fed(value, array)
    if array.dtype.kind in "OUS" or array.dtype in HOST_ONLY:
        return array
    want = np.dtype(value.dtype.numpy() if value is not None and value.dtype is not None else array.dtype)
    if array.dtype != want and array.dtype.kind == want.kind == "V":  # NumPy can't cast between small types
        array = array.astype(np.float32)
    if want in HOST_ONLY:
        return convert(array, want)
    small = array.ndim < 2 and (want.kind in "iu" or (want.kind == "b" and array.size == 1))
    known = isinstance(array, np.ndarray) and small and staged()
    return array.astype(want) if known else jnp.asarray(array, want)


class Ready:
    """Prepares inputs for a compiled program, which takes only JAX arrays and can't check their values.

    `precision` returns the scope in which the types of `graph`, which is computed, are kept.
    """

    def __init__(self, graph: ir.Graph, precision: Callable[[], contextlib.AbstractContextManager[Any]]) -> None:
        self._graph, self._precision = graph, precision
        declared = ((v.name, v.dtype) for v in graph.inputs if isinstance(v.type, ir.TensorType))
        self._types = {n: kind.numpy() for n, kind in declared if kind not in (None, ir.DataType.STRING, _NONE)}

    def __call__(self, inputs: Any) -> Any:
        """The inputs, with those converted that are not arrays of the declared types.

        Raises popart_exception for inputs that `as_mapping` or `check_inputs` refuses, and texts.
        """
        if isinstance(inputs, jax.Array):
            return inputs
        given = dict(as_mapping(self._graph, inputs))
        if all(self._is_fine(name, x) for name, x in given.items()):
            return given
        with self._precision():
            ready = check_inputs(self._graph, given)
        fed = {n: given[n] if self._is_fine(n, given[n]) else x for n, x in ready.items()}
        texts = [n for n, x in fed.items() if isinstance(x, np.ndarray) and x.dtype.kind in "OUS"]
        if texts:
            raise popart_exception(
                f"A compiled model takes numbers, not texts: {texts}; call the function from to_jax itself."
            )
        return fed

    def _is_fine(self, name: str, x: Any) -> bool:
        if type(x) is not np.ndarray:
            return isinstance(x, jax.Array)
        declared = self._types.get(name)
        return (x.dtype == declared and truths(x) is x) or (declared == np.float32 and is_half(x))


_NONE = ir.DataType.UNDEFINED


def _is_sequence(kind: ir.TypeProtocol | None) -> bool:
    return isinstance(kind.elem_type if isinstance(kind, ir.OptionalType) else kind, ir.SequenceType)


def _array(value: ir.Value | None, x: Any) -> np.ndarray:
    try:
        array = truths(np.asarray(x))
        return array.astype(object) if array.dtype.kind == "T" else array
    except Exception as err:  # rows of several lengths; conversions of objects raise errors of any class
        name = "" if value is None else value.name
        raise popart_exception(f"Input '{name}' is a {type(x).__name__} that makes no array: {err}.") from err
