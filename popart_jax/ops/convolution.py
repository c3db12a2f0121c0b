"""Convolutions: Conv, ConvTranspose, CausalConvWithState."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import OpError, popart_exception
from . import primitives
from .arrays import Array, listed
from .float8_products import has_float8, of_float8
from .kernels import Computation
from .operator import EXPENSIVE, PER_SAMPLE, PRODUCT, ROUNDS, as_onnx, gradient, operator
from .registry import lowers
from .windows import Pads, check_auto_pad, fitting, pairs, per_dim, positive, split_padding, window


@Computation
def convolve(
    x: Array,
    w: Array,
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    group: int = 1,
    data_dilations: Sequence[int] | None = None,
) -> jax.Array:
    """Correlation of x (N, C, ...) with w (M, C/group, ...), in the layout of ONNX."""
    rank = x.ndim - 2
    names = "".join(chr(ord("a") + i) for i in range(rank))
    layout = (f"NC{names}", f"OI{names}", f"NC{names}")
    operands = cast("tuple[jax.Array, jax.Array]", (x, w))  # NumPy arrays will do
    return lax.conv_general_dilated(
        *operands, strides, pads, data_dilations, dilations, layout, feature_group_count=group
    )


def check_bias(bias: Any, channels: int) -> None:
    """Raise unless there is one value for each output channel, or no bias."""
    if bias is not None and bias.shape != (channels,):
        raise popart_exception(f"bias of shape {list(bias.shape)}; expected [{channels}], one value per output channel")


def add_bias(y: Array, bias: Any) -> Array:
    """Add a bias of one value per channel (axis 1)."""
    check_bias(bias, y.shape[1])
    return y if bias is None else primitives.add(y, bias.reshape((-1,) + (1,) * (y.ndim - 2)))


def check_groups(channels: int, each: int, outputs: int, group: int) -> None:
    """Raise unless groups of `each` input channels divide input and output channels."""
    if group < 1:
        raise OpError("group attribute in {Op} must be greater than zero", "Conv")
    if each * group != channels or outputs % group:
        raise OpError(
            f"Invalid value for group ({group}) in {{Op}}. number of input channels ({channels}) / group ({group}) "
            f"should be equal to the weight inputs second dimension ({each})", "Conv",
        )  # fmt: skip


def check_kernel(kernel_shape: Sequence[int], window_shape: Sequence[int]) -> None:
    if kernel_shape and tuple(kernel_shape) != tuple(window_shape):
        given, inferred = listed(kernel_shape), listed(window_shape)
        raise OpError(
            f"kernel_shape, {given}, does not match inferred shape from weight input '{{1}}', {inferred}", "Conv"
        )


operator(
    "Conv",
    PER_SAMPLE | PRODUCT | EXPENSIVE | ROUNDS,
    gradients=[gradient("g x1", name="ConvDataGrad"), gradient("g x0", of=1, name="ConvWeightsGrad")],
    bias=2,
    ranks="X 3+ W =X B 1",
    popxl=as_onnx(11, runs=11, base="MultiConvBaseOp"),
)


@lowers("Conv", 1, 11, 22)
def conv(
    x: Array, w: Array, b: Array | None = None, /, *, auto_pad: str = "NOTSET", dilations: Sequence[int] = (),
    group: int = 1, kernel_shape: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Array:  # fmt: skip
    """In PopART float8 operands come with a power of two (INT32) in place of the bias, and give FLOAT16."""
    if has_float8(x, w):
        how = {"auto_pad": auto_pad, "dilations": dilations, "group": group, "pads": pads, "strides": strides}
        return of_float8("Conv", partial(conv, kernel_shape=kernel_shape, **how), x, w, b)
    check_groups(x.shape[1], w.shape[1], w.shape[0], group)
    check_kernel(kernel_shape, w.shape[2:])
    win = window(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    return add_bias(convolve(x, w, win.strides, win.pads, win.dilations, group), b)


operator(
    "ConvTranspose", PER_SAMPLE | ROUNDS, ranks="X 3+ W =X B 1", removed_by="ConvTranspose", popxl=as_onnx(11, runs=11)
)


@lowers("ConvTranspose", 1, 11, 22)
def conv_transpose(
    x: Array, w: Array, b: Array | None = None, /, *, auto_pad: str = "NOTSET", dilations: Sequence[int] = (),
    group: int = 1, kernel_shape: Sequence[int] = (), output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Array:  # fmt: skip
    check_transposed(x.shape, w.shape[0], group, w.shape, 1)
    form = transposed(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad, output_padding, output_shape)
    padding = tuple((r - 1 - lo, r - 1 - hi) for r, (lo, hi) in zip(form.reach, form.crop, strict=True))
    ones = (1,) * (x.ndim - 2)
    return add_bias(convolve(x, flipped(w, group), ones, padding, form.dilations, group, form.strides), b)


@lowers("ConvTranspose", 1, popart=True, like=conv_transpose)
def popart_conv_transpose(
    x: Array, w: Array, b: Array | None = None, /, *, auto_pad: str = "NOTSET", dilations: Sequence[int] = (),
    output_shape: Sequence[int] = (), **rest: Any,
) -> Array:  # fmt: skip
    """Without dilations; keeps the rounding of ConvTranspose-1."""
    auto_pad, output_shape = popart_padding(x.ndim - 2, auto_pad, dilations, output_shape)
    product = partial(conv_transpose, auto_pad=auto_pad, output_shape=output_shape, **rest)
    return of_float8("ConvTranspose", product, x, w, b) if has_float8(x, w) else product(x, w, b)


def popart_padding(
    rank: int, auto_pad: str, dilations: Sequence[int], output_shape: Sequence[int]
) -> tuple[str, Sequence[int]]:
    """ONNX's `auto_pad` and `output_shape` that correspond to PopART's attributes of a transposed convolution.

    PopART refuses dilations, and ``VALID`` together with an output shape: popart_exception.
    """
    if any(d != 1 for d in dilations):
        raise popart_exception("Non default value for dilations is not supported.")
    check_auto_pad(auto_pad)
    if len(output_shape) == rank + 2:  # a shape with batch and channels does not affect the padding
        return "NOTSET", ()
    if not output_shape:
        return ("VALID" if auto_pad == "VALID" else "NOTSET"), ()
    if auto_pad == "VALID":
        raise popart_exception("`VALID` type for auto_pad cannot be used if the `output_shape` is also set")
    return ("SAME_LOWER" if auto_pad == "SAME_UPPER" else "SAME_UPPER"), output_shape


def check_transposed(data: Sequence[int], expected: int, group: int, weights: Sequence[int], channel_axis: int) -> None:
    """Refuse a transposed convolution of data with other channels than its weights take, or that can't be grouped."""
    if group < 1:
        raise OpError("group attribute in {Op} must be greater than zero", "ConvTranspose")
    channels = data[channel_axis]
    if channels != expected:
        raise popart_exception(
            f"Unexpected number of channels in the input tensor: {channels}. Given non-transposed weight tensor of "
            f"shape {listed(weights)}, transposed convolution expects input tensor of size {listed(data)} to have "
            f"{expected} channels."
        )
    if channels % group:
        raise popart_exception(f"ConvTranspose: {group} groups do not divide the {channels} channels of the input.")


