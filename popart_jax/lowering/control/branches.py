"""If: a known condition picks its branch while tracing, otherwise `lax.cond` decides at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import onnx_ir as ir

from ...errors import popart_exception
from ...ops import varying
from ...ops.arrays import Array
from ...ops.operator import MOVES_DATA, NOT_OUTLINED, as_graphcore, as_onnx, operator
from ...ops.registry import Subgraph, lowers
from ...ops.stopping import unless
from ..dynamic_sizes.padded import Uncut
from .values import VERSIONS, arrays, known

operator("If", MOVES_DATA | NOT_OUTLINED, popxl=as_onnx(11))
operator("IfGrad", MOVES_DATA, popxl=as_graphcore(base="IfOp", runs_as="If"))


@lowers("If", *VERSIONS)
def if_(cond: Array, /, *, then_branch: Subgraph, else_branch: Subgraph) -> Array | tuple[Array, ...]:
    """Branches are functions without arguments; if one can't be traced with the shapes of this call, the other runs."""
    if cond.size != 1:
        raise popart_exception(f"The condition of an If has one element, got shape {list(cond.shape)}")
    value = known(cond)
    if value is not None:
        return then_branch(uncut=True) if value else else_branch(uncut=True)
    flag = cond.reshape(()) != 0
    then_branch, else_branch = (b.varying(varying.axes_of(flag)) for b in (then_branch, else_branch))
    try:
        return varying.cond(flag, partial(_results, then_branch), partial(_results, else_branch))
    except popart_exception as err:
        return _only_sound_branch(flag, then_branch, else_branch, err)
    except TypeError as err:
        ends = zip(then_branch.graph.outputs, else_branch.graph.outputs, strict=False)
        shapes = [_declared_of_one(a, b) for a, b in ends]
        if (sizes := _common_sizes(then_branch, else_branch)) is not None:
            return varying.cond(flag, *(partial(_padded, branch, sizes) for branch in (then_branch, else_branch)))
        if any(shape is not None for shape in shapes):
            return varying.cond(flag, *(partial(_reshaped, branch, shapes) for branch in (then_branch, else_branch)))
        raise popart_exception(
            "The branches of an If differ in number, shape or type of outputs, and its condition is known only at run "
            "time; call it outside jit, or make the branches agree, or let the jitted function close over what the "
            f"condition is made of, as NumPy arrays. {_difference(then_branch, else_branch)}"
        ) from err


def _results(branch: Subgraph) -> Any:
    return arrays(branch(uncut=True))


@dataclass(frozen=True, slots=True)
class _Size:
    """What an output whose size depends on data in a branch is, whichever branch runs: its padded axis and its size."""

    axis: int
    size: int
    index: bool
    maker: str


def _common_sizes(then_branch: Subgraph, else_branch: Subgraph) -> Sequence[_Size | None] | None:
    """The padded size of each output of the branches; None if no output has one, or one has several padded axes."""
    made = [jax.eval_shape(partial(_results, branch)) for branch in (then_branch, else_branch)]
    pairs = list(zip(*made, strict=False))
    if any(len({x.axis for x in pair if isinstance(x, Uncut)}) > 1 for pair in pairs):
        return None
    sizes = [_common_size(a, b) for a, b in pairs]
    return sizes if any(size is not None for size in sizes) else None


def _common_size(first: Any, second: Any) -> _Size | None:
    padded = [x for x in (first, second) if isinstance(x, Uncut)]
    if not padded:
        return None
    axis = padded[0].axis
    sizes = [(x.value if isinstance(x, Uncut) else x).shape[-axis] for x in (first, second)]
    return _Size(axis, max(sizes), all(x.index for x in padded), padded[0].maker)


def _padded(branch: Subgraph, sizes: Sequence[_Size | None]) -> tuple[Any, ...]:
    """Results of a branch, those with a common size padded to it."""
    return tuple(x if one is None else _as(x, one) for x, one in zip(_results(branch), sizes, strict=True))


def _as(x: Any, one: _Size) -> Uncut:
    live = x.live if isinstance(x, Uncut) else jnp.ones(x.shape[-one.axis], bool)
    value = x.value if isinstance(x, Uncut) else x
    return Uncut(value, live, one.axis, one.index, one.maker).resized(one.size)


def _difference(then_branch: Subgraph, else_branch: Subgraph) -> str:
    """The results of both branches, described for an error text."""
    made = [jax.eval_shape(partial(_results, branch)) for branch in (then_branch, else_branch)]
    shown = [", ".join(map(_type, results)) for results in made]
    return f"The then_branch makes ({shown[0]}), the else_branch ({shown[1]})."


def _type(x: Any) -> str:
    if isinstance(x, Uncut):
        return f"{_type(x.value)} of which data decide how much of axis -{x.axis} counts"
    return f"{x.dtype}{list(x.shape)}"


def _declared_of_one(first: ir.Value, second: ir.Value) -> tuple[int, ...] | None:
    """The shape of an output that both branches declare alike with a single element, else None."""
    shapes = [None if v.shape is None else tuple(v.shape) for v in (first, second)]
    same = shapes[0] is not None and shapes[0] == shapes[1] and all(d == 1 for d in shapes[0])
    return (1,) * len(shapes[0] or ()) if same else None


def _reshaped(branch: Subgraph, shapes: Sequence[tuple[int, ...] | None]) -> tuple[Any, ...]:
    """Results of a branch; those of one element get the declared shape (exporters mix scalars and vectors of one)."""
    results = _results(branch)
    return tuple(x.reshape(s) if s is not None and x.size == 1 else x for x, s in zip(results, shapes, strict=True))


def _only_sound_branch(
    flag: jax.Array, then_branch: Subgraph, else_branch: Subgraph, err: popart_exception
) -> tuple[Any, ...]:
    """One branch can't be traced with the shapes of this call: run the other, and fail if the condition picks it."""
    reasons = {True: _failure(then_branch), False: _failure(else_branch)}
    if (reasons[True] is None) == (reasons[False] is None):
        raise err
    bad = reasons[True] is not None
    reason = f"An If took a branch that does not fit to the shapes of this call: {reasons[bad]}"
    return unless(flag == bad, reason, _results(else_branch if bad else then_branch))


def _failure(branch: Subgraph) -> popart_exception | None:
    """The error with which a branch fails to trace, None if it traces; it matters only if the condition picks it."""
    try:
        jax.eval_shape(partial(_results, branch))
    except popart_exception as err:
        return err
    return None
