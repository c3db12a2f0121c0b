"""Stored tensors of a model as JAX arrays."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import jax
import onnx_ir as ir

from ..buffers import lasting
from .precision import precision


def stored_arrays(graph: ir.Graph, names: Collection[str], wide: bool) -> dict[str, jax.Array]:
    """Initializers of these names as JAX arrays; 64-bit types are kept if `wide`."""
    with precision(wide):
        stored = {name: graph.initializers[name].const_value for name in names}
        return {name: _to_device(tensor) for name, tensor in stored.items() if tensor is not None}


def _to_device(tensor: ir.TensorProtocol) -> jax.Array:
    """A tensor as a JAX array: memory that is never written to is shared, anything else is copied.

    An external tensor's file is unmapped at once, so a large model is never held twice; somebody who still looks at the
    numbers (a caller's array, a constant that JAX keeps) keeps it mapped for longer.
    """
    placed = lasting(tensor.numpy())
    if isinstance(tensor, ir.ExternalTensor):
        with suppress(BufferError):
            tensor.release()
    return jax.device_put(placed)
