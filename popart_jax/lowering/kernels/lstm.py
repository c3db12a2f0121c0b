"""The LSTM with sigmoid gates and tanh, as a scan over time with a hand-written backward pass.

The backward pass saves the gates instead of recomputing them, multiplies with the recurrent weights in their own
layout, and computes the weight gradient in one matrix product after the scan. On a CPU that is about 1.5 times as fast
as differentiating the scan. Poplar's LSTM saves the gates as well, so the IPU model prices this form.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...ops import varying
from ...ops.arrays import Array
from ...ops.elementwise import accurate_tanh
from ...ops.kernels import IPU, XLA, platform, weights_come_as_stored
from ...ops.primitives import times_turned
from ...ops.recurrent import lstm_scan
from ...ops.recurrent_activations import logistic
from ...ops.recurrent_scan import Projected
from ...ops.two_way import two_way, with_jvp


@logistic.form_for("cpu")
def logistic_by_tanh(x: jax.Array) -> jax.Array:
    """Sigmoid by tanh, which XLA:CPU vectorises; its own sigmoid divides: an LSTM takes three quarters of the time."""
    half = jnp.asarray(0.5, x.dtype)
    return half * jnp.tanh(half * x) + half


@accurate_tanh.form_for(XLA)
@with_jvp()
def tanh_by_exp(x: jax.Array) -> jax.Array:
    """tanh by its definition where XLA's is off by four units in the last place (on CPUs), near saturation.

    There only the small term of the definition is rounded coarsely. Half types are computed in a wider type.
    """
    if x.dtype not in (jnp.float32, jnp.float64):
        return jnp.tanh(x)
    return jnp.where(jnp.abs(x) > 1, jnp.sign(x) * (1 - 2 / (jnp.exp(2 * jnp.abs(x)) + 1)), jnp.tanh(x))


@tanh_by_exp.defjvp
def _tanh_by_exp_jvp(primals: Any, tangents: Any) -> Any:
    y = tanh_by_exp(*primals)
    return y, tangents[0] * (1 - y * y)


@lstm_scan.form_for(XLA, IPU)
@partial(two_way, nondiff_argnums=(0, 1))
def lstm_with_gates(reverse: bool, exact: bool, projected: Projected, r: Any, state: Any, mask: Any) -> Any:
    """See `ops.recurrent.lstm_scan`."""
    return _forward(reverse, exact, projected, r, state, mask)[0]


def _forward(
    reverse: bool, exact: bool, projected: Projected, r: Any, state: Any, mask: Any
) -> tuple[tuple[Any, Any], list[Any]]:
    single = platform() == "cpu" and weights_come_as_stored() and state[0].shape[0] == 1  # of many rows it is slower
    turned = r if single else r.T
    times = times_turned if single else jnp.matmul
    gate, tanh = (jax.nn.sigmoid, accurate_tanh) if exact else (logistic, jnp.tanh)

    def step(old: Any, inputs: Any):
        (h, c), (x, valid) = old, inputs
        z = projected.with_bias(x) + times(h, turned)
        gates, g = gate(z[..., : 3 * h.shape[-1]]), tanh(z[..., 3 * h.shape[-1] :])
        i, o, f = jnp.split(gates, 3, axis=-1)
        new_c = f * c + i * g
        t = tanh(new_c)
        new_h = o * t
        saved = (jnp.concatenate([gates, g], axis=-1), h, c, t)
        if valid is None:
            return (new_h, new_c), (new_h, *saved)
        kept = (jnp.where(valid, new_h, h), jnp.where(valid, new_c, c))
        return kept, (jnp.where(valid, new_h, 0), *saved)

    last, (ys, *saved) = varying.scan(step, state, (projected.steps, mask), reverse=reverse)
    return (last, ys), saved


def _fwd(
    reverse: bool, exact: bool, projected: Projected, r: Any, state: Any, mask: Any
) -> tuple[tuple[Any, Any], tuple[list[Any], Any, Any, Any]]:
    results, saved = _forward(reverse, exact, projected, r, state, mask)
    return results, (saved, projected.bias, r, mask)


def _bwd(reverse: bool, exact: bool, residuals: Any, cotangents: Any) -> tuple[Projected | Array | None, ...]:
    (gates, hs, cs, ts), bias, r, mask = residuals
    (dh, dc), dys = cotangents

    def step(carry: Any, inputs: Any):
        (dh, dc), (gate, c, t, dy, valid) = carry, inputs
        i, o, f, g = jnp.split(gate, 4, axis=-1)
        dh_in = dh + dy if valid is None else jnp.where(valid, dh + dy, 0)
        dc_in = (dc if valid is None else jnp.where(valid, dc, 0)) + dh_in * o * (1 - t * t)
        parts = (dc_in * g * i * (1 - i), dh_in * t * o * (1 - o), dc_in * c * f * (1 - f), dc_in * i * (1 - g * g))
        d = jnp.concatenate(parts, axis=-1)
        before = (d @ r, dc_in * f)
        if valid is not None:
            before = tuple(jnp.where(valid, new, old) for new, old in zip(before, (dh, dc), strict=True))
        return before, d

    dstate, dxs = varying.scan(step, (dh, dc), (gates, cs, ts, dys, mask), reverse=not reverse)
    return Projected.gradient(dxs, bias), jnp.einsum("tng,tnh->gh", dxs, hs), dstate, None


lstm_with_gates.defvjp(_fwd, _bwd)
