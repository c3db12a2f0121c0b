"""Arithmetic that only PopXL has: accumulators, optimizer terms, seeds, scaled float8 products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays import Array, onnx_dtype, times_power_of_two
from ..cast import from_float8, to_float8
from ..convolution import flipped
from ..dropout import kept_places
from ..operator import SCALED_FLOAT8, UPDATES, as_graphcore, operator
from ..registry import ProgramState, lowers, resolve
from . import DOMAIN


def _as(x: Any, like: Any) -> Any:
    return jnp.asarray(x).astype(like.dtype)


def _wide(*xs: Any) -> tuple[Any, ...]:
    """Operands in the widest of their types, at least float32 for floating point."""
    kind = jnp.result_type(*(jnp.asarray(x).dtype for x in xs))
    if jnp.issubdtype(kind, jnp.floating):
        kind = jnp.promote_types(kind, jnp.float32)
    return tuple(jnp.asarray(x).astype(kind) for x in xs)


def _rounded(x: Any, kind: Any) -> jax.Array:
    """A value rounded to a type, in at least single precision for further arithmetic."""
    x = jnp.asarray(x)
    wide = jnp.promote_types(kind, jnp.float32) if jnp.issubdtype(kind, jnp.floating) else kind
    return x.astype(kind).astype(wide)


operator("LambSquare", UPDATES, popxl=as_graphcore())


@lowers("LambSquare", domain=DOMAIN)
def lamb_square(x: Array, /) -> jax.Array:
    x = x.astype(jnp.float32)
    return jnp.sum(x * x)


@lowers("ScaledAdd", domain=DOMAIN)
def scaled_add(
    x: Array, y: Array, sa: Array | None = None, sb: Array | None = None, /, *, a: float = 1.0, b: float = 1.0
) -> Array:
    """a x + b y in the type of x; factors given as tensors override the attributes."""
    wide_x, wide_y = _wide(x, y)
    a = a if sa is None else _as(sa, wide_x).reshape(())
    b = b if sb is None else _as(sb, wide_x).reshape(())
    return _as((wide_x if isinstance(a, float) and a == 1 else wide_x * a) + wide_y * b, x)


@lowers("CopyVarUpdate", domain=DOMAIN)
def copy_var_update(t: Array, x: Array, /) -> jax.Array:
    return jnp.broadcast_to(_as(x, t), t.shape)


operator("Accumulate", UPDATES, popxl=as_graphcore(base="AccumulateBaseOp", parameters="type=kind factor=f"))


@lowers("Accumulate", domain=DOMAIN)
def accumulate(t: Array, x: Array, sf: Array | None = None, /, *, kind: str, f: float | None = None) -> Array:
    """PopART's accumulation formulas; the factor is an attribute or a tensor.

    Moving averages and squares round each product to the type of the variable, as PopART does.
    """
    acc, new = _wide(t, x)
    factor = (1.0 if f is None else f) if sf is None else _as(sf, acc).reshape(())

    def rnd(value: Any) -> jax.Array:
        return _rounded(value, t.dtype)

    match kind:
        case "Add":
            out = acc + new
        case "DampenedAdd":
            out = acc + factor * new
        case "DampenedAddSquare":
            out = acc + rnd(rnd(factor * rnd(new)) * rnd(new))
        case "MovingAverage":
            out = rnd(rnd(factor) * acc) + rnd(rnd(1 - factor) * rnd(new))
        case "MovingAverageSquare":
            out = rnd(rnd(factor) * acc) + rnd(rnd(rnd(1 - factor) * rnd(new)) * rnd(new))
        case "DecayAdd":
            out = factor * acc + new
        case "DecayAddSquare":
            out = factor * acc + new * new
        case "Infinity":
            out = jnp.maximum(factor * acc, jnp.abs(new))
        case "Mean":
            out = acc * (factor / (factor + 1)) + new * (1 / (factor + 1))
        case _:
            raise ValueError(f"unknown accumulation {kind!r}")
    return _as(out, t)


@lowers("Sign", domain=DOMAIN)
def sign(x: Array, /) -> jax.Array:
    """-1, 0 or 1; NaN counts as 0."""
    x = jnp.asarray(x)
    return jnp.where(jnp.isnan(x), jnp.zeros((), x.dtype), jnp.sign(x))


operator("AccumulatorScale", UPDATES, popxl=as_graphcore(base="VarUpdateOp", parameters="factor=f"))
operator("AccumulatorZero", UPDATES, popxl=as_graphcore(base="AccumulatorScaleOp", runs_as="AccumulatorScale"))


@lowers("AccumulatorScale", domain=DOMAIN)
def accumulator_scale(t: Array, _: Any = None, sf: Array | None = None, /, *, f: float | None = None) -> Array:
    if sf is None and not f:  # AccumulatorZero has no factor
        return jnp.zeros_like(t)
    (wide,) = _wide(t)
    return _as(wide * (f if sf is None else _as(sf, wide).reshape(())), t)


operator(
    "PopartSparseAccumulate",
    UPDATES,
    popxl=as_graphcore(name="SparseAccumulateOp", base="AccumulateBaseOp", parameters="type factor=f axis"),
)


@lowers("PopartSparseAccumulate", domain=DOMAIN)
def sparse_accumulate(
    t: Array, x: Array, sf: Array | None = None, indices: Array | None = None, original: Array | None = None, /, *,
    axis: int = 0, f: float | None = None,
) -> Array:  # fmt: skip
    """Scatter-add of slices along an axis; indices outside are dropped."""
    acc, new = _wide(t, x)
    factor = (1.0 if f is None else f) if sf is None else _as(sf, acc).reshape(())
    flat = jnp.asarray(indices).reshape(-1)
    inside = (
        (flat < t.shape[axis])
        if jnp.issubdtype(flat.dtype, jnp.unsignedinteger)
        else (flat >= 0) & (flat < t.shape[axis])
    )
    safe = jnp.where(inside, flat, t.shape[axis]).astype(jnp.int32)
    moved = jnp.moveaxis(acc, axis, 0)
    parts = jnp.moveaxis(new, axis, 0).reshape(flat.shape[0], *moved.shape[1:])
    return _as(jnp.moveaxis(moved.at[safe].add(factor * parts, mode="drop"), 0, axis), t)


operator("AdamUpdater", UPDATES, popxl=as_graphcore(parameters="mode weight_decay beta1 beta2 epsilon"))


@lowers("AdamUpdater", domain=DOMAIN)
def adam_updater(
    weight: Array | None = None, m: Array | None = None, v: Array | None = None, step: Array | None = None,
    swd: Array | None = None, sb1: Array | None = None, sb2: Array | None = None, seps: Array | None = None, /, *,
    mode: str, weight_decay: float = 0.0, beta1: float = 0.0, beta2: float = 0.0, epsilon: float = 1e-7,
) -> Array | tuple[Array, ...]:  # fmt: skip
    """The update term, and the incremented time step when there is one.

    Corrections and corrected moments are rounded to the moments' types; the result has the type of a connected
    weight, else of the first moment.
    """
    m_, v_ = (jnp.asarray(x).astype(jnp.float32) for x in (m, v))
    kinds = jnp.asarray(m).dtype, jnp.asarray(v).dtype
    wd, b1, b2, eps = (
        jnp.float32(number) if tensor is None else _as(tensor, m_).reshape(())
        for number, tensor in ((weight_decay, swd), (beta1, sb1), (beta2, sb2), (epsilon, seps))
    )
    new_step = None
    if step is not None:
        new_step = step + jnp.ones((), step.dtype)
        t = new_step.astype(jnp.float32).reshape(())
        m_ = _rounded(m_ / _rounded(1 - b1**t, kinds[0]), kinds[0])
        v_ = v_ if mode == "AdaMax" else v_ / _rounded(1 - b2**t, kinds[1])
    root = v_ if mode == "AdaMax" else _rounded(jnp.sqrt(v_), kinds[1])
    update = _rounded(m_, kinds[1]) / (root + eps)
    kind = kinds[0] if weight is None else weight.dtype
    update = _rounded(update, kind)
    if weight is not None:
        update = update + wd * weight.astype(jnp.float32)
    update = update.astype(kind)
    return update if new_step is None else (update, new_step)


operator("AdamVarUpdate", UPDATES, popxl=as_graphcore(parameters="learning_rate max_weight_norm"))


@lowers("AdamVarUpdate", domain=DOMAIN)
def adam_var_update(
    t: Array, x: Array, r1: Array, r2: Array, slr: Array | None = None, snorm: Array | None = None, /, *,
    learning_rate: float = 1.0, max_weight_norm: float | None = None,
) -> Array:  # fmt: skip
    """t - ratio lr x with LAMB's trust ratio."""
    wide, update = _wide(t, x)
    lr = learning_rate if slr is None else _as(slr, wide).reshape(())
    limit = max_weight_norm if snorm is None else _as(snorm, wide).reshape(())
    weight_norm, update_norm = (jnp.sqrt(r.astype(wide.dtype).reshape(())) for r in (r1, r2))
    if limit is not None:
        weight_norm = jnp.minimum(weight_norm, limit)
    usable = (weight_norm != 0) & (update_norm != 0)
    ratio = jnp.where(usable, weight_norm / jnp.where(usable, update_norm, 1), 1)
    return _as(wide - ratio * lr * update, t)


