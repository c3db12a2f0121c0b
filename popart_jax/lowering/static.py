"""Values known while tracing: constant folding with NumPy, and recovery of values that must be constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from .._compat.jax import Tracer, outside_traces
from ..errors import NeedsConstantError, popart_exception
from ..model.op_names import describe, identifier
from ..ops import symbols
from ..ops.arrays import dtype_name
from ..ops.operator import NEEDS_VALUE
from ..ops.registry import Lowering, facts
from .attributes import array
from .dynamic_sizes.bounds import how, in_want_of_bounds
from .resolve import Step, find, label, needs


class Walk(Protocol):
    """The part of the interpreter's `Walk` that this module uses."""

    @property
    def settings(self) -> Any:
        """Settings of the whole walk."""
        ...

    @property
    def env(self) -> dict[ir.Value, Any]:
        """Values computed so far in this graph."""
        ...

    @property
    def padded(self) -> dict[ir.Value, Any]:
        """Marks of values whose size depends on data."""
        ...

    @property
    def outer(self) -> Walk | None:
        """The walk of the enclosing graph."""
        ...

    def read(self, value: ir.Value) -> Any:
        """Value computed here or in an enclosing graph."""
        ...

    def alone(self) -> Walk:
        """A walk with the same settings that has no values."""
        ...

    def run(self, step: Step) -> None:
        """Run one node and store its outputs."""
        ...


def is_static(x: Any) -> bool:
    """Whether a value is NumPy (or absent, or a sequence of such): known while tracing."""
    if isinstance(x, list):
        return all(is_static(e) for e in cast("list[Any]", x))
    return x is None or isinstance(x, (np.ndarray, np.generic, bool, int, float, str))


