"""Operators whose result's size depends on data: inside a trace it is padded to its largest size, with a mask."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
from jax import lax

from ..._compat.jax import Tracer
from ...errors import popart_exception
from ...ops.join import from_front, sliced_axis
from ...ops.registry import Lowering
from ...ops.select import BEYOND
from ...ops.symbols import is_symbol
from .bounds import FILL, SIZE, how

_MOST = 1 << 24
"""Elements of a result, padding included, that is made to be cut."""


@dataclass(frozen=True, slots=True)
class Padded:
    """A value that is padded along one axis."""

    axis: int  # the padded axis, counted from the end (1 is the last)
    index: bool  # the value holds positions; its padding are positions outside of every tensor
    # the user gave the size. The value is then followed only so that nothing is read at its padding.
    given: bool = False
    # mask of the valid entries along the axis. None for a size that the user gave.
    live: Any = field(default=None, compare=False, repr=False)
    maker: str = field(default="NonZero", compare=False)  # the operator whose result was padded


@dataclass(frozen=True, slots=True, eq=False)
class SizeDependent:
    """Numbers computed from the size of a padded value; while tracing, they are those of the padded size."""

    value: Any  # the numbers as the true size gives them
    spots: np.ndarray  # which of them depend on that size
    maker: str  # the operator whose result was padded


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Uncut:
    """A padded result of a compiled program, for whoever calls it from the host, or of an inner graph."""

    value: Any  # the result with its padding
    live: Any  # mask of the valid entries along the axis
    axis: int = field(metadata={"static": True})  # the padded axis, counted from the end (1 is the last)
    index: bool = field(default=False, metadata={"static": True})  # the value holds positions
    maker: str = field(default="NonZero", metadata={"static": True})  # the operator whose result was padded

    @classmethod
    def of(cls, value: Any, mark: Padded) -> Uncut:
        """The value with its mark."""
        return cls(value, mark.live, mark.axis, mark.index, mark.maker)

    @property
    def mark(self) -> Padded:
        """The mark of the value."""
        return Padded(self.axis, self.index, live=self.live, maker=self.maker)

    def cut(self) -> jax.Array:
        """The result without its padding."""
        return jnp.compress(np.asarray(self.live), self.value, axis=-self.axis)

    def resized(self, size: int, fill: Any = None) -> Uncut:
        """The result with another size: cut, or with more padding. `fill` replaces all of the padding."""
        more = max(0, size - self.live.size)
        pads = [(0, 0)] * self.value.ndim
        pads[-self.axis] = (0, more)
        filled = (BEYOND if self.index else 0) if fill is None else fill
        value = lax.slice_in_dim(self.value, 0, size - more, axis=self.value.ndim - self.axis)
        value = jnp.pad(value, pads, constant_values=jnp.asarray(filled, value.dtype))
        one = replace(self, value=value, live=jnp.pad(self.live[:size], (0, more)))
        return one if fill is None else replace(one, value=masked(value, one.mark, fill))


def check_worth(results: Sequence[Any]) -> None:
    """Raise popart_exception for results that are too large with their padding, where it will be cut off.

    Operators with exact sizes, compiled one by one, are faster then.
    """
    if any(math.prod(np.shape(x)) > _MOST for x in results):
        raise popart_exception("too much would be computed that is cut off")


def bound_of(node: ir.Node, lowering: Lowering, operands: Sequence[Any]) -> dict[str, Any]:
    """Size and padding value for a node's result without a bound from the user, in a trace; empty for other nodes."""
    if not lowering.takes_fill or SIZE in node.attributes:
        return {}
    decides = lowering.static or range(len(operands))  # operands needed while tracing, unless there is a bound
    if not any(isinstance(operands[i], Tracer) for i in decides if i < len(operands)):
        return {}
    if node.op_type == "Slice" and np.size(operands[1]) != 1:
        return {}
    size = _most(node, operands)
    size = size if is_symbol(size) else max(size, 2)  # an axis of size 1 could not be told from others
    positions = node.op_type in ("NonZero", "NonMaxSuppression") or _may_be_positions(operands[0])
    return {"bound": size, "fill": BEYOND if positions else None}


def is_bounded(node: ir.Node) -> bool:
    """Whether the user gave the results of a node a size."""
    return SIZE in node.attributes


def refuse_fill(node: ir.Node, lowering: Lowering) -> None:
    """Refuse a value of the padding where the operator has its own."""
    if FILL in node.attributes and lowering.takes_bound and not lowering.takes_fill:
        name = node.outputs[0].name
        raise popart_exception(f"bounds: {name!r} is made by {node.op_type}, which takes a size and no fill value")