@lowers("ArgMax", domain=DOMAIN)
def argmax(x: Array, /, *, axis: int = 0, keepdims: int = 0) -> jax.Array:
    return jnp.argmax(x, axis, keepdims=bool(keepdims)).astype(jnp.int32)


@lowers("ArgMin", domain=DOMAIN)
def argmin(x: Array, /, *, axis: int = 0, keepdims: int = 0) -> jax.Array:
    return jnp.argmin(x, axis, keepdims=bool(keepdims)).astype(jnp.int32)


@lowers("CumSum", domain=DOMAIN)
def cumsum(x: Array, axis: Array | None = None, /, *, dim: int) -> jax.Array:
    return jnp.cumsum(x, dim, dtype=x.dtype)


@lowers("TopK", domain=DOMAIN)
def topk(x: Array, /, *, k: int, axis: int, largest: int = 1, sorted: int = 1) -> tuple[jax.Array, jax.Array]:
    moved = jnp.moveaxis(x, axis, -1)
    if largest:
        values, indices = jax.lax.top_k(moved, k)
    else:
        indices = jnp.argsort(moved, -1, stable=True)[..., :k]
        values = jnp.take_along_axis(moved, indices, -1)
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(indices, -1, axis).astype(jnp.int32)


FAULT = "fault:log2_scale"