def fold(fn: Callable[..., Any], operands: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run a translation on NumPy operands, immediately and outside the trace; results are NumPy."""
    while operands and operands[-1] is None:
        operands = operands[:-1]
    with outside_traces():
        return jax.tree.map(_to_numpy, fn(*operands, **kwargs))


def refuse_wide(node: ir.Node, operands: list[Any], is_known: Callable[[int], bool]) -> None:
    """Raise popart_exception for 64-bit constants that do not fit in 32 bits, in which sessions store them."""
    for i, x in enumerate(operands):
        if not is_known(i):
            value = node.inputs[i]
            check_width(x, value.name if value is not None else i, f"{node.op_type} can't use them")


def check_width(x: Any, name: Any, what: str) -> None:
    """Raise popart_exception for 64-bit integers, known while tracing, that don't fit in the 32 bits of the device.

    `what` is what can't be done then.
    """
    if not isinstance(x, (np.ndarray, np.generic)) or x.dtype not in _NARROW or not x.size:
        return
    limits = np.iinfo(_NARROW[x.dtype])
    if x.min() < limits.min or x.max() > limits.max:
        raise popart_exception(
            f"Constant '{name}' of type {x.dtype} holds values beyond {limits.dtype}, in which the device keeps it; "
            f"{what}."
        )


NO_DATA = "[Tensor::getDataViaGraphTraversal] Could not work out tensor data for {tensor}."
_NARROW: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.int64): np.dtype(np.int32),
    np.dtype(np.uint64): np.dtype(np.uint32),
}


def _to_numpy(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, jax.Array) and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def require(walk: Walk, node: ir.Node, position: int, row: Lowering) -> Any:
    """The value of a static input that is a JAX array.

    Concrete arrays (outside a trace) are copied; a traced one is recomputed from the constants behind it. Raises
    NeedsConstantError, which names the chain of tensors, where the value depends on values known only at run time.
    """
    value = node.inputs[position]
    assert value is not None
    found = walk.read(value)
    if not isinstance(found, Tracer):
        return np.asarray(found)
    known, chain = _fold_back(walk, value)
    if known is None:
        words = _popart_words(node, position, walk) if walk.settings.popart else ""
        way = f"Or {how(in_want_of_bounds(node))}." if row.takes_bound else ""
        raise NeedsConstantError(label(node), node.op_type, position, value.name or "", chain, words, way)
    return known


def wants_constant(step: Step, position: int, walk: Walk) -> bool:
    """Whether an input must be known while tracing: because of the translation, or because PopART is stricter."""
    strict = walk.settings.popart and position in facts(step.node.op_type).parameters
    return strict or step.lowering.is_static(position)


def unreadable(node: ir.Node, operands: Sequence[Any], walk: Walk) -> str:
    """PopART's error about a constant that is no valid shape: not integers, or not a vector; '' if there is none."""
    row = facts(node.op_type)
    if row.not_constant != NEEDS_VALUE:
        return ""
    for position in row.parameters:
        x = operands[position] if position < len(operands) else None
        value = node.inputs[position] if x is not None else None
        if x is None or value is None or (not isinstance(x, np.ndarray) and value.const_value is None):
            continue
        name = value.name
        if x.dtype not in (np.int32, np.int64):
            reason = f"the tensor `{name}` is not the correct type, it is {dtype_name(x)}"
            return _popart_words(node, position, walk, reason)
        if x.ndim > 1:
            return _popart_words(node, position, walk, f"the rank of tensor `{name}` is greater than 1")
    return ""


def _popart_words(node: ir.Node, position: int, walk: Walk, reason: str = NO_DATA) -> str:
    """PopART's error about an input whose value it can't read."""
    row, tensor, first = facts(node.op_type), node.inputs[position], node.inputs[0]
    operand, opset = row.parameters.get(position, position), walk.settings.opsets.get("", 11)
    return row.not_constant.format(
        op=identifier(node, opset),
        Op=describe(node, opset),
        name=node.name or "",
        operand=operand,
        aim="slicing direction" if operand == "steps" else "output shape",
        tensor=tensor.name if tensor else "",
        first=first.name if first else "",
        reason=reason.format(tensor=tensor.name if tensor else ""),
    )


def from_constants(walk: Walk, value: ir.Value) -> Any:
    """A value recomputed from the data of initializers and static shapes, as NumPy; None where that is impossible."""
    found = _fold_back(walk, value)[0]
    return found if is_static(found) else None


def _fold_back(walk: Walk, value: ir.Value) -> tuple[Any, list[str]]:
    """Evaluate `value` from the data of initializers, or return None and the producers that prevent it."""
    fresh = walk.alone()
    pending = [value]
    chain: list[str] = []
    while pending:
        top = pending[-1]
        if top in fresh.env:
            pending.pop()
            continue
        if top.const_value is not None:
            fresh.env[top] = array(top.const_value)
            continue
        seen = lookup(walk, top)
        if seen is not None and is_static(seen):
            fresh.env[top] = seen
            continue
        producer = top.producer()
        only_shaped: ir.Value | None = None
        chain.append(top.name or "")
        if producer is None:
            return None, chain[::-1]
        if producer.op_type in {"Shape", "Size"} and producer.inputs[0] is not None:
            shaped = lookup(walk, producer.inputs[0])
            if shaped is not None and any(map(symbols.is_symbol, np.shape(shaped))):
                return None, chain[::-1]
            if shaped is not None and producer.inputs[0] not in fresh.env:
                only_shaped = producer.inputs[0]
                fresh.env[only_shaped] = np.broadcast_to(np.zeros((), np.float32), np.shape(shaped))
        missing = [v for v in needs(producer) if v not in fresh.env]
        if missing:
            pending.extend(missing)
            continue
        lowering = find(producer, walk.settings.opsets, popart=walk.settings.popart)
        if lowering is None or "key" in lowering.context:
            return None, chain[::-1]
        fresh.run(Step(producer, lowering, 0, ()))
        if only_shaped is not None:
            del fresh.env[only_shaped]  # others read its value
    return fresh.env[value], chain


def lookup(walk: Walk, value: ir.Value) -> Any:
    """The value as this walk or one around it computed it; None where nobody needs it any more."""
    scope: Walk | None = walk
    while scope is not None:
        if value in scope.env:
            return scope.env[value]
        scope = scope.outer
    return None
