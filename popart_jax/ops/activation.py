"""Activation functions, with PopART's gradients at their kinks."""

from __future__ import annotations

import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import popart_exception
from . import primitives
from .arrays import Array, is_float, namespace
from .elementwise import aligned, legacy_align
from .operator import ELEMENTWISE, NON_LINEARITY, OF_INTEGERS, ROUNDS, as_graphcore, as_onnx, gradient, operator
from .registry import direct, lowers
from .two_way import with_jvp

operator(
    "Relu",
    ELEMENTWISE | NON_LINEARITY,
    gradients=gradient("g y0", kernel=True),
    inplace=True,
    popxl=as_onnx(6, runs=14),
)
operator(
    "Softplus",
    ELEMENTWISE | NON_LINEARITY | ROUNDS | OF_INTEGERS,
    gradients=gradient("g x0", name="SoftPlusGrad"),
    inplace=True,
)
operator(
    "Softsign",
    ELEMENTWISE | NON_LINEARITY | ROUNDS | OF_INTEGERS,
    gradients=gradient("g x0", name="SoftSignGrad"),
    inplace=True,
)
direct({"Relu": jax.nn.relu, "Softsign": jax.nn.soft_sign, "Softplus": jax.nn.softplus}, 1)
operator("Celu", ELEMENTWISE)
operator("HardSwish", ELEMENTWISE)
operator("Mish", ELEMENTWISE)
direct({"Mish": jax.nn.mish}, 18)


@lowers("HardSwish", 14)
def hard_swish(x: Array, /) -> Array:
    return x * jnp.clip(x / 6 + 0.5, 0, 1)


FLOAT_MAX = 3.4028234663852886e38


def blend(x: Array, upper: Array, lower: Array, at: float = 0.0) -> Array:
    """`upper` for x > `at` and `lower` for x < `at`; at `at` itself the gradient is the mean of both."""
    half = jnp.asarray(0.5, x.dtype) * (upper + lower)
    return jnp.where(x > at, upper, jnp.where(x < at, lower, half))


def _below(x: Array) -> Array:
    """The negative part, including 0: its exp does not overflow, and the gradient at 0 is kept."""
    return jnp.where(x > 0, jnp.zeros_like(x), x)


operator("LeakyRelu", ELEMENTWISE | NON_LINEARITY | ROUNDS, gradients="g x0", inplace=True)


@lowers("LeakyRelu", 1)
def leaky_relu(x: Array, /, *, alpha: float = 0.01) -> Array:
    return jnp.where(x < 0, x * np.asarray(alpha, x.dtype), x)


operator("PRelu", ELEMENTWISE | ROUNDS, gradients=())


@lowers("PRelu", 7)
def prelu(x: Array, slope: Array, /) -> Array:
    return jnp.where(x < 0, x * slope, x)


lowers("PRelu", 7, popart=True)(aligned("PRelu", prelu))


@lowers("PRelu", 1)
def prelu_1(x: Array, slope: Array, /) -> Array:
    """One slope, or one per channel."""
    shared = np.size(slope) == 1
    return prelu(x, slope.reshape(()) if shared else legacy_align(x, slope, 1, 1))


operator("Elu", ELEMENTWISE | NON_LINEARITY | ROUNDS | OF_INTEGERS, gradients="g x0", inplace=True)


@lowers("Elu", 1)
def elu(x: Array, /, *, alpha: float = 1.0) -> Array:
    return blend(x, x, np.asarray(alpha, x.dtype) * jnp.expm1(_below(x)))


@lowers("Celu", 12)
def celu(x: Array, /, *, alpha: float = 1.0) -> Array:
    a = np.asarray(alpha, x.dtype)
    upper = x if alpha else x * np.nan  # ONNX's formula has the term 0 * (exp(x / 0) - 1), which is NaN
    return blend(x, upper, a * jnp.expm1(_below(x) / a))


operator("Selu", ELEMENTWISE | NON_LINEARITY | ROUNDS | OF_INTEGERS, gradients="g x0", inplace=True)


