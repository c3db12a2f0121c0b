"""Elementwise operators of ai.graphcore with PopART's gradients."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import popart_exception, until_compiled
from ..arrays import Array, times_power_of_two
from ..builder_methods import builder_method
from ..cast import to_float8
from ..elementwise import aligned, popart_fmod, popart_remainder
from ..operator import (
    EFFECT,
    ELEMENTWISE,
    FOLDS,
    MOVES_DATA,
    NAMESAKE,
    NON_LINEARITY,
    NOT_DIFFERENTIABLE,
    REFUSES_GRADIENT,
    ROUNDS,
    SCALED_FLOAT8,
    UPDATES,
    ZERO_GRADIENT,
    as_graphcore,
    gradient,
    of_both,
    operator,
)
from ..registry import direct, lowers
from .losses import DOMAIN


def round_half_away(x: jax.Array) -> jax.Array:
    """C's round: ties away from zero; zero gradient."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


def gelu_erf(x: jax.Array) -> jax.Array:
    """0.5 x (1 + erf(x / sqrt 2))."""
    return jax.nn.gelu(x, approximate=False)


def _xnor(x: jax.Array, y: jax.Array) -> jax.Array:
    return ~(x ^ y)


operator("Detach", ELEMENTWISE | MOVES_DATA | FOLDS, gradients=(), view=True, popxl=as_graphcore(runs=1))
operator("Expm1", ELEMENTWISE | ROUNDS, gradients=gradient("g y0", removed_by=NAMESAKE), inplace=True)
operator("GeluErf", ELEMENTWISE | NON_LINEARITY | ROUNDS, gradients="g x0", inplace=True, popxl=as_graphcore(runs=1))
operator("Log1p", ELEMENTWISE | ROUNDS, gradients=gradient("g x0", removed_by=NAMESAKE), inplace=True)
operator("NearbyInt", ELEMENTWISE, gradients=ZERO_GRADIENT, inplace=True)
operator("Nop", gradients=())
operator("Square", ELEMENTWISE | ROUNDS | REFUSES_GRADIENT, gradients=())
direct(
    {
        "Expm1": jnp.expm1,
        "Log1p": jnp.log1p,
        "Gelu": jax.nn.gelu,
        "GeluErf": gelu_erf,
        "Swish": jax.nn.silu,
        "Square": jnp.square,
        "BitwiseNot": jnp.bitwise_not,
        "NearbyInt": jnp.round,
        "Round": round_half_away,
        "Detach": lax.stop_gradient,
        "Nop": lax.stop_gradient,
    },
    domain=DOMAIN,
)
operator("Atan2", ELEMENTWISE | ROUNDS, gradients=of_both("Atan2"), inplace="Atan2LhsInplace")
operator("BitwiseXnor", REFUSES_GRADIENT, gradients=())
operator(
    "Fmod",
    ELEMENTWISE | FOLDS,
    gradients=gradient("g x0 x1 y0", name="FmodArg0Grad", removed_by=NAMESAKE, required=True),
    popxl=as_graphcore(runs=1),
)
operator("Remainder", ELEMENTWISE | FOLDS)  # is Fmod and Add, which fold both
_BINARY = {
    "BitwiseAnd": jnp.bitwise_and,
    "BitwiseOr": jnp.bitwise_or,
    "BitwiseXor": jnp.bitwise_xor,
    "BitwiseXnor": _xnor,
    "Atan2": jnp.arctan2,
    "Fmod": popart_fmod,
    "Remainder": popart_remainder,
}
direct({op: aligned(op, fn) for op, fn in _BINARY.items()}, arity=2, domain=DOMAIN)
builder_method("Atan2", "atan2(args)")
builder_method("BitwiseAnd", "bitwiseand(args=[])")
builder_method("BitwiseNot", "bitwisenot(args=[])")
builder_method("BitwiseOr", "bitwiseor(args=[])")
builder_method("BitwiseXnor", "bitwisexnor(args=[])")
builder_method("BitwiseXor", "bitwisexor(args=[])")
builder_method("Detach", "detach(args)")
builder_method("Expm1", "expm1(args)")
builder_method("Fmod", "fmod(args)")
builder_method("Gelu", "gelu(args)")
builder_method("GeluErf", "geluerf(args)")
builder_method("Log1p", "log1p(args)")
builder_method("NearbyInt", "nearbyint(args)")
builder_method("Nop", "nop(args)")
builder_method("Remainder", "remainder(args)")
builder_method("Round", "round(args)")
builder_method("Swish", "swish(args=[])")


operator("IncrementMod", NOT_DIFFERENTIABLE, gradients=(), inplace=True, popxl=as_graphcore(runs=1))
builder_method("IncrementMod", "incrementmod(args=[], increment:float, modulus:float)")


@lowers("IncrementMod", domain=DOMAIN)
def increment_mod(x: Array, /, *, increment: int, modulus: int) -> jax.Array:
    """fmod(x + increment, modulus) in the type of x; no gradient."""
    add, mod = (jnp.asarray(v).astype(x.dtype) for v in (increment, modulus))
    return lax.stop_gradient(lax.rem(jnp.asarray(x) + add, jnp.broadcast_to(mod, x.shape)))


