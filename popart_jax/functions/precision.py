"""64-bit types under JAX's 32-bit default: a scope that keeps them, and checks for arguments that `jit` has cut."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

import jax
import numpy as np
import onnx_ir as ir

from .._compat.jax import Tracer, enable_x64
from ..errors import popart_exception
from ..model.checks.structure import every_node
from ..ops import Trait, facts
from .choice import schema_of

WIDE = frozenset({ir.DataType.INT64, ir.DataType.UINT64, ir.DataType.DOUBLE, ir.DataType.COMPLEX128})

_CUT = {
    ir.DataType.INT64: np.int32,
    ir.DataType.UINT64: np.uint32,
    ir.DataType.DOUBLE: np.float32,
    ir.DataType.COMPLEX128: np.complex64,
}


def precision(wide: bool) -> contextlib.AbstractContextManager[Any]:
    """Scope in which 64-bit types are kept, if `wide`."""
    return enable_x64() if wide else contextlib.nullcontext()


def in_precision(wide: bool, fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` called inside that scope; `fn` itself if not `wide`."""

    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        with enable_x64():
            return fn(*args, **kwargs)

    return run if wide else fn


def uses_wide_types(graph: ir.Graph) -> bool:
    """Whether a 64-bit tensor reaches the device: an input, an output, or a value of a 64-bit type."""
    values = [*graph.inputs, *graph.outputs, *graph.initializers.values()]
    if any(v.dtype in WIDE for v in values):
        return True
    return any(_makes_wide(node) for node in every_node(graph))


def _makes_wide(node: ir.Node) -> bool:
    return facts(node.op_type).has(Trait.WIDE_RESULT) or any(v.dtype in WIDE for v in node.outputs)


def check_not_cut(graph: ir.Graph, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    """Refuse inputs and parameters that a caller's `jit` has cut to 32 bits where that changes the results.

    Outside the scope, JAX turns 64-bit arguments of a jitted function into 32-bit ones before this function sees them.
    Numbers that only select (indices, masks) stay correct, and there is a warning. Numbers that reach a 64-bit output,
    or are double precision, may not. Raises popart_exception for those.
    """
    if jax.dtypes.canonicalize_dtype(np.int64) == np.int64:
        return
    given = [(v, inputs.get(v.name or "")) for v in graph.inputs]
    given += [(graph.initializers[n], x) for n, x in params.items() if n in graph.initializers]
    cut = [v for v, x in given if v.dtype in WIDE and _is_cut(v, x)]
    if not cut:
        return
    lost = [
        v
        for v in cut
        if v.dtype in (ir.DataType.DOUBLE, ir.DataType.COMPLEX128) or _reaches_wide_output(v, graph.opset_imports)
    ]
    shown = ", ".join(f"'{v.name}' ({v.dtype})" for v in lost or cut)
    way = "fn.jit(params, inputs), fn.exactly(your_function), or jax.enable_x64() around the call"
    if lost:
        raise popart_exception(
            f"{shown} came as 32-bit numbers: jax.jit cuts 64-bit arguments before the model sees them, and "
            f"results would be wrong without a word.\n  fix: use {way}."
        )
    warnings.warn(
        f"{shown} came as 32-bit numbers: jax.jit cuts 64-bit arguments. Values beyond 2**31 would be wrong; "
        f"{way} keeps them exact.",
        UserWarning,
        stacklevel=4,
    )


def _is_cut(value: ir.Value, x: Any) -> bool:
    return isinstance(x, Tracer) and value.dtype is not None and x.dtype == _CUT.get(value.dtype)


def _reaches_wide_output(value: ir.Value, opsets: Mapping[str, int]) -> bool:
    """Whether the numbers themselves may reach a 64-bit output; indices and masks only select others."""
    seen: set[ir.Value] = set()
    pending: list[ir.Value] = [value]
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        if current.is_graph_output() and current.dtype in (*WIDE, None):
            return True
        pending.extend(_handed_on(current, opsets))
    return False


def _handed_on(value: ir.Value, opsets: Mapping[str, int]) -> Iterable[ir.Value]:
    """Results that may contain the numbers themselves: those that ONNX declares with the operand's type."""
    for use in value.uses():
        schema = schema_of(use.node, opsets)
        if schema is None:
            yield from use.node.outputs
        elif schema.inputs:
            kind = schema.inputs[min(use.idx, len(schema.inputs) - 1)].type_str
            alike = [o.type_str == kind and "(" not in kind for o in schema.outputs]
            last = len(alike) - 1
            yield from (v for i, v in enumerate(use.node.outputs) if alike and alike[min(i, last)])