def _scale(log2_scale: Any, program: Any) -> Any:
    """The scale as a number; one outside [-32, 32) is recorded if the program asks for it."""
    number = jnp.asarray(log2_scale).astype(jnp.int32).reshape(())
    if program is not None and FAULT in program.state:
        program.state[FAULT] = program.state[FAULT] | (number < -32) | (number >= 32)
    return number


def _scaled(product: Any, log2_scale: Any, program: Any) -> Any:
    return times_power_of_two(product, _scale(log2_scale, program)).astype(jnp.float16)


operator("MatMulPow2Scaled", SCALED_FLOAT8)


@lowers("MatMulPow2Scaled", domain=DOMAIN)
def matmul_pow2scaled(a: Array, b: Array, log2_scale: Array, /, *, program: ProgramState) -> Array:
    return _scaled(jnp.matmul(from_float8(a), from_float8(b)), log2_scale, program)


@lowers("MatMulTo", domain=DOMAIN)
def matmul_to(a: Array, b: Array, /, *, to: int) -> jax.Array:
    kind = onnx_dtype(to)
    return jnp.matmul(a, b, preferred_element_type=jnp.promote_types(a.dtype, kind)).astype(kind)


operator("ConvPow2Scaled", SCALED_FLOAT8)


@lowers("ConvPow2Scaled", domain=DOMAIN)
def conv_pow2scaled(
    x: Array, w: Array, log2_scale: Array, /, *, strides: Sequence[int], pads: Sequence[int],
    dilations: Sequence[int], group: int, auto_pad: str, program: ProgramState,
) -> Array:  # fmt: skip
    row = resolve("", "Conv", 11)
    assert row is not None
    kwargs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group, "auto_pad": auto_pad}
    return _scaled(row.fn(from_float8(x), from_float8(w), **kwargs), log2_scale, program)


operator("ConvTransposePow2Scaled", SCALED_FLOAT8)


@lowers("ConvTransposePow2Scaled", domain=DOMAIN)
def conv_transpose_pow2scaled(
    x: Array, w: Array, log2_scale: Array, /, *, strides: Sequence[int], pads: Sequence[int],
    dilations: Sequence[int], group: int, auto_pad: str, output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (), program: ProgramState,
) -> Array:  # fmt: skip
    row = resolve("", "ConvTranspose", 11)
    assert row is not None
    kwargs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group, "auto_pad": auto_pad,
              "output_padding": output_padding, "output_shape": output_shape}  # fmt: skip
    return _scaled(row.fn(from_float8(x), from_float8(w), **kwargs), log2_scale, program)