operator("Scale", ELEMENTWISE | FOLDS | ROUNDS, gradients="g", inplace=True)
builder_method("Scale", "scale(args, scale:float)")


@lowers("Scale", domain=DOMAIN)
def scale(x: Array, /, *, scale: float = 1.0) -> Array:
    return x * jnp.asarray(scale).astype(x.dtype)


operator(
    "ScaledAdd",
    NOT_DIFFERENTIABLE,
    gradients=(),
    inplace={0: "ScaledAddLhsInplace", 1: "ScaledAddRhsInplace"},
    popxl=as_graphcore(),
)
builder_method("ScaledAdd", "scaledadd(args, scale0:float=1.0, scale1:float=1.0)")


@lowers("ScaledAdd", domain=DOMAIN)
def scaled_add(
    x: Array, y: Array, a: Array | None = None, b: Array | None = None, /, *, scale0: float = 1.0, scale1: float = 1.0
) -> jax.Array:
    """scale0*x + scale1*y by attributes or by tensors; no gradient."""
    if a is not None and b is None:
        raise until_compiled(popart_exception("Unsupported tensor scale0 with non-tensor scale1."), x)
    if a is None and b is not None and scale0 != 1:
        raise until_compiled(popart_exception(f"Unsupported scale0 {scale0:g} with tensor scale1."), x)
    factors = [
        jnp.asarray(attribute if tensor is None else tensor).reshape(()).astype(x.dtype)
        for tensor, attribute in ((a, scale0), (b, scale1))
    ]
    return lax.stop_gradient(factors[0] * x + factors[1] * y)


operator("Bucketize", gradients=())
builder_method("Bucketize", "bucketize(args=[], right:int=0)")


@lowers("Bucketize", domain=DOMAIN)
def bucketize(x: Array, boundaries: Array, /, *, right: int = 0) -> jax.Array:
    """Number of boundaries below x (right=0), or not above it (right=1); NaN counts as above all."""
    if right not in (0, 1):
        raise popart_exception(f"BucketizeOp right = {right} is not valid: must be either 0 or 1.")
    if boundaries.ndim != 1:
        raise popart_exception(
            "BucketizeOp::setup The boundaries tensor is not a 1-D tensor. The boundaries tensor rank = "
            f"{boundaries.ndim}."
        )
    if x.dtype != boundaries.dtype:
        raise popart_exception(
            "BucketizeOp::setup The input and boundaries tensors have different data types. The input tensor data type "
            f"= {x.dtype}. The boundaries tensor data type = {boundaries.dtype}."
        )
    found = jnp.searchsorted(boundaries, x, side="right" if right else "left")
    return jnp.where(x != x, boundaries.shape[0], found).astype(jnp.int32)


operator("CopyVarUpdate", MOVES_DATA | EFFECT | UPDATES, gradients=(), popxl=as_graphcore())
builder_method("CopyVarUpdate", "copyvarupdate(args)")


@lowers("CopyVarUpdate", domain=DOMAIN)
def copy_var_update(variable: Array, updater: Array, /) -> Array:
    """The variable's new value, which the session stores. No gradient."""
    if variable.shape != updater.shape or variable.dtype != updater.dtype:
        raise popart_exception(
            f"CopyVarUpdate: the updater ({updater.dtype}{list(updater.shape)}) must have the type of the variable "
            f"({variable.dtype}{list(variable.shape)})."
        )
    return lax.stop_gradient(updater)


operator("CastThenPow2Scale", MOVES_DATA | SCALED_FLOAT8 | REFUSES_GRADIENT, gradients=(), popxl=as_graphcore())


@lowers("CastThenPow2Scale", domain=DOMAIN)
def cast_then_pow2_scale(x: Array, log2_scale: Array, /, *, to: str = "FLOAT16") -> Array:
    """float8 to FLOAT16 times a power of two; no gradient."""
    return lax.stop_gradient(times_power_of_two(x.astype(jnp.float32), log2_scale.reshape(())).astype(jnp.float16))


operator("Pow2ScaleThenCast", SCALED_FLOAT8 | REFUSES_GRADIENT, gradients=(), popxl=as_graphcore())


@lowers("Pow2ScaleThenCast", domain=DOMAIN)
def pow2_scale_then_cast(x: Array, log2_scale: Array, /, *, to: str) -> Array:
    """FLOAT16 times a power of two, to float8 with saturation; no gradient."""
    kinds = {"FLOAT8_143": jnp.float8_e4m3fnuz, "FLOAT8_152": jnp.float8_e5m2fnuz}
    if to not in kinds:
        raise popart_exception(f"Pow2ScaleThenCast: to must be FLOAT8_143 or FLOAT8_152, not {to!r}")
    scaled = times_power_of_two(x.astype(jnp.float32), log2_scale.reshape(()))
    limit = float(cast("Any", jnp.finfo(kinds[to])).max)
    return lax.stop_gradient(to_float8(jnp.clip(scaled, -limit, limit), kinds[to]))
