"""Buffers that collect anchored tensors during a step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..lowering.static import check_width
from .program import Anchor, Structure, Type

Buffers = dict[str, Any]


@jax.named_scope("anchors")
def empty(anchors: Collection[Anchor], types: Mapping[str, Type], structure: Structure) -> Buffers:
    """A zeroed buffer of shape [slots, *shape] per anchor."""
    return {a.name: jnp.zeros((a.slots(structure), *types[a.source].shape), types[a.source].dtype) for a in anchors}


@jax.named_scope("anchors")
def record(
    buffers: Buffers, anchors: Collection[Anchor], values: Mapping[str, Any], counter: Any, repeat: int = 1
) -> Buffers:
    """Write the values of micro-batch `counter` (and of the `repeat` - 1 that follow it) into the buffers.

    A slot is overwritten until its period ends, so it keeps the last value of the period.
    """
    updated = dict(buffers)
    for anchor in anchors:
        if anchor.source not in values:
            continue
        buffer = updated[anchor.name]
        check_width(values[anchor.source], anchor.source, "it can't be anchored")
        value = jnp.asarray(values[anchor.source]).astype(buffer.dtype).reshape(buffer.shape[1:])
        if anchor.total:
            updated[anchor.name] = buffer + value[None] * jnp.asarray(repeat, buffer.dtype)
        elif buffer.shape[0] == 1:
            updated[anchor.name] = value[None]
        else:
            for i in range(repeat):
                place = (counter + i) // anchor.period
                updated[anchor.name] = lax.dynamic_update_index_in_dim(updated[anchor.name], value, place, 0)
    return updated
