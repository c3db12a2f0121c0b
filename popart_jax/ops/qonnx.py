"""Quantisers of QONNX, as Brevitas, QKeras and FINN export them: floats rounded to the numbers of a scale.

Source: Pappalardo et al., "QONNX: representing arbitrary-precision quantized neural networks" (2022), and its
specification of the operators. It has no derivatives; these are straight-through, as the frameworks train them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import popart_exception
from .arrays import Array
from .operator import operator
from .quantize import divided, straight_through
from .registry import Static, lowers

DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")
"""The domain of today's exporters, and two that it had before."""

_ROUNDINGS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "ROUND": jnp.rint,
    "HALF_EVEN": jnp.rint,
    "CEIL": jnp.ceil,
    "FLOOR": jnp.floor,
    "UP": lambda x: jnp.sign(x) * jnp.ceil(jnp.abs(x)),
    "DOWN": jnp.trunc,
    "HALF_UP": lambda x: jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5),
    "HALF_DOWN": lambda x: jnp.sign(x) * jnp.ceil(jnp.abs(x) - 0.5),
}


def _lowers(op: str, since: int = 1) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The same row in each of the domains."""

    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        for domain in DOMAINS:
            lowers(op, since, domain=domain)(fn)
        return fn

    return add


def _rounded(x: jax.Array, mode: str) -> jax.Array:
    rounding = _ROUNDINGS.get(mode.upper())
    if rounding is None:
        raise popart_exception(f"rounding_mode {mode!r} is none of {', '.join(_ROUNDINGS)}.")
    return straight_through(rounding(x), x)


def _bounded(x: jax.Array, bits: float, signed: bool, narrow: bool) -> jax.Array:
    """Limited to the integers of that many bits; `narrow` ones leave out the most negative (unsigned: the largest)."""
    if signed:
        return jnp.clip(x, narrow - 2 ** (bits - 1), 2 ** (bits - 1) - 1)
    return jnp.clip(x, 0, 2**bits - 1 - narrow)


operator("Quant")
operator("IntQuant")
operator("BipolarQuant")
operator("Trunc")


@_lowers("Quant")
@_lowers("IntQuant")
def quant(
    x: Array, scale: Array, zero_point: Array, bit_width: Static, /, *,
    signed: int = 1, narrow: int = 0, rounding_mode: str = "ROUND",
) -> Array:  # fmt: skip
    """Scaled, shifted, limited to integers of `bit_width` bits, rounded, and back; one signed bit means -1 and 1."""
    bits, y = float(np.reshape(bit_width, ())), divided(x, scale) + zero_point
    if bits == 1 and signed:
        whole = straight_through(_sign(y), y)
    else:
        whole = _rounded(_bounded(y, bits, bool(signed), bool(narrow)), rounding_mode)
    return (whole - zero_point) * scale


def _sign(x: jax.Array) -> jax.Array:
    """1 for 0, too; NaN is less than nothing, as in the specification's comparison."""
    return jnp.where(x >= 0, jnp.ones_like(x), -jnp.ones_like(x))


@_lowers("BipolarQuant")
def bipolar_quant(x: Array, scale: Array, /) -> Array:
    """The scale with the sign of the data; its derivative is 1 from -1 to 1."""
    y = jnp.asarray(x)
    return straight_through(_sign(y), jnp.clip(y, -1, 1)) * scale


@_lowers("Trunc")
def trunc_1(
    x: Array, scale: Array, zero_point: Array, in_bit_width: Static, out_bit_width: Static, /, *,
    rounding_mode: str = "FLOOR",
) -> Array:  # fmt: skip
    """Integers without their last bits: `in_bit_width` - `out_bit_width` of them."""
    dropped = float(np.reshape(in_bit_width, ())) - float(np.reshape(out_bit_width, ()))
    whole = _rounded(divided(x, scale) + zero_point, "ROUND") / 2**dropped
    return (_rounded(whole, rounding_mode) - zero_point) * scale


@_lowers("Trunc", 2)
def trunc_2(
    x: Array, scale: Array, zero_point: Array, in_bit_width: Static, out_scale: Array, out_bit_width: Static, /, *,
    rounding_mode: str = "FLOOR", signed: int = 1, narrow: int = 0,
) -> Array:  # fmt: skip
    """Integers of `out_scale`, the scale times a power of two, within `out_bit_width` bits."""
    factor = lax.stop_gradient(jnp.exp2(jnp.rint(jnp.log2(jnp.asarray(out_scale) / scale))))
    whole = _rounded(divided(x, scale) + zero_point, "ROUND") / factor
    limited = _bounded(whole, float(np.reshape(out_bit_width, ())), bool(signed), bool(narrow))
    return (_rounded(limited, rounding_mode) - zero_point / factor) * out_scale
