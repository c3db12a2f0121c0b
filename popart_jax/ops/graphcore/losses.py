"""Losses: Nll, L1, IdentityLoss.  Source of formulas and clamps: PopART's operator descriptions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import OpError, popart_exception
from ...model.node_parts import reduction_as_text
from ..arrays import Array, info, listed
from ..builder_methods import builder_method
from ..elementwise import absolute
from ..operator import LOSS, MOVES_DATA, ROUNDS, as_graphcore, operator
from ..registry import lowers
from ..two_way import with_jvp, with_vjp

DOMAIN = "ai.graphcore"
_TINY_HALF = 6.104e-05


def reduce_loss(values: Array, reduction: str, count: Any = None) -> Array:
    """Sum, Mean (over `count` or all elements) or neither, accumulated in float32; otherwise popart_exception."""
    kind = reduction.lower()
    if kind in ("none", "noreduction"):
        return values
    if kind not in ("sum", "mean"):
        raise popart_exception(f"Unexpected ReductionType string, {reduction}. Cannot convert to ReductionType")
    precise = (
        jnp.promote_types(values.dtype, jnp.float32) if jnp.issubdtype(values.dtype, jnp.floating) else values.dtype
    )
    total = values.astype(precise).sum(dtype=precise)
    if kind == "mean":
        total = total / jnp.asarray(values.size if count is None else count, precise)
    return total.astype(values.dtype)


@with_jvp(1)
def clamped_nll(p: jax.Array, eps: tuple[float, float]) -> jax.Array:
    """-log(max(p, eps[0])); the derivative divides by max(p, eps[1])."""
    return -jnp.log(jnp.maximum(p, jnp.asarray(eps[0], p.dtype)))


@clamped_nll.defjvp
def _clamped_nll_jvp(eps: tuple[float, float], primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    (p,), (dp,) = primals, tangents
    return clamped_nll(p, eps), -dp / jnp.maximum(p, jnp.asarray(eps[1], p.dtype))


def pick(probs: Array, labels: Array) -> jax.Array:
    """The entry of the last axis that each label names, 0 for a label outside the axis."""
    classes = probs.shape[-1]
    inside = (labels >= 0) & (labels < classes)
    index = jnp.where(inside, labels, 0).astype(jnp.int32)
    return jnp.where(inside, jnp.take_along_axis(probs, index[..., None], -1)[..., 0], jnp.zeros((), probs.dtype))


@with_vjp(3)
def fused_nll(logits: jax.Array, probs: jax.Array, labels: jax.Array, plus_eps: bool) -> jax.Array:
    """Loss of Softmax followed by Nll, with the fused gradient (probs - onehot) for the logits."""
    p = pick(probs, labels)
    if plus_eps:
        return -jnp.log(p.astype(jnp.float32) + 1e-7).astype(p.dtype)
    return clamped_nll(p, _clamps(p.dtype))


def _fused_nll_fwd(
    logits: jax.Array, probs: jax.Array, labels: jax.Array, plus_eps: bool
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return fused_nll(logits, probs, labels, plus_eps), (probs, labels)


def _fused_nll_bwd(plus_eps: bool, saved: Any, g: jax.Array) -> tuple[Array | None, ...]:
    probs, labels = saved
    onehot = jnp.arange(probs.shape[-1]) == labels[..., None]
    return (probs - onehot.astype(probs.dtype)) * g[..., None], jnp.zeros_like(probs), None


fused_nll.defvjp(_fused_nll_fwd, _fused_nll_bwd)


def _clamps(dtype: Any) -> tuple[float, float]:
    return (_TINY_HALF, _TINY_HALF) if dtype == jnp.float16 else (1e-7, 1e-10)


def _check_nll(probs: Array, labels: Any) -> None:
    shown = info(probs)
    if probs.ndim == 0:
        raise OpError(f"Invalid shape for prob tensor ({shown}) in Op {{op}}. ", "Nll")
    if labels.shape != probs.shape[:-1]:
        raise OpError(
            f"The label tensor ({info(labels)}) must have shape {listed(probs.shape[:-1])} to match all but the final "
            f"dimension of the probabilities tensor ({shown}) in Op {{op}}. ", "Nll",
        )  # fmt: skip
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise OpError(
            "Expected the label tensor NllOp to be an integer data type (fixed point), not the case for input with "
            f"info: {info(labels)}. This error for Op {{op}}. ", "Nll",
        )  # fmt: skip


operator(
    "Nll",
    ROUNDS | LOSS,
    gradients="g x0 x1",
    popxl=as_graphcore(parameters="ignoreIndex reduction inputIsLogProbability"),
    neutral="ignoreIndex",
)
builder_method(
    "Nll",
    "nllloss(args, reduction:ReductionType=Mean, ignoreIndex:int?, inputIsLogProbability:bool=False)",
    write=reduction_as_text,
)


@lowers("Nll", domain=DOMAIN)
def nll(
    probs: Array, labels: Array, /, *, reduction: str, inputIsLogProbability: int = 0, ignoreIndex: int | None = None
) -> Array:
    _check_nll(probs, labels)
    p = pick(probs, labels)
    losses = -p if inputIsLogProbability else clamped_nll(p, _clamps(probs.dtype))
    return _reduce_kept(losses, labels, reduction, ignoreIndex)


def _reduce_kept(losses: Any, labels: Any, reduction: str, ignore: int | None) -> Array:
    """Reduce the losses of the samples whose label is not `ignore`."""
    if ignore is None:
        return reduce_loss(losses, reduction)
    kept = labels != jnp.asarray(np.asarray(ignore).astype(labels.dtype))
    return reduce_loss(jnp.where(kept, losses, 0), reduction, jnp.maximum(kept.sum(), 1))


@lowers("SoftmaxNll", domain=DOMAIN)
def softmax_nll(
    logits: Array, labels: Array, /, *, reduction: str, ignoreIndex: int | None = None,
    inputIsLogProbability: int = 0, add_epsilon: int = 1,
) -> Array:  # fmt: skip
    """Softmax over the last axis and Nll as one op, made by patterns SoftmaxGradDirect, NlllWithSoftmaxGradDirect."""
    _check_nll(logits, labels)
    probs = jax.lax.stop_gradient(jax.nn.softmax(logits, -1))
    return _reduce_kept(fused_nll(logits, probs, labels, bool(add_epsilon)), labels, reduction, ignoreIndex)


operator("L1", ROUNDS | LOSS, gradients="g x0", neutral="zero")
builder_method("L1", "l1loss(args, lambda:float, reduction:ReductionType=Mean)", write=reduction_as_text)


@lowers("L1", domain=DOMAIN)
def l1(x: Array, /, *, lambda_: float, reduction: str) -> Array:
    if x.ndim == 0:
        raise popart_exception("L1Op not valid for rank-0 tensor (scalar)")
    return reduce_loss(jnp.asarray(absolute(x)) * jnp.asarray(lambda_).astype(x.dtype), reduction)


operator("IdentityLoss", MOVES_DATA | ROUNDS | LOSS, gradients="g", popxl=as_graphcore(runs=1), neutral="zero")
builder_method("IdentityLoss", "identityloss(args, reduction:ReductionType=Mean)", write=reduction_as_text)


@lowers("IdentityLoss", domain=DOMAIN)
def identity_loss(x: Array, /, *, reduction: str) -> Array:
    return reduce_loss(x, reduction)
