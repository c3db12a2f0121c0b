"""MultiConv: several independent convolutions in one node; the weight flip of transposed convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import OpError, noted, popart_exception
from ...model import attribute_names
from ...model.node_parts import NodeParts
from ...model.op_names import part_names
from ..arrays import Array
from ..builder_methods import builder_method
from ..convolution import add_bias, conv, convolve, flipped
from ..operator import EXPENSIVE, NAMESAKE, PRODUCT, ROUNDS, gradient, operator
from ..registry import NodeRef, lowers
from ..windows import pairs, per_dim
from .losses import DOMAIN

_PARAMETERS = {"strides": "stride", "pads": "pad", "dilations": "dilation"}


def _pieces(values: Sequence[int], ranks: Sequence[int], each: int, name: str) -> list[tuple[int, ...]]:
    """A flattened parameter list cut into one piece per convolution."""
    if not values:
        return [()] * len(ranks)
    if len(values) != each * sum(ranks):
        what = _PARAMETERS.get(name, name)
        error = OpError(f"Unexpected number of {what} parameters for convolution op '{{op}}'", "MultiConv")
        raise noted(error, f"{name} has {len(values)} entries, expected {each * sum(ranks)}.")
    found: list[tuple[int, ...]] = []
    at = 0
    for rank in ranks:
        found.append(tuple(values[at : at + each * rank]))
        at += each * rank
    return found


_PER_CONVOLUTION = (
    "dilations", "inDilations", "pads", "outPads", "strides", "availableMemoryProportions", "partialsTypes",
    "enableConvDithering",
)  # fmt: skip


def _write(parts: NodeParts) -> None:
    """Flatten groups of tensors to one list, and check that there is one parameter list for each.

    Raises popart_exception for a group without data and weights, or lists of another length than the groups.
    """
    groups, name = parts.inputs, parts.label
    if not groups:
        raise popart_exception(f"MultiConvOp '{name}' has no input tensors. Provide at least one set of inputs")
    for group in groups:
        if len(group) < 2:
            raise popart_exception(
                f"Each convolution of MultiConvOp '{name}' must have at least two inputs - data and weights"
            )
        if len(group) > 3:
            raise popart_exception(
                f"Each convolution of MultiConvOp '{name}' can have at most three inputs - data, weights, and bias"
            )
    for parameter in _PER_CONVOLUTION:
        sets = parts.attributes.get(parameter, [])
        if sets and len(sets) != len(groups):
            raise popart_exception(
                f"For MultiConvOp '{name}', number of {parameter} parameter sets ({len(sets)}) does not match the "
                f"number of input sets ({len(groups)})"
            )
    if "availableMemoryProportions" in parts.attributes:
        proportions = parts.attributes.pop("availableMemoryProportions")
        if not all(0 < p <= 1 for p in proportions):
            raise popart_exception("availableMemoryProportion must be in (0,1]")
        parts.attributes[attribute_names.AVAILABLE_MEMORY] = proportions
    parts.attributes["numConvs"] = len(groups)
    parts.outputs = len(groups)
    parts.inputs = [name for group in groups for name in (*group, "", "")[:3]]


operator(
    "MultiConv",
    PRODUCT | EXPENSIVE | ROUNDS,
    gradients=[gradient("g x1", name="MultiConvDataGrad"), gradient("g x0", of=1, name="MultiConvWeightsGrad")],
    bias=2,
    group=3,
)
builder_method(
    "MultiConv",
    "multiconv(args:groups, dilations:lists=[], inDilations:lists=[], pads:lists=[], outPads:lists=[], "
    "strides:lists=[], availableMemoryProportions:floats=[], partialsTypes:strs=[], planType:str?, "
    "perConvReservedTiles:int?, cycleBackOff:float?, enableConvDithering:ints=[]) -> each",
    write=_write,
)


@lowers("MultiConv", domain=DOMAIN)
def multi_conv(
    *args: Array, numConvs: int | None = None, strides: Sequence[int] = (), dilations: Sequence[int] = (),
    inDilations: Sequence[int] = (), pads: Sequence[int] = (), outPads: Sequence[int] = (), node: NodeRef,
) -> tuple[Array, ...]:  # fmt: skip
    """Inputs come in triples data, weights, bias (or None); each convolution is traced under a name of its own."""
    count = numConvs or -(-len(args) // 3)
    padded: list[Any] = [*args, *[None] * (3 * count - len(args))]
    triples = [tuple(padded[3 * i : 3 * i + 3]) for i in range(count)]
    ranks = [x.ndim - 2 for x, _, _ in triples]
    lists = {"strides": strides, "dilations": dilations, "inDilations": inDilations}
    cut = [_pieces(v, ranks, 1, k) for k, v in lists.items()]
    cut += [_pieces(v, ranks, 2, k) for k, v in {"pads": pads, "outPads": outPads}.items()]
    found: list[Array] = []
    for name, triple, *parameters in zip(part_names(node), triples, *cut, strict=True):
        with jax.named_scope(f"onnx[{name}]"):
            found.append(_one(*triple, *parameters))
    return tuple(found)


def _one(
    x: Any, w: Any, b: Any, strides: Sequence[int], dilations: Sequence[int], data_dilations: Sequence[int],
    pads: Sequence[int], out_pads: Sequence[int],
) -> Array:  # fmt: skip
    group = x.shape[1] // w.shape[1]
    rank = x.ndim - 2
    if not any(d != 1 for d in data_dilations) and not any(out_pads):
        return conv(x, w, b, strides=strides, dilations=dilations, pads=pads, group=group)
    steps, dils, spread = (
        per_dim(name, values, rank)
        for name, values in (("strides", strides), ("dilations", dilations), ("inDilations", data_dilations))
    )
    y = convolve(x, w, steps, pairs(pads, rank), dils, group, spread)
    return add_bias(jnp.pad(y, ((0, 0), (0, 0), *pairs(out_pads, rank))), b)


operator("AddBias", gradients=[gradient(name="AddBiasDataGrad"), gradient(of=1, name="AddBiasBiasGrad")], inplace=True)


@lowers("AddBias", domain=DOMAIN)
def add_bias_op(x: Array, bias: Array, /) -> Array:
    return add_bias(x, bias)


operator("ConvFlipWeights", gradients=gradient(removed_by=NAMESAKE))


@lowers("ConvFlipWeights", domain=DOMAIN)
def conv_flip_weights(w: Array, /, *, group: int = 1) -> jax.Array:
    """Rotate by 180 degrees and swap input and output channels inside each group."""
    return flipped(w, group)
