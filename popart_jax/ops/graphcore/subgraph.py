"""Call and PackedDataBlock: operators that run a subgraph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import popart_exception
from ...model.node_parts import BodyTypes, SubgraphNode, Type
from ..arrays import Array
from ..builder_methods import builder_method
from ..operator import MOVES_DATA, as_graphcore, operator
from ..registry import Subgraph, lowers
from .losses import DOMAIN

operator("Call", MOVES_DATA, popxl=as_graphcore(parameters="callee"))
operator("CallGrad", popxl=as_graphcore())


def _wrong_count(node: SubgraphNode, callee: str, inputs: int, outputs: int) -> str:
    for what, given, wanted in (("inputs", len(node.arguments), inputs), ("outputs", node.outputs, outputs)):
        if given != wanted:
            return (
                f"For CallOp '{node.label}', number of {what} ({given}) does not match that of the callee subgraph "
                f"({wanted})"
            )
    return ""


builder_method(
    "Call",
    "call(args, num_outputs:int, callee:builder) -> n",
    bodies=BodyTypes(lambda node: node.arguments, lambda node, results: results, _wrong_count),
)


@lowers("Call", domain=DOMAIN)
def call(*args: Array, callee: Subgraph, modifiedInputs: Sequence[int] = ()) -> tuple[Any, ...]:
    """Inputs by position; outer tensors that the callee reads are captured."""
    if len(args) != callee.n_inputs:
        raise popart_exception(
            f"For CallOp, number of inputs ({len(args)}) does not match that of the callee subgraph ({callee.n_inputs})"
        )
    for index in modifiedInputs:
        if not 0 <= index < len(args):
            raise popart_exception(f"CallOp received invalid input index ({index}) for 'modifiedInputs' attribute")
    return callee(*args)


def _unpack(data: Any, offsets: Any, lengths: Any, longest: int) -> jax.Array:
    """Sequences (n, longest, ...) out of packed rows, padded with zeros."""
    t = jnp.arange(longest)
    rows = jnp.asarray(offsets).astype(jnp.int32)[:, None] + t
    valid = (t < jnp.asarray(lengths).astype(jnp.int32)[:, None]).reshape(*rows.shape, *(1,) * (data.ndim - 1))
    return jnp.where(valid, jnp.asarray(data)[jnp.where(rows < data.shape[0], rows, 0)], jnp.zeros((), data.dtype))


def _unpacked_types(node: SubgraphNode) -> list[Type]:
    """Types of the callback's inputs: for each, a batch of sequences padded to the longest."""
    batch = node.attributes["callbackBatchSize"]
    found: list[Type] = []
    for i, longest in enumerate(node.attributes["maxSequenceLengths"]):
        dtype, shape = node.arguments[3 * i]
        found.append((dtype, None if shape is None else (batch, longest, *shape[1:])))
    return found


def _packed_types(node: SubgraphNode, results: Sequence[Type]) -> list[Type]:
    rows = node.attributes["resultSize"]
    return [(dtype, None if shape is None else (rows, *shape[2:])) for dtype, shape in results[:1]]


operator("PackedDataBlock", gradients=(), removed_by="PackedDataBlock")
builder_method(
    "PackedDataBlock",
    "packedDataBlock(args, maxSequenceLengths:ints, resultSize:int, callbackBatchSize:int, callback:builder)",
    bodies=BodyTypes(_unpacked_types, _packed_types),
)


@lowers("PackedDataBlock", domain=DOMAIN)
def packed_data_block(
    *args: Array, callback: Subgraph, maxSequenceLengths: Sequence[int], resultSize: int, callbackBatchSize: int
) -> jax.Array:
    """Unpack groups of sequences, run the callback on each group, pack its results; no gradient."""
    *inputs, result_offsets, result_lengths = args
    if len(inputs) != 3 * len(maxSequenceLengths):
        raise popart_exception(
            f"PackedDataBlock: {len(inputs)} inputs for {len(maxSequenceLengths)} maxSequenceLengths, expected 3 each."
        )
    groups = result_offsets.shape[0] // callbackBatchSize
    used = groups * callbackBatchSize
    unpacked = [
        _unpack(data, offsets[:used], lengths[:used], longest)
        for data, offsets, lengths, longest in zip(
            inputs[::3], inputs[1::3], inputs[2::3], maxSequenceLengths, strict=True
        )
    ]
    batched = [x.reshape(groups, callbackBatchSize, *x.shape[1:]) for x in unpacked]

    def of_group(group: tuple[jax.Array, list[Array]]) -> jax.Array:
        return jnp.asarray(callback(*group[1], iteration=group[0])[0])

    results = cast("jax.Array", lax.map(of_group, (jnp.arange(groups), batched)))
    flat = results.reshape(used, *results.shape[2:])
    t = jnp.arange(flat.shape[1])
    kept = t < jnp.asarray(result_lengths)[:used].astype(jnp.int32)[:, None]
    rows = jnp.where(kept, jnp.asarray(result_offsets)[:used].astype(jnp.int32)[:, None] + t, resultSize)
    packed = jnp.zeros((resultSize, *flat.shape[2:]), flat.dtype).at[rows].set(flat, mode="drop")
    return lax.stop_gradient(packed)
