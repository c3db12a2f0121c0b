"""Stored tensors of a model as JAX arrays."""

from __future__ import annotations

import sys
from collections.abc import Collection
from contextlib import suppress

import jax
import numpy as np
import onnx_ir as ir

from .._compat.jax import outside_traces
from ..buffers import aligned_empty, lasting
from ..errors import popart_exception
from .precision import precision


def stored_arrays(graph: ir.Graph, names: Collection[str], wide: bool) -> dict[str, jax.Array]:
    """Initializers of these names as JAX arrays; 64-bit types are kept if `wide`.

    They are numbers under `jit` too: `fn.initial_state` keeps them for later calls.
    """
    with precision(wide), outside_traces():
        stored = {name: graph.initializers[name].const_value for name in names}
        return {name: _to_device(tensor) for name, tensor in stored.items() if tensor is not None}


def _to_device(tensor: ir.TensorProtocol) -> jax.Array:
    """A tensor as a JAX array: memory that is never written to is shared, anything else is copied."""
    if isinstance(tensor, ir.ExternalTensor) and tensor.dtype.bitwidth >= _BYTE and sys.byteorder == "little":
        with suppress(BufferError):  # somebody still looks at the numbers: a caller's array, a constant that JAX keeps
            tensor.release()  # what was mapped to look at a few of them
        return jax.device_put(_from_file(tensor))
    return jax.device_put(lasting(tensor.numpy()))


_BYTE = 8


def _from_file(tensor: ir.ExternalTensor) -> np.ndarray:
    """An external tensor, read to where JAX uses it: through a mapped file the largest would be held twice.

    Raises popart_exception where the file has become shorter since the model was read.
    """
    array = aligned_empty(tensor.shape.numpy(), tensor.dtype.numpy())
    with open(tensor.path, "rb") as file:
        file.seek(tensor.offset or 0)
        found = file.readinto(array.reshape(-1).view(np.uint8).data)
    if found != array.nbytes:
        raise popart_exception(
            f"Tensor '{tensor.name}' has {array.nbytes} bytes, of which '{tensor.path}' has {found} now: "
            "it was written since the model was read."
        )
    return array
