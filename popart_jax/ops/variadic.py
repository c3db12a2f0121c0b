"""Sum, Mean, Max and Min of any number of operands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from operator import ge, le
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import popart_exception
from .arrays import Array, is_float, namespace, wide
from .elementwise import check_operands
from .operator import ELEMENTWISE, ROUNDS, as_onnx, gradient, operator
from .options import DEFAULTS, OperatorOptions
from .registry import Options, lowers
from .two_way import with_jvp


@with_jvp(0, 1)
def extremum(pick: Callable[[Any, Any], Any], ties: bool, *xs: Array) -> Array:
    """Largest (or smallest) operand; those that attain it share the gradient, or with `ties` each has it in full."""
    return reduce(pick, xs)


def _both(a: Any, b: Any) -> Any:
    return a & b


@extremum.defjvp
def _extremum_jvp(
    pick: Callable[[Any, Any], Any], ties: bool, xs: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Any, Any]:
    """An operand is compared with the others, not with the result, which XLA may have computed with other last bits."""
    out = reduce(pick, xs)
    total, count = jnp.zeros_like(out), jnp.zeros_like(out)
    wins = le if pick is jnp.minimum else ge
    for i, tangent in enumerate(tangents):
        attains = reduce(_both, (wins(xs[i], x) for j, x in enumerate(xs) if j != i))
        total += jnp.where(attains, tangent, jnp.zeros_like(out))
        count += attains.astype(out.dtype)
    return out, total if ties else total / jnp.maximum(count, 1)


def _known_extremum(name: str, options: OperatorOptions, *xs: Array) -> Array:
    if namespace(*xs) is np:
        return reduce(getattr(np, name), xs)
    if len(xs) == 1:
        return xs[0]
    return extremum(getattr(jnp, name), options.whole_gradient_of_ties, *(jnp.asarray(x) for x in xs))


_SINGLE = 4  # bytes


def _total(xs: tuple[Array, ...]) -> Array:
    """The sum, of several narrow floats in single precision."""
    narrow = len(xs) > 1 and is_float(xs[0]) and xs[0].dtype.itemsize < _SINGLE
    return reduce(namespace(*xs).add, map(wide, xs) if narrow else xs)


def _sum(_: OperatorOptions, *xs: Array) -> Array:
    return _total(xs).astype(xs[0].dtype)


def _mean(_: OperatorOptions, *xs: Array) -> Array:
    total = _total(xs)
    return (total / np.asarray(len(xs), total.dtype)).astype(xs[0].dtype)


operator(
    "Max",
    ELEMENTWISE,
    gradients=gradient("g xi y0", of=None, name="MaxArgGrad", kernel=True),
    popxl=as_onnx(6, runs=13),
)
operator("Mean", ELEMENTWISE | ROUNDS, gradients=gradient(of=None, name="MeanArgGrad"))
operator("Min", ELEMENTWISE, gradients=gradient("g xi y0", of=None, name="MinArgGrad"))
operator("Sum", ELEMENTWISE | ROUNDS, gradients=gradient(of=None, name="SumArgGrad"), popxl=as_onnx(6, runs=13))

_VARIADIC = {
    "Sum": _sum,
    "Mean": _mean,
    "Max": partial(_known_extremum, "maximum"),
    "Min": partial(_known_extremum, "minimum"),
}


def _register(op: str, fn: Callable[..., Any]) -> None:
    def modern(*xs: Array, options: Options = DEFAULTS) -> Array:
        check_operands(op, *xs)
        return fn(options, *xs)

    def equal_shapes(*xs: Array, options: Options = DEFAULTS) -> Array:
        if len({(np.shape(x), x.dtype) for x in xs}) > 1:
            raise popart_exception(f"Inputs to ai.onnx.{op}:6 do not all the same type & shape, with opid.version = 6")
        return fn(options, *xs)

    lowers(op, 8)(modern)
    lowers(op, 1)(equal_shapes)


for _op, _fn in _VARIADIC.items():
    _register(_op, _fn)
