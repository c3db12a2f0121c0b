"""Recurrences over time: a scan of a cell, with the gradients of its weights gathered in one product afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from . import varying
from .two_way import two_way

Cell = Callable[..., tuple[Any, jax.Array]]
Pull = Callable[..., Any]
Dot = Callable[[int, jax.Array], jax.Array]


class Projected(NamedTuple):
    """What the inputs of all steps give the gates: `steps` (T, N, G), and the `bias` (G) that each step adds.

    Added beforehand, the bias would be another pass over all steps, which takes a tenth of an LSTM's time on a CPU.
    """

    steps: Any
    bias: Any = None

    def with_bias(self, step: Any) -> Any:
        """One of the steps (N, G) with the bias."""
        return step if self.bias is None else step + self.bias

    @classmethod
    def gradient(cls, steps: Any, bias: Any) -> Projected:
        """The gradient whose `steps` are given, for this bias."""
        return cls(steps, None if bias is None else steps.sum((0, 1)))


@partial(two_way, nondiff_argnums=(0, 1))
def recur(cell: Cell, reverse: bool, params: Any, weights: Any, state: Any, projected: Projected, mask: Any) -> Any:
    """Scan `cell` over time; returns the last state, and the outputs of all steps (T, N, H).

    ``cell(dot, params, state, x) -> (state, output)`` uses the recurrent weights only through ``dot(i, a)``, which is
    ``a @ weights[i]``. Where `mask` (T, N, 1) is false the state stays and the output is 0.
    """
    return _scan(cell, reverse, params, weights, state, projected, mask, None)[0]


def _scan(
    cell: Cell, reverse: bool, params: Any, weights: Sequence[jax.Array], state: Any, projected: Projected, mask: Any,
    probes: Any,
) -> tuple[tuple[Any, Any], Any]:  # fmt: skip
    def body(old: Any, inputs: Any):
        x, valid, nudges = inputs
        used: list[jax.Array] = []

        def dot(i: int, a: jax.Array):
            used.append(a)
            product = a @ weights[i]
            return product if nudges is None else product + nudges[i]

        new, y = cell(dot, params, old, projected.with_bias(x))
        if valid is not None:
            new = jax.tree.map(partial(jnp.where, valid), new, old)
            y = jnp.where(valid, y, 0)
        return new, (y, used if nudges is not None else [])

    last, (ys, used) = varying.scan(body, state, (projected.steps, mask, probes), reverse=reverse)
    return (last, ys), used


def _recur_fwd(
    cell: Cell, reverse: bool, params: Any, weights: Sequence[jax.Array], state: Any, projected: Projected, mask: Any
):
    xs, bias = projected
    axes = varying.axes_of((params, weights, state, projected, mask))  # probes differ by device, as products do
    probes = [varying.varying(jnp.zeros((*xs.shape[:2], w.shape[1]), xs.dtype), axes) for w in weights]

    def run(params: Any, state: Any, xs: jax.Array, probes: Any):
        return _scan(cell, reverse, params, weights, state, Projected(xs, bias), mask, probes)

    out, pull, used = cast("tuple[Any, Pull, Any]", jax.vjp(run, params, state, xs, probes, has_aux=True))
    return out, (pull, used, bias)


def _recur_bwd(cell: Cell, reverse: bool, saved: Any, g: Any):
    pull, used, bias = saved
    dparams, dstate, dxs, dproducts = pull(g)
    dweights = [jnp.einsum("tna,tnb->ab", a, d) for a, d in zip(used, dproducts, strict=True)]
    return dparams, dweights, dstate, Projected.gradient(dxs, bias), None


recur.defvjp(_recur_fwd, _recur_bwd)
