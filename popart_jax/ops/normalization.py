"""Normalisation: batch, instance, group, layer, RMS, Lp, mean-variance, local response."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from ..errors import IN_JAX, popart_exception
from . import primitives
from .arrays import Array, listed, merge_axes, normal_axes, normal_axis, onnx_dtype, split_axis, wide
from .folding import total
from .gradients import refuse_gradient
from .kernels import Computation
from .operator import EXPENSIVE, NORM, PER_SAMPLE, ROUNDS, ROW_BY_ROW, as_graphcore, as_onnx, gradient, operator
from .pooling import lp_norm
from .registry import OutputCount, Training, lowers
from .two_way import two_way, with_jvp

_IMAGE = 4  # axes of an image


def moments(x: jax.Array, axes: Sequence[int]) -> tuple[jax.Array, jax.Array]:
    """Mean and biased variance over `axes`, kept as 1."""
    mean = x.mean(axes, keepdims=True)
    return mean, jnp.square(x - mean).mean(axes, keepdims=True)


@partial(two_way, nondiff_argnums=(1, 2))
def standardise(x: jax.Array, axes: tuple[int, ...], epsilon: float) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(x - mean) / sqrt(var + epsilon), the mean, and the inverse deviation.

    The backward pass is written by hand: it reads the data twice, the one derived by JAX four times.
    """
    mean, var = moments(x, axes)
    inverse = lax.rsqrt(var + epsilon)
    return (x - mean) * inverse, mean, inverse


def _standardise_forward(
    x: jax.Array, axes: tuple[int, ...], epsilon: float
) -> tuple[tuple[Any, Any, Any], tuple[jax.Array, Any, Any]]:
    normal, mean, inverse = standardise(x, axes, epsilon)
    return (normal, mean, inverse), (x, mean, inverse)


def _standardise_backward(axes: tuple[int, ...], epsilon: float, saved: Any, cotangents: Any) -> tuple[Any]:
    x, mean, inverse = saved
    g, of_mean, of_inverse = cotangents
    normal, count = (x - mean) * inverse, x.size // max(mean.size, 1)
    along, level = (g * normal).mean(axes, keepdims=True), g.mean(axes, keepdims=True)
    return ((g - level - normal * along) * inverse + (of_mean - of_inverse * jnp.square(inverse) * normal) / count,)


standardise.defvjp(_standardise_forward, _standardise_backward)


def per_channel(x: Any, rank: int) -> jax.Array:
    """A vector of channel values, shaped to broadcast at axis 1 of a tensor of `rank` dimensions."""
    return x.reshape((-1,) + (1,) * (rank - 2))


