"""Reductions over axes, ArgMax and ArgMin, cumulative sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import OpError, popart_exception, until_compiled
from .arrays import Array, as_index, first_extreme, is_float, normal_axes, normal_axis, wide
from .elementwise import absolute, in_float
from .folding import largest, smallest, total
from .gradients import attains
from .operator import FOLDS, INDEX_RESULT, ROUNDS, WIDE_RESULT, Trait, as_onnx, gradient, operator
from .options import DEFAULTS, OperatorOptions
from .registry import Options, Static, lowers
from .two_way import with_jvp

Axes = tuple[int, ...]


@with_jvp(0, 2, 3)
def extremum_over(reducer: Callable[[Any, Axes], Any], x: Array, axes: Axes, ties: bool) -> Array:
    """Largest or smallest element, axes kept; those that attain it share the gradient, or with `ties` each has it."""
    return reducer(x, axes)


@extremum_over.defjvp
def _extremum_jvp(
    reducer: Callable[[Any, Axes], Any], axes: Axes, ties: bool, primals: tuple[Any], tangents: tuple[Any]
) -> Any:
    (x,), (t,) = primals, tangents
    out: Any = extremum_over(reducer, x, axes, ties)
    hit = attains(x, out, axes, largest=reducer is not smallest)
    # not `total`: JAX transposes what a rule does to tangents as it is written, and rows would become pads
    moved = jnp.sum(jnp.where(hit, t, jnp.zeros_like(t)), axes, keepdims=True)
    return out, moved if ties else moved / jnp.maximum(total(hit.astype(t.dtype), axes), 1)


def _mean(x: Array, axes: Axes) -> Array:
    whole, count = total(x, axes), math.prod(x.shape[a] for a in axes)
    divisor = jnp.asarray(count, whole.dtype) if is_float(x) else jnp.asarray(count).astype(whole.dtype)
    return lax.div(whole, jnp.broadcast_to(divisor, whole.shape))


def safe_sqrt(x: Array) -> Array:
    """Square root whose gradient at 0 is 0: norms of zero vectors."""
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, jnp.ones_like(x))), jnp.sqrt(lax.stop_gradient(x)))


def _l2(x: Array, axes: Axes) -> Array:
    return in_float(safe_sqrt, total(x * x, axes))


def _popart_l2(x: Array, axes: Axes) -> Array:
    """PopART's L2 norm, whose gradient at a zero vector is NaN."""
    return in_float(jnp.sqrt, total(x * x, axes))


def log_sum_exp(x: Array, axes: Axes) -> Array:
    """Logarithm of a sum of exponentials, computed relative to the largest element; -inf if there are no elements."""
    top = lax.stop_gradient(largest(x, axes))
    shift = jnp.where(jnp.isfinite(top), top, jnp.zeros_like(top))
    return jnp.log(total(jnp.exp(x - shift), axes)) + shift


def _reduction(
    how: str, reads: str = "g", traits: Trait = Trait.ROUNDS, *, kernel: bool = False, neutral: str = "zero"
) -> None:
    operator(
        f"Reduce{how}",
        traits,
        gradients=gradient(reads, kernel=kernel),
        batch="reduction",
        ranks="axes 0-1",
        parameters={1: "axes"},
        popxl=as_onnx(runs=11),
        neutral=neutral,
    )


_reduction("L1", "g x0")
_reduction("L2", "g x0 y0")
_reduction("LogSum", "g y0", kernel=True)
_reduction("LogSumExp", "g x0 y0", neutral="unlikely")
_reduction("Max", "g x0 y0", traits=Trait.NONE, neutral="lowest")
_reduction("Mean")
_reduction("Min", "g x0 y0", traits=Trait.NONE, neutral="highest")
_reduction("Prod", "g x0", traits=FOLDS | ROUNDS, neutral="one")
_reduction("Sum")
_reduction("SumSquare", "g x0")

Reduction = Callable[[Array, Axes], Array]
_EXTREMES = {"ReduceMax": largest, "ReduceMin": smallest}
_REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": total,
    "ReduceMean": _mean,
    "ReduceProd": lambda x, axes: jnp.prod(x, axes, keepdims=True, dtype=x.dtype),
    "ReduceL1": lambda x, axes: total(absolute(x), axes),
    "ReduceL2": _l2,
    "ReduceSumSquare": lambda x, axes: total(x * x, axes),
    "ReduceLogSum": lambda x, axes: in_float(jnp.log, total(x, axes)),
    "ReduceLogSumExp": lambda x, axes: in_float(lambda y: log_sum_exp(y, axes), x),
}


def _in_single_precision(reduction: Reduction) -> Reduction:
    """The reduction with narrow floats accumulated in single precision: a float16 sum would lose small terms."""

    def reduced(x: Array, axes: Axes) -> Array:
        return reduction(wide(x), axes).astype(x.dtype) if is_float(x) and x.dtype.itemsize < 4 else reduction(x, axes)

    return reduced