@dataclass(frozen=True)
class Transposed:
    """Geometry of a transposed convolution, one entry per spatial dimension.

    `reach` is the extent of the dilated window; `crop` is the number of elements cut from both sides of the full
    result, negative where zeros are added.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    reach: tuple[int, ...]
    crop: Pads

    def sizes(self, given: Sequence[int]) -> tuple[int, ...]:
        """Sizes of the result for data of these sizes."""
        parts = zip(given, self.strides, self.reach, self.crop, strict=True)
        return tuple(s * (n - 1) + r - lo - hi for n, s, r, (lo, hi) in parts)


def transposed(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: Sequence[int], auto_pad: str, output_padding: Sequence[int], output_shape: Sequence[int],
) -> Transposed:  # fmt: skip
    """The geometry that ONNX's attributes ask for."""
    rank = len(sizes)
    steps = fitting("strides", positive("strides", per_dim("strides", strides, rank)))
    dils = fitting("dilations", positive("dilations", per_dim("dilations", dilations, rank)))
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dils, strict=True))
    extra = fitting("output_padding", output_padding) or (0,) * rank
    if min(extra, default=0) < 0:
        raise popart_exception(f"output_padding {list(extra)} must not be negative")
    fitting("output_shape", positive("output_shape", output_shape))
    full = [s * (n - 1) + e + r for s, n, e, r in zip(steps, sizes, extra, reach, strict=True)]
    cut, grow = _crop(full, sizes, steps, pads, auto_pad, output_shape)
    crop = tuple((lo, hi - e - g) for (lo, hi), e, g in zip(cut, extra, grow, strict=True))
    return Transposed(tuple(steps), tuple(dils), reach, crop)