@lowers("Selu", 6)
def selu(x: Array, /, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Array:
    return np.asarray(gamma, x.dtype) * elu(x, alpha=alpha)


@lowers("Selu", 1, popart=True, like=selu)
def popart_selu(x: Array, /, *, alpha: float = 1.67326, gamma: float = 1.0507) -> Array:
    """SELU with PopART's defaults, which its builder omits from the node."""
    return selu(x, alpha=alpha, gamma=gamma)


@lowers("Selu", 1)
def selu_1(x: Array, /, *, alpha: float = 1.6732, gamma: float = 1.0507) -> Array:
    return selu(x, alpha=alpha, gamma=gamma)


operator("Gelu", ELEMENTWISE | NON_LINEARITY | ROUNDS, gradients="g x0", inplace=True, popxl=as_graphcore(runs=1))


@lowers("Gelu", 20)
def gelu(x: Array, /, *, approximate: str = "none") -> Array:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


operator("Swish", ELEMENTWISE | NON_LINEARITY | ROUNDS, gradients="g x0", inplace=True, popxl=as_graphcore(runs=1))


@lowers("Swish", 24)
def swish(x: Array, /, *, alpha: float = 1.0) -> Array:
    return x * jax.nn.sigmoid(x * np.asarray(alpha, x.dtype))


@lowers("SwiGLU", 28)
def swiglu(gate: Array, value: Array, /, *, alpha: float = 1.0) -> Array:
    if np.shape(gate) != np.shape(value):
        raise popart_exception(f"SwiGLU: shapes {list(np.shape(gate))} and {list(np.shape(value))} must be the same")
    return swish(gate, alpha=alpha) * value


operator("HardSigmoid", ELEMENTWISE | NON_LINEARITY | ROUNDS | OF_INTEGERS, gradients="g x0", inplace=True)


@lowers("HardSigmoid", 1)
def hard_sigmoid(x: Array, /, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """On a bound the gradient is the mean of both sides."""
    return bounded_line(x, x.dtype.type(alpha), x.dtype.type(beta))


@with_jvp(1, 2)
def bounded_line(x: Array, slope: Any, shift: Any) -> Array:
    """``slope * x + shift`` between 0 and 1; where it reaches them is decided by `x`.

    A compiler fuses product and sum, whose result on a bound is then a little beyond it.
    """
    return jnp.clip(x * slope + shift, 0, 1)


@bounded_line.defjvp
def _bounded_line_jvp(slope: Any, shift: Any, primals: tuple[Array], tangents: tuple[Any]) -> tuple[Any, Any]:
    (x,), (to_x,) = primals, tangents
    with np.errstate(divide="ignore", invalid="ignore"):  # a slope of 0 reaches no bound
        low, high = sorted(((0 - shift) / slope, (1 - shift) / slope))
    share = jnp.where((x > low) & (x < high), slope, jnp.where((x == low) | (x == high), slope / 2, 0)).astype(x.dtype)
    return bounded_line(x, slope, shift), share * to_x


operator("ThresholdedRelu", ELEMENTWISE | NON_LINEARITY | OF_INTEGERS, gradients="g x0", inplace=True)


@lowers("ThresholdedRelu", 1, 10)
def thresholded_relu(x: Array, /, *, alpha: float = 1.0) -> Array:
    return jnp.where(x > np.asarray(alpha, x.dtype), x, jnp.zeros_like(x))


operator("Shrink", ELEMENTWISE, gradients="g x0", inplace=True)


@lowers("Shrink", 9)
def shrink(x: Array, /, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    """Half the gradient exactly on a threshold."""
    if not is_float(x):
        return shrink(x.astype(jnp.float32), bias=bias, lambd=lambd).astype(x.dtype)
    b, threshold = np.asarray(bias, x.dtype), np.asarray(lambd, x.dtype)
    moved = jnp.where(x < -threshold, x + b, jnp.where(x > threshold, x - b, jnp.zeros_like(x)))
    rise = (x - lax.stop_gradient(x)) * jnp.asarray(0.5, x.dtype)
    return jnp.where(jnp.isfinite(x) & (jnp.abs(x) == threshold), rise, moved)


@with_jvp()
def clipped(x: Array, low: Any, high: Any) -> Array:
    """Clip whose gradient is 0 where the result is a bound."""
    return primitives.minimum(primitives.maximum(x, low), high)


@clipped.defjvp
def _clipped_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    x, low, high = primals
    out = clipped(x, low, high)
    own = (x > low) & (x < high)
    to_x, to_low, to_high = (jnp.broadcast_to(t, out.shape) for t in tangents)
    bound = jnp.where(out == high, to_high, jnp.where(x <= low, to_low, jnp.zeros_like(out)))
    return out, jnp.where(own, to_x, bound)


def _limits(dtype: Any) -> tuple[Any, Any]:
    info = cast("Any", jnp.finfo(dtype) if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype))
    return info.min, info.max


operator(
    "Clip",
    ELEMENTWISE,
    gradients=gradient("g y0", kernel=True),
    inplace=True,
    parameters={1: "min", 2: "max"},
    popxl=as_onnx(6, runs=6),
    not_constant="Op {name}({op}), inputs=[{first}] currently only supports constant min/max parameters. "
    "Input '{operand}' ({tensor}) has no data.",
)


@lowers("Clip", 11)
def clip(x: Array, low: Array | None = None, high: Array | None = None, /) -> Array:
    """Bounds of one element each; an absent one (or one without elements) bounds nothing."""
    bounds = [None if b is None or np.size(b) == 0 else b.reshape(()) for b in (low, high)]
    if not is_float(x):
        lowest, highest = (
            np.asarray(d, x.dtype) if b is None else b.astype(x.dtype)
            for b, d in zip(bounds, _limits(x.dtype), strict=True)
        )
        xp = namespace(x, lowest, highest)
        return xp.minimum(xp.maximum(x, lowest), highest)
    infinite = (-math.inf, math.inf)
    lowest, highest = (jnp.asarray(d if b is None else b, x.dtype) for b, d in zip(bounds, infinite, strict=True))
    return clipped(jnp.asarray(x), lowest, highest)


@lowers("Clip", 6)
def clip_6(x: Array, /, *, min: float = -FLOAT_MAX, max: float = FLOAT_MAX) -> Array:
    if not is_float(x):
        lowest, highest = map(int, _limits(x.dtype))
        low, high = (lowest if b < lowest else highest if b > highest else math.trunc(b) for b in (min, max))
        return clip(x, np.asarray(low, x.dtype), np.asarray(high, x.dtype))
    with np.errstate(over="ignore"):  # a 16-bit bound becomes infinite
        return clip(x, np.asarray(min).astype(x.dtype), np.asarray(max).astype(x.dtype))


@lowers("Clip", 1)
def clip_1(x: Array, /, *, min: float | None = None, max: float | None = None) -> Array:
    low, high = (None if b is None else np.asarray(b, x.dtype) for b in (min, max))
    return clip(x, low, high)