def check_statistics(x: Array, named: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Raise if a batch norm parameter does not have the shape of the features."""
    matched = "dimension 1" if len(shape) == 1 else "all but the first dimension"
    for name, value in named.items():
        if np.shape(value) != shape:
            raise popart_exception(
                f"expected shape of batch norm input tensor {name} ({listed(np.shape(value))}) to be {listed(shape)} "
                f"to match {matched} of X ({listed(x.shape)})"
            )


def batch_statistics(x: Array, axes: Sequence[int]) -> tuple[jax.Array, jax.Array]:
    """Mean and biased variance per feature, computed in float32."""
    mean, var = moments(wide(x), axes)
    return mean, var


def normalise(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, epsilon: float, shape: tuple[int, ...]
) -> jax.Array:
    """Affine form of batch normalisation with given statistics."""
    data, scale, bias, mean, var = wide(x), *(wide(v).reshape(shape) for v in (scale, bias, mean, var))
    factor = primitives.multiply(scale, lax.rsqrt(primitives.add(var, np.asarray(epsilon, var.dtype))))
    return _affine(data, mean, factor, bias).astype(x.dtype)


@with_jvp()
def _affine(x: Array, centre: Array, factor: Array, bias: Array) -> jax.Array:
    """``(x - centre) * factor + bias``."""
    return primitives.add(primitives.multiply(primitives.subtract(x, centre), factor), bias)


def _affine_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    """The factor's gradient is ``sum(g * x) - centre * sum(g)``, for which nothing is kept but the data.

    XLA:CPU would write ``x - centre`` for a ``sum(g * (x - centre))``. Its error is as large as that of the data's own
    rounding: 2e-6 of the gradient where the mean is ten deviations, 2e-4 where it is a thousand.
    """
    (x, centre, factor, _), (dx, of_centre, of_factor, of_bias) = primals, tangents
    offset = _times(of_bias, 1) - _times(of_centre, factor) - _times(of_factor, centre)  # one for each channel
    return _affine(*primals), jnp.broadcast_to(_times(dx, factor) + _times(of_factor, x) + offset, x.shape)


def _times(tangent: Any, value: Any) -> Any:
    """The product; zero without one where the tangent is, as infinite data times zero are NaN."""
    return 0.0 if isinstance(tangent, SymbolicZero) else tangent * value


_affine.defjvp(_affine_jvp, symbolic_zeros=True)


def train_batch_norm(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, momentum: float, epsilon: float,
    axes: Sequence[int], shape: tuple[int, ...],
) -> tuple[Array, ...]:  # fmt: skip
    """Output by batch statistics, running statistics, batch statistics."""
    batch_mean, batch_var = batch_statistics(x, axes)
    y = normalise(x, scale, bias, batch_mean, batch_var, epsilon, shape)
    fixed = [lax.stop_gradient(s).reshape(np.shape(mean)) for s in (batch_mean, batch_var)]
    running = [
        (wide(old) * momentum + new * (1 - momentum)).astype(old.dtype)
        for old, new in zip(map(lax.stop_gradient, (mean, var)), fixed, strict=True)
    ]
    return y, *running, fixed[0].astype(mean.dtype), fixed[1].astype(var.dtype)


def _features(x: Array, spatial: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Axes that statistics run over, their broadcast shape, and the shape of the parameters."""
    if spatial:
        return (0, *range(2, x.ndim)), (1, x.shape[1], *(1,) * (x.ndim - 2)), x.shape[1:2]
    return (0,), (1, *x.shape[1:]), x.shape[1:]


_INFERENCE_FORM = (
    "The batch norm op has only one output, which means it is in inference mode, but its gradient Op is being created; "
    "give it five outputs, or detach it."
)


operator(
    "BatchNormalization",
    EXPENSIVE | NORM | ROUNDS,
    gradients=gradient("g x0 x1 y3 y4", of=(0, 1, 2)),
    popxl=as_onnx(9, runs=9, name="BatchNormOp"),
)


@lowers("BatchNormalization", 1, 6, 7, 9)
def batch_norm(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, /, *, epsilon: float = 1e-5, momentum: float = 0.9,
    spatial: int = 1, is_test: int = 0, n_outputs: OutputCount = 1,
) -> Array | tuple[Array, ...]:  # fmt: skip
    """More than one output selects batch statistics, as in the old versions."""
    axes, shape, params = _features(x, spatial)
    check_statistics(x, {"scale": scale, "B": bias, "mean": mean, "var": var}, params)
    if n_outputs > 1 and not is_test:
        return train_batch_norm(x, scale, bias, mean, var, momentum, epsilon, axes, shape)
    return normalise(x, scale, bias, mean, var, epsilon, shape)


@lowers("BatchNormalization", 1, popart=True, refuses=True)
def popart_batch_norm(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, /, *, epsilon: float = 1e-5, momentum: float = 0.9,
    spatial: int = 1, is_test: int = 0, n_outputs: OutputCount = 1, training: Training = False,
) -> Array | tuple[Array, ...]:  # fmt: skip
    """Data have at least three dimensions; with given statistics there is no gradient in training."""
    if x.ndim < 3:
        raise popart_exception(f"batch norm requires X to have a rank >= 3.  x has rank {x.ndim}")
    fixed = is_test or n_outputs < 2
    results = batch_norm(
        x, scale, bias, mean, var, epsilon=epsilon, momentum=momentum, spatial=spatial, is_test=is_test,
        n_outputs=n_outputs,
    )  # fmt: skip
    return refuse_gradient(results, _INFERENCE_FORM, IN_JAX) if training and fixed else results


@lowers("BatchNormalization", 14, popart=True)
@lowers("BatchNormalization", 14, 15)
def batch_norm_14(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, /, *, epsilon: float = 1e-5, momentum: float = 0.9,
    training_mode: int = 0,
) -> Array | tuple[Array, ...]:  # fmt: skip
    x_ = x if x.ndim > 1 else x[:, None]
    axes, shape, params = _features(x_, 1)
    check_statistics(x, {"scale": scale, "B": bias, "mean": mean, "var": var}, params)
    if training_mode:
        y, *running = train_batch_norm(x_, scale, bias, mean, var, momentum, epsilon, axes, shape)[:3]
        return y.reshape(x.shape), *running
    return normalise(x_, scale, bias, mean, var, epsilon, shape).reshape(x.shape)


operator(
    "InstanceNormalization",
    PER_SAMPLE | EXPENSIVE | NORM | ROUNDS,
    gradients=gradient("g x0 x1", of=(0, 1, 2)),
    ranks="input 3+ scale 1 B 1",
)


@lowers("InstanceNormalization", 1, 6, 22)
def instance_norm(x: Array, scale: Array, bias: Array, /, *, epsilon: float = 1e-5) -> Array:
    return group_normalise(x, scale, bias, x.shape[1], epsilon)[0].astype(x.dtype)


def check_channels(x: Array, groups: int) -> None:
    """Raise if the channels don't divide into the groups."""
    if groups < 1 or x.shape[1] % groups:
        raise popart_exception(f"{x.shape[1]} channels can't be divided into {groups} groups.")


@Computation
def group_normalise(
    x: Array, scale: Array, bias: Array, groups: int, epsilon: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Runs of channels standardised, times a scale plus a bias per channel; mean and inverse deviation (N, groups)."""
    check_channels(x, groups)
    flat = merge_axes(split_axis(wide(x), 1, groups), 2)
    normal, mean, inverse = standardise(flat, (2,), epsilon)
    y = normal.reshape(x.shape) * per_channel(wide(scale), x.ndim) + per_channel(wide(bias), x.ndim)
    return y, mean[..., 0], inverse[..., 0]


operator(
    "GroupNormalization",
    PER_SAMPLE | EXPENSIVE | NORM | ROUNDS,
    gradients=gradient("g x0 x1 y1 y2", of=(0, 1, 2)),
    ranks="X 2+ scale 1 bias 1",
    popxl=as_graphcore(runs=1, name="GroupNormOp"),
)


@lowers("GroupNormalization", 18)
def group_norm_18(x: Array, scale: Array, bias: Array, /, *, num_groups: int, epsilon: float = 1e-5) -> jax.Array:
    """Scale and bias hold one value per group."""
    spread = x.shape[1] // num_groups
    return group_norm_21(x, jnp.repeat(scale, spread), jnp.repeat(bias, spread), num_groups=num_groups, epsilon=epsilon)


@lowers("GroupNormalization", 21)
def group_norm_21(
    x: Array, scale: Array, bias: Array, /, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> jax.Array:
    return group_normalise(x, scale, bias, num_groups, epsilon)[0].astype(x.dtype)


def trailing(x: Array, axis: int) -> tuple[int, ...]:
    """All axes from `axis` on."""
    return tuple(range(normal_axis(axis, x.ndim), x.ndim))


def _check_scales(x: Array, **scales: Any) -> None:
    """Raise when a scale or bias can't be broadcast to the data."""
    for name, s in scales.items():
        if s is not None and (s.ndim > x.ndim or any(n not in (1, m) for n, m in zip(s.shape[::-1], x.shape[::-1]))):  # noqa: B905
            raise popart_exception(f"{name} of shape {list(s.shape)} can't be broadcast to data of {list(x.shape)}")


def _stash(x: Array, stash_type: int) -> Array:
    return x.astype(jnp.promote_types(x.dtype, onnx_dtype(stash_type)))


operator("LayerNormalization", ROUNDS | ROW_BY_ROW)


@lowers("LayerNormalization", 1, 17)  # 1: ONNX Runtime's, which its optimizer writes into models of older opsets
def layer_norm(
    x: Array, scale: Array, bias: Array | None = None, /, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Any, Any, Any]:
    _check_scales(x, Scale=scale, B=bias)
    stashed = _stash(x, stash_type)
    normal, mean, inverse = standardise(stashed, trailing(x, axis), epsilon)
    y = normal.astype(x.dtype) * scale
    kept = onnx_dtype(stash_type)
    return (y if bias is None else y + bias), mean.astype(kept), inverse.astype(kept)


operator("RMSNormalization", ROW_BY_ROW)


@lowers("RMSNormalization", 23)
def rms_norm(x: Array, scale: Array, /, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Array:
    _check_scales(x, scale=scale)
    stashed = _stash(x, stash_type)
    inverse = lax.rsqrt(jnp.square(stashed).mean(trailing(x, axis), keepdims=True) + epsilon)
    return ((stashed * inverse).astype(x.dtype) * scale).astype(scale.dtype)


operator("LpNormalization", ROUNDS, batch="along axis")


@lowers("LpNormalization", 1, 22)
def lp_normalization(x: Array, /, *, axis: int = -1, p: int = 2) -> Array:
    """Division by the norm; an all-zero slice gives zeros."""
    if p not in (1, 2):
        raise popart_exception(f"LpNormalization: p must be 1 or 2, got {p}")
    powers = jnp.abs(x) if p == 1 else jnp.square(x)
    norm = lp_norm(total(powers, (normal_axis(axis, x.ndim),)), p)
    return primitives.divide(x, jnp.where(norm == 0, jnp.ones((), x.dtype), norm))


def check_image(op: str, x: Array) -> None:
    """Raise popart_exception where an operand of an operator for images has not four axes."""
    if x.ndim != _IMAGE:
        raise popart_exception(f"{op} takes images with {_IMAGE} axes, got shape {list(x.shape)}.")


@lowers("MeanVarianceNormalization", 1)
def mean_variance_normalization_1(x: Array, /, *, across_channels: int = 0, normalize_variance: int = 1) -> Array:
    """Each channel of images, or all of them, over the batch: less the mean, divided by the deviation."""
    check_image("MeanVarianceNormalization", x)
    axes = (0, 1, 2, 3) if across_channels else (0, 2, 3)
    if normalize_variance:
        return mean_variance_normalization(x, axes=axes)
    return (wide(x) - wide(x).mean(axes, keepdims=True)).astype(x.dtype)


@lowers("MeanVarianceNormalization", 9, 13)
def mean_variance_normalization(x: Array, /, *, axes: Sequence[int] = (0, 2, 3)) -> Array:
    """(x - mean) / (deviation + 1e-9), as ONNX's function body."""
    mean, var = moments(wide(x), normal_axes(axes, x.ndim))
    deviation = jnp.sqrt(jnp.where(var == 0, 1, var)) * (var != 0)
    return ((wide(x) - mean) / (deviation + 1e-9)).astype(x.dtype)


operator("LRN", PER_SAMPLE | ROUNDS, gradients="g x0")


@lowers("LRN", 1, 13)
def lrn(x: Array, /, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Array:
    """x / (bias + alpha/size * sum of squares over neighbouring channels)^beta."""
    if size < 1:
        raise popart_exception(f"LRN requires size to be >= 1. size is {size}")
    most = x.shape[1] - 1  # no window is wider
    lo, hi = min((size - 1) // 2, most), min(size // 2, most)
    ones = (1,) * (x.ndim - 2)
    squares = lax.reduce_window(
        jnp.square(x), np.zeros((), x.dtype), lax.add, (1, lo + hi + 1, *ones), (1,) * x.ndim,
        ((0, 0), (lo, hi), *((0, 0),) * (x.ndim - 2)),
    )  # fmt: skip
    return x * (bias + (alpha / size) * squares) ** jnp.asarray(-beta, x.dtype)