def flipped(w: Array, group: int) -> jax.Array:
    """Weights (C_in, C_out/group, ...) for the equivalent plain convolution: (C_out, C_in/group, ...), rotated."""
    grouped = w.reshape(group, w.shape[0] // group, *w.shape[1:]).swapaxes(1, 2)
    return jnp.flip(grouped.reshape(-1, *grouped.shape[2:]), tuple(range(2, w.ndim)))


def _crop(
    full: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    auto_pad: str,
    output_shape: Sequence[int],
) -> tuple[Pads, list[int]]:
    """Cropping of the full output, and zeros appended where the wanted shape is larger than it.

    Where the windows are smaller than their strides, SAME_UPPER and SAME_LOWER put zeros on both sides: ONNX's formula
    gives padding below zero. (ONNX Runtime returns less than the shape that ONNX infers there.)
    """
    rank = len(full)
    if not output_shape and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [f - n * s for f, n, s in zip(full, sizes, strides, strict=True)]
        return tuple(split_padding(t, auto_pad) for t in totals), [0] * rank
    if not output_shape:
        return pairs(pads if auto_pad != "VALID" else (), rank), [0] * rank
    totals = [f - w for f, w in zip(full, tuple(output_shape)[-rank:], strict=True)]
    halves = tuple(split_padding(max(0, t), auto_pad) for t in totals)
    return halves, [max(0, -t) for t in totals]


operator("CausalConvWithState", ranks="input 3+ weight 3 bias 1 past_state 3+")


@lowers("CausalConvWithState", 27)
def causal_conv_with_state(
    x: Array, w: Array, b: Array | None = None, past: Array | None = None, /, *, activation: str = "none"
) -> tuple[Array, jax.Array]:
    """Causal depthwise convolution over the last axis, and the state for the next call."""
    y, seen = causal_conv(x, w, b, past, activation, 1)
    return y, seen[..., x.shape[-1] :]


def causal_conv(
    x: Array, w: Array, b: Array | None, past: Array | None, activation: str, dilation: int
) -> tuple[Array, jax.Array]:
    """Causal depthwise convolution over the last axis, and all that it read there: the past, then `x`."""
    past = jnp.zeros((*x.shape[:-1], (w.shape[-1] - 1) * dilation), x.dtype) if past is None else past
    seen = jnp.concatenate([past, x], axis=-1)
    y = conv(seen, w, b, group=x.shape[1], dilations=[dilation])
    if activation in ("silu", "swish"):
        y = jax.nn.silu(y.astype(jnp.promote_types(y.dtype, jnp.float32))).astype(y.dtype)
    elif activation != "none":
        raise popart_exception(f"Unknown activation {activation!r}; expected none, silu or swish.")
    return y, seen