@lowers("Pow2ScaleThenCast", domain=DOMAIN)
def pow2scale_then_cast(x: Array, log2_scale: Array, /, *, to: int, program: ProgramState) -> Array:
    """cast(x * 2**scale); values out of range become NaN."""
    scaled = times_power_of_two(x.astype(jnp.float32), _scale(log2_scale, program))
    return to_float8(scaled, onnx_dtype(to))


@lowers("CastThenPow2Scale", domain=DOMAIN)
def cast_then_pow2scale(x: Array, log2_scale: Array, /, *, to: int, program: ProgramState) -> Array:
    return times_power_of_two(x.astype(jnp.float32), _scale(log2_scale, program)).astype(onnx_dtype(to))


def key_of(seed: Any) -> Any:
    """JAX random key of a seed (high word, low word)."""
    return cast("jax.Array", jax.random.wrap_key_data(jnp.asarray(seed, jnp.uint32).reshape(2), impl="threefry2x32"))


operator("ModifyRandomSeed", gradients=(), popxl=as_graphcore())


@lowers("ModifyRandomSeed", domain=DOMAIN)
def modify_random_seed(seed: Array, modifier: Array, /) -> jax.Array:
    return jax.random.key_data(jax.random.fold_in(key_of(seed), jnp.asarray(modifier).astype(jnp.uint32).reshape(())))


@lowers("RandomUniform", domain=DOMAIN)
def random_uniform(
    seed: Array, /, *, shape: Sequence[int], dtype: int, low: float = 0.0, high: float = 1.0
) -> jax.Array:
    kind = onnx_dtype(dtype)
    drawn = jax.random.uniform(key_of(seed), shape, jnp.float32, low, high)
    top = np.nextafter(np.asarray(high, kind), np.asarray(low, kind))
    return jnp.minimum(drawn.astype(kind), top) if high > low else drawn.astype(kind)


@lowers("RandomNormal", domain=DOMAIN)
def random_normal(
    seed: Array, /, *, shape: Sequence[int], dtype: int, mean: float = 0.0, scale: float = 1.0
) -> jax.Array:
    return (jax.random.normal(key_of(seed), shape, jnp.float32) * scale + mean).astype(onnx_dtype(dtype))


@lowers("Dropout", domain=DOMAIN)
def dropout(x: Array, seed: Array, /, *, ratio: float) -> Array:
    return _drop(x, seed, x.shape, ratio)


@lowers("ShapedDropout", domain=DOMAIN)
def shaped_dropout(x: Array, seed: Array, /, *, shape: Sequence[int], ratio: float) -> Array:
    return _drop(x, seed, tuple(shape), ratio)


def _drop(x: Any, seed: Any, shape: Any, ratio: float) -> Any:
    kept = kept_places(key_of(seed), 1.0 - ratio, shape)
    scale = 0.0 if ratio >= 1 else 1.0 / (1.0 - ratio)
    return jnp.where(kept, x * jnp.asarray(scale, x.dtype), jnp.zeros((), x.dtype))


@lowers("ConvFlipWeights", domain=DOMAIN)
def conv_flip_weights(w: Array, /, *, group: int = 1) -> jax.Array:
    """Flip float8 weights; elements are only moved, so any type will do."""
    return flipped(w, group)


@lowers("ConvOfFlipped", domain=DOMAIN)
def conv_of_flipped(
    x: Array, w: Array, /, *, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], group: int,
    auto_pad: str, output_padding: Sequence[int] = (), output_shape: Sequence[int] = (),
) -> Array:  # fmt: skip
    """Transposed convolution on weights that are flipped already; flipping twice is the identity."""
    row = resolve("", "ConvTranspose", 11)
    assert row is not None
    return row.fn(
        x, flipped(w, group), strides=strides, pads=pads, dilations=dilations, group=group, auto_pad=auto_pad,
        output_padding=output_padding, output_shape=output_shape,
    )  # fmt: skip


operator("ConvOfFlippedPow2Scaled", SCALED_FLOAT8)


@lowers("ConvOfFlippedPow2Scaled", domain=DOMAIN)
def conv_of_flipped_pow2scaled(
    x: Array, w: Array, log2_scale: Array, /, *, strides: Sequence[int], pads: Sequence[int],
    dilations: Sequence[int], group: int, auto_pad: str, output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (), program: ProgramState,
) -> Array:  # fmt: skip
    wide = conv_of_flipped(
        from_float8(x), from_float8(w), strides=strides, pads=pads, dilations=dilations, group=group,
        auto_pad=auto_pad, output_padding=output_padding, output_shape=output_shape,
    )  # fmt: skip
    return _scaled(wide, log2_scale, program)
