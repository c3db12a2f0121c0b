"""Limits on the sizes of results: checked before a node runs where they may be large, and after it in any case."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np
import onnx_ir as ir

from ..._compat.jax import Tracer
from ..._process.memory import memory_free
from ...errors import popart_exception
from ...limits import limits
from ...ops.arrays import Array, as_results
from ...ops.symbols import holds_symbols, is_symbol
from ..resolve import label

_LARGE_NUMBER = 1 << 16  # a size among attributes or constants that is worth a look
_LARGE_OPERANDS = 1 << 20  # elements
_SHAPE_RANK = 1  # operands that hold sizes are vectors
_MOST_SIZES = 64


def may_be_large(operands: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a node has large operands, or a large whole number among attributes and constants."""
    count = 0
    for x in operands:
        if isinstance(x, (jax.Array, np.ndarray)) and not isinstance(x, Tracer) and not holds_symbols(x):
            array = cast("Array", x)
            count += array.size
            if _holds_sizes(array) and int(np.max(array)) >= _LARGE_NUMBER:
                return True
    return count >= _LARGE_OPERANDS or any(_is_large(v) for v in kwargs.values())


def _holds_sizes(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.ndim <= _SHAPE_RANK and x.dtype.kind in "iu" and 0 < x.size < _MOST_SIZES


def _is_large(value: Any) -> bool:
    if isinstance(value, tuple):
        values = cast("tuple[Any, ...]", value)
        return len(values) < _MOST_SIZES and any(map(_is_large, values))
    return isinstance(value, int) and value >= _LARGE_NUMBER


def check_before(
    node: ir.Node,
    fn: Callable[..., Any],
    operands: Sequence[Any],
    kwargs: Mapping[str, Any],
    is_static: Callable[[int], bool],
) -> None:
    """Infer the shapes of the results without computing them, and raise as `limits` for those beyond the limit.

    Other errors are raised when the node runs.
    """
    moving = [i for i, x in enumerate(operands) if not is_static(i) and _is_plain(x)]

    def of(*values: Any) -> Any:
        given = dict(zip(moving, values, strict=True))
        return fn(*(given.get(i, x) for i, x in enumerate(operands)), **kwargs)

    try:
        results = jax.eval_shape(of, *(jax.ShapeDtypeStruct(np.shape(operands[i]), operands[i].dtype) for i in moving))
    except Exception as err:
        if "limits.memory" in str(err):
            raise
        return
    at_once = not any(isinstance(x, Tracer) for x in operands)
    most = min(limits.memory, memory_free() // 4) if at_once else limits.memory
    check_results(node, as_results(results), most)


_MUCH = 1 << 25
"""Bytes of a result from which shapes of the following nodes are inferred ahead."""


def are_large(values: Sequence[Any]) -> bool:
    """Whether arrays outside a trace are so large that the nodes after them are worth checking ahead."""
    return sum(map(_bytes, values)) >= _MUCH


def has_grown(node: ir.Node, env: Mapping[ir.Value, Any]) -> bool:
    """Whether a node that ran outside a trace produced much larger results than its operands."""
    made = sum(_bytes(env.get(v)) for v in node.outputs)
    return made >= _MUCH and made >= 2 * max((_bytes(env.get(v)) for v in node.inputs if v is not None), default=0)


def _bytes(x: Any) -> int:
    return x.nbytes if isinstance(x, (jax.Array, np.ndarray)) and not isinstance(x, Tracer) else 0


def look_ahead(run: Callable[[Mapping[ir.Value, Any]], None], env: Mapping[ir.Value, Any]) -> None:
    """Infer shapes of the nodes to come and refuse those beyond the limit, before time and memory are spent.

    `run` traces the remaining nodes, given values of some tensors; `env` are the values so far. Raises popart_exception
    as `limits` does; other errors are raised when the nodes run.
    """
    arrays = {v: x for v, x in env.items() if _bytes(x) and _is_plain(x)}
    moving = [v for v, x in arrays.items() if x.size > _MOST_SIZES or isinstance(x, jax.Array)]
    specs = [jax.ShapeDtypeStruct(env[v].shape, env[v].dtype) for v in moving]

    def of(given: Sequence[Any]) -> Any:
        return run(dict(zip(moving, given, strict=True)))

    try:
        jax.eval_shape(of, specs)
    except Exception as err:
        if "limits.memory" in str(err):
            raise


def _is_plain(x: Any) -> bool:
    return isinstance(x, (jax.Array, np.ndarray, np.generic)) and x.dtype.kind in "biufcV"


def check_results(node: ir.Node, results: Sequence[Any], most: int | None = None) -> None:
    """Raise as `limits` for results beyond the limit (or `most` bytes)."""
    most = limits.memory if most is None else most
    for result in results:
        shape = getattr(result, "shape", ())
        dtype = getattr(result, "dtype", None)
        if (
            len(shape)
            and dtype is not None
            and not any(map(is_symbol, shape))
            and (math.prod(shape) * dtype.itemsize > most or min(shape) < 0)
        ):
            what = f"A result of node '{label(node)}' ({node.op_type})"
            if min(shape) < 0:
                raise popart_exception(f"{what} would have the shape {list(shape)}.")
            limits.check_size(shape, dtype.itemsize, what, most)