def shortened(node: ir.Node, results: Sequence[Any], marks: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """Padded results of a node to which the user gave a size: never longer than that.

    If none of them is padded it raises popart_exception.
    """
    if not any(isinstance(m, Padded) for m in marks):
        raise popart_exception(f"bounds: the size of {node.outputs[0].name!r} does not depend on data")
    size = max(node.attributes[SIZE].as_int(), 2)  # an axis of size 1 could not be told from others
    both = [(x, m, isinstance(m, Padded) and m.live.size > size) for x, m in zip(results, marks, strict=False)]
    made = [Uncut.of(x, m).resized(size) if longer else None for x, m, longer in both]
    cut = [(x, m) if one is None else (one.value, one.mark) for (x, m, _), one in zip(both, made, strict=True)]
    return tuple(x for x, _ in cut), [m for _, m in cut]


def filled(node: ir.Node, result: Any, mark: Padded) -> Any:
    """A padded result of the model in the size that the user gave it; padding has the user's value, or 0."""
    fill = node.attributes.get(FILL)
    return Uncut.of(result, mark).resized(node.attributes[SIZE].as_int(), 0 if fill is None else fill.value).value


def given_bound(node: ir.Node) -> bool:
    """Whether the user gave a NonZero a bound, but no padding value."""
    return node.op_type == "NonZero" and not node.domain and SIZE in node.attributes and FILL not in node.attributes


def _axis_of_slice(operands: Sequence[Any]) -> int:
    return sliced_axis(operands[3] if len(operands) > 3 else None, np.ndim(operands[0]))


def _may_be_positions(x: Any) -> bool:
    return x.dtype in (np.int32, np.int64)


def _most(node: ir.Node, operands: Sequence[Any]) -> Any:
    x = operands[0]
    if node.op_type == "NonMaxSuppression":
        scores = operands[1]
        most = operands[2] if len(operands) > 2 else None
        of_class = scores.shape[2] if most is None or isinstance(most, jax.Array) else int(np.reshape(most, -1)[0])
        return scores.shape[0] * scores.shape[1] * min(of_class, scores.shape[2])
    if node.op_type == "Compress":
        return operands[1].shape[0]
    if node.op_type == "Slice":
        return x.shape[_axis_of_slice(operands)]
    axis = node.attributes.get("axis")
    return x.size if node.op_type == "NonZero" or axis is None else x.shape[axis.as_int()]


def mark_padding(node: ir.Node, operands: Sequence[Any], results: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Any]]:
    """The results of a node with padded results, and the mark of each."""
    op, first = node.op_type, results[0]
    if op == "Unique":
        return _unique(node, results)
    if op == "NonMaxSuppression":
        return results, [Padded(2, index=True, live=first[:, 0] != BEYOND, maker=op)]
    if op == "NonZero":
        return results, [Padded(1, index=True, live=_count(operands[0], first.shape[1]))]
    if op == "Slice":
        x, starts, ends, along = operands[0], operands[1], operands[2], first.ndim - _axis_of_slice(operands)
        begin, end = (from_front(v, x.shape[-along]) for v in (starts, ends))
        live = jnp.arange(first.shape[-along]) < end - begin
        return results, [Padded(along, index=_may_be_positions(first), live=live, maker=op)]
    axis = node.attributes.get("axis")
    along = 1 if axis is None else first.ndim - axis.as_int() % first.ndim
    live = _count(operands[1], first.shape[-along])
    return results, [Padded(along, index=_may_be_positions(first), live=live, maker=op)]


def nested(node: ir.Node, operands: Sequence[Any], marks: Mapping[int, Any]) -> list[Any]:
    """Operands of such a node that are padded themselves, masked so that their padding is not selected.

    Padding that the node would see raises popart_exception.
    """
    given, decides = list(operands), 1 if node.op_type == "Compress" else 0
    if node.op_type == "NonMaxSuppression" and {i: marks[i].axis for i in marks} in ({0: 2, 1: 1}, {1: 1}):
        given[1] = masked(operands[1], marks[1], np.nan)
        return given
    axis, rank = node.attributes.get("axis"), np.ndim(operands[0])
    along = rank - axis.as_int() % rank if axis is not None else 1 if rank == 1 else 0
    for i, mark in marks.items():
        if (
            isinstance(mark, SizeDependent)
            or node.op_type not in ("NonZero", "Compress")
            or (i < decides and mark.axis != along)
        ):
            raise popart_exception(refusal(node.op_type, mark))
        given[i] = masked(operands[i], mark, 0) if i == decides else operands[i]
    if marks and decides not in marks:  # padding must not be selected
        live = next(iter(marks.values())).live
        given[decides] = operands[decides] & live[: operands[decides].shape[0]]
    return given


def _count(mask: Any, size: Any) -> jax.Array:
    return jnp.arange(size) < jnp.count_nonzero(mask)


def _unique(node: ir.Node, results: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Any]]:
    """Results of Unique (values, first positions, inverse, counts); all but the inverse are padded."""
    values, first, inverse, counts = results
    live, axis = counts > 0, node.attributes.get("axis")
    along = 1 if axis is None else values.ndim - axis.as_int() % values.ndim
    if positions := _may_be_positions(values):
        values = masked(values, Padded(along, index=True, live=live), BEYOND)
    first = jnp.where(live, first, jnp.asarray(BEYOND, first.dtype))
    marks = [(along, positions), (1, True), None, (1, False)]
    made = [None if m is None else Padded(*m, live=live, maker="Unique") for m in marks]
    return (values, first, inverse, counts), made


def masked(x: Any, mark: Padded, neutral: Any) -> jax.Array:
    """The value with `neutral` as its padding."""
    live = mark.live.reshape(mark.live.shape + (1,) * (mark.axis - 1))
    return jnp.where(live, x, jnp.asarray(neutral, x.dtype))


def refusal(what: str, mark: Padded | SizeDependent, names: Sequence[str] = ("OUTPUT",)) -> str:
    """Error text: why a result can't be computed in a trace, and what to do: give results of these names a bound."""
    return (
        f"how many elements {mark.maker} finds is known only when the program runs, and {what} would see what fills "
        f"its result up; call it outside jit, or {how(names)}"
    )