def _register(
    op: str, reduction: Callable[[OperatorOptions], Reduction], axes_are_input_from: int, *, popart: bool = False
) -> None:
    def over(x: Array, axes: Sequence[int] | None, keepdims: int, options: OperatorOptions) -> Array:
        x = jnp.asarray(x)
        if x.ndim == 0 and axes is not None and np.size(axes):
            raise OpError("Reduce input rank must be greater than 0, invalid Reduce {op}.", op)
        found = tuple(range(x.ndim)) if axes is None else normal_axes(axes, x.ndim)
        kept = _in_single_precision(reduction(options))(x, found)
        return kept if keepdims else lax.squeeze(kept, found)

    def with_attribute(
        x: Array, /, *, axes: Sequence[int] | None = None, keepdims: int = 1, options: Options = DEFAULTS
    ) -> Array:
        found = axes if popart else axes or None  # PopART reduces over no axis of an empty list
        return over(x, found, keepdims, options)

    def with_input(
        x: Array, axes: Static = None, /, *, keepdims: int = 1, noop_with_empty_axes: int = 0,
        options: Options = DEFAULTS,
    ) -> Array:  # fmt: skip
        given = None if axes is None or np.size(axes) == 0 else axes
        return over(x, () if given is None and noop_with_empty_axes else given, keepdims, options)

    lowers(op, 1, popart=popart)(with_attribute)
    lowers(op, axes_are_input_from, popart=popart)(with_input)


def _always(rule: Reduction) -> Callable[[OperatorOptions], Reduction]:
    return lambda options: rule


def _extreme(reducer: Reduction) -> Callable[[OperatorOptions], Reduction]:
    return lambda options: lambda x, axes: extremum_over(reducer, x, axes, options.whole_gradient_of_ties)


for _op, _rule in _REDUCTIONS.items():
    _since = 13 if _op == "ReduceSum" else 18
    _register(_op, _always(_rule), _since)
    _register(_op, _always(_popart_l2 if _op == "ReduceL2" else _rule), _since, popart=True)
for _op, _rule in _EXTREMES.items():
    _register(_op, _extreme(_rule), 18)
    _register(_op, _extreme(_rule), 18, popart=True)


def _arg(op: str, largest: bool, *, popart: bool = False) -> None:
    def arg(x: Array, /, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
        x = jnp.asarray(x)
        if x.ndim == 0 and axis in (0, -1) and not popart:  # as in NumPy and ONNX's evaluator, not in PopART
            return as_index(jnp.zeros((), jnp.int32))
        if x.ndim == 0:
            raise OpError("ArgExtremaOp input rank must be greater than 0, invalid ArgExtremaOp {op}.", op)
        if axis >= x.ndim:
            raise OpError(
                f"Cannot compute ArgExtremaOp on axis {axis} when input rank is {x.ndim}, invalid ArgExtremaOp {{op}}.",
                op,
            )
        along = normal_axis(axis, x.ndim)
        found = first_extreme(lax.rev(x, (along,)) if select_last_index else x, along, largest)
        found = jnp.expand_dims(found, along) if keepdims else found
        return as_index(x.shape[along] - 1 - found if select_last_index else found)

    def first(x: Array, /, *, axis: int = 0, keepdims: int = 1) -> Array:
        return arg(x, axis=axis, keepdims=keepdims)

    lowers(op, 12, popart=popart)(arg)
    lowers(op, 1, popart=popart)(first)


operator(
    "ArgMax",
    INDEX_RESULT | WIDE_RESULT,
    gradients=(),
    batch="along axis",
    popxl=as_onnx(11, base="ArgExtremaOp"),
    neutral="lowest",
)

_arg("ArgMax", True)
_arg("ArgMax", True, popart=True)
operator(
    "ArgMin",
    INDEX_RESULT | WIDE_RESULT,
    gradients=(),
    batch="along axis",
    popxl=as_onnx(11, base="ArgExtremaOp"),
    neutral="highest",
)

_arg("ArgMin", False)
_arg("ArgMin", False, popart=True)


def _cumulative(op: str, since: int, run: Callable[..., Any], neutral: int) -> None:
    def cumulative(x: Array, axis: Static, /, *, exclusive: int = 0, reverse: int = 0) -> Array:
        if exclusive not in (0, 1) or reverse not in (0, 1):
            name = "reverse" if exclusive in (0, 1) else "exclusive"
            raise popart_exception(f"{op} op, '{name}' attributes must be 0 or 1.")
        if np.size(axis) != 1:
            raise popart_exception(f"{op} op, 'axis' tensor must have one element.")
        along = np.asarray(axis).item()
        if not -x.ndim <= along < x.ndim:
            raise until_compiled(popart_exception(f"{op}Opx op, 'axis' value out of range."), x)
        along %= x.ndim
        out = run(x, along, reverse=bool(reverse))
        if not exclusive:
            return out
        pads = [(0, 0, 0)] * x.ndim
        pads[along] = (-1, 1, 0) if reverse else (1, -1, 0)
        return lax.pad(out, jnp.asarray(neutral, x.dtype), pads)

    lowers(op, since)(cumulative)


operator(
    "CumSum",
    ROUNDS,
    gradients="g x0",
    batch="along axis",
    popxl=as_onnx(11),
    neutral="zero",
    not_constant="For CumSum op {Op}, the axis tensor {tensor} does not have data.",
)

_cumulative("CumSum", 11, lax.cumsum, 0)
_cumulative("CumProd", 26, lax.cumprod, 1)
