"""Transfers: host streams, remote buffers, other IPUs and tiles, code."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from .. import dtypes
from .._building.checks import check_own
from .._building.create import Out, create, like, result
from .._building.spec import whole_number
from .._internal.enums import CodeLocation, TileSet
from .._internal.placement import placement
from ..context import gcg, get_current_context
from ..graph import Graph
from ..remote_buffer import RemoteBuffer
from ..streams import DeviceToHostStream, HostToDeviceStream
from ..tensor import Tensor, constant
from .shaping import init
from .utils import check_operands

__all__ = ["host_load", "host_store", "io_tile_copy", "ipu_copy", "remote_load", "remote_load_", "remote_store"]

CODE_LOCATION = Literal["executable", "io_buffer", "compute_buffer"]
TO_IR_ENUM_MAP = {
    "io_buffer": CodeLocation.Buffer,
    "compute_buffer": CodeLocation.Buffer,
    "executable": CodeLocation.ExecutableMemory,
}


def multiply_tuple(tup: tuple[int, ...]) -> int:
    """Product of the entries."""
    return math.prod(tup)


def host_load(h2d_stream: HostToDeviceStream, name: str | None = None) -> Tensor:
    """The next micro-batch of a stream, each time the operator runs.

    Parameters
    ----------
    name : str, optional
        Base of the tensors' names; default the stream's name.
    """
    check_own(HostToDeviceStream, h2d_stream=h2d_stream)
    base = name or h2d_stream._stream_tensor.name
    start = init(h2d_stream.shape, h2d_stream.dtype, f"{base}_init", "undef")
    out = Out(f"{base}_hostload", h2d_stream.shape, h2d_stream.dtype)
    return result(create("HostLoad", [start], [out], {"stream": h2d_stream.tensor_id}))


def host_store(d2h_stream: DeviceToHostStream, t: Tensor) -> None:
    """Fill the next slot of a stream, each time the operator runs.

    Raises
    ------
    ValueError
        Shape or type differ from the stream's.
    """
    check_own(DeviceToHostStream, d2h_stream=d2h_stream)
    check_operands(t=t)
    if t.dtype != d2h_stream.dtype:
        raise ValueError(
            f"dtype of stream {d2h_stream.tensor_id} `{d2h_stream.dtype}` does not match dtype of provided tensor "
            f"`{t.dtype}`"
        )
    if t.shape != d2h_stream.shape:
        raise ValueError(
            f"shape of stream {d2h_stream.tensor_id} `{d2h_stream.shape}` does not match shape of provided tensor "
            f"`{t.shape}`"
        )
    create("HostStore", [t], [], {"stream": d2h_stream.tensor_id})


def _offset(offset: int | Tensor) -> Tensor:
    if isinstance(offset, Tensor):
        return offset
    if not 0 <= whole_number("offset", offset) < 2**32:
        raise ValueError(f"The offset in a remote buffer must not be negative and fit into uint32. Value: {offset}.")
    return constant(np.uint32(offset), dtypes.uint32, "offset")


def remote_load(remote_buffer: RemoteBuffer, offset: int | Tensor, name: str | None = None) -> Tensor:
    """Entry `offset` of a remote buffer.

    Parameters
    ----------
    offset : int or integer tensor of shape () or (1,)
    name : str, optional
        Base of the tensors' names.
    """
    check_own(RemoteBuffer, remote_buffer=remote_buffer)
    at = _offset(offset)
    check_operands(offset=at)
    base = name or f"id_{remote_buffer.remote_buffer_id}_offset_{at.name}"
    start = init(
        remote_buffer.tensor_shape, remote_buffer.tensor_dtype, f"{base}_remote_load", "undef", remote_buffer.meta_shape
    )
    out = Out(f"{base}_remote_loaded", start.shape, start.dtype, remote_buffer.meta_shape)
    return result(create("RemoteLoad", [start, at], [out], {"buffer": remote_buffer.remote_buffer_id}))


def _entry(remote_buffer: RemoteBuffer, offset: int | Tensor, t: Tensor) -> Tensor:
    """The offset of an entry that `t` fits, as a tensor."""
    check_own(RemoteBuffer, remote_buffer=remote_buffer)
    at = _offset(offset)
    check_operands(offset=at, t=t)
    remote_buffer.validate_tensor_matches_buffer(t)
    return at


def remote_load_(remote_buffer: RemoteBuffer, offset: int | Tensor, t: Tensor) -> Tensor:
    """Overwrite `t` with entry `offset` of a remote buffer.

    Raises
    ------
    ValueError
        `t` does not fit the buffer.
    """
    at = _entry(remote_buffer, offset, t)
    t._meta_shape = remote_buffer.meta_shape
    out = Out("remote_load_inplace_out", t.shape, t.dtype, remote_buffer.meta_shape)
    return result(create("RemoteLoadInplace", [t, at], [out], {"buffer": remote_buffer.remote_buffer_id}))


def remote_store(remote_buffer: RemoteBuffer, offset: int | Tensor, t: Tensor) -> None:
    """Write `t` to entry `offset` of a remote buffer.

    Raises
    ------
    ValueError
        `t` does not fit the buffer.
    """
    at = _entry(remote_buffer, offset, t)
    create("RemoteStore", [t, at], [], {"buffer": remote_buffer.remote_buffer_id})


def ipu_copy(t: Tensor, destination: int, source: int | None = None) -> Tensor:
    """The tensor on another IPU.

    Parameters
    ----------
    source : int, optional
        IPU that holds `t`; default its producer's.

    Raises
    ------
    ValueError
        No source is given and `t` has no placed producer.
    """
    check_operands(t=t)
    if source is None:
        producer = t._value.producer()
        source = placement(t)[0] if producer is not None else None
        if source is None:
            raise ValueError(
                f'Could not infer the ipu for Tensor to be copied "{t}" . '
                "Please specify `source` when copying for this tensor."
            )
    source, destination = whole_number("source", source), whole_number("destination", destination)
    settings = get_current_context()._get_op_settings("IpuCopy")
    settings.vgraphId = source
    options = {"source": source, "destination": destination}
    out = like(t, f"{t.name}_c{destination}")
    return result(create("IpuCopy", [t], [out], options=options, settings=settings))


def io_tile_copy(t: Tensor) -> Tensor:
    """The tensor on the other tile set."""
    check_operands(t=t)
    here = placement(t)[1]
    settings = get_current_context()._get_op_settings("IoTileCopy")
    settings.tileSet = TileSet.Compute if here is TileSet.IO else TileSet.IO
    return result(create("IoTileCopy", [t], [like(t, f"{t.name}_iotilecopy")], settings=settings))


def remote_code_load(graph: Graph, destination: CODE_LOCATION) -> None:
    """Load the code of a graph from remote memory before it is called; values do not change.

    Raises
    ------
    ValueError
        `graph` is the current graph.
    NotImplementedError
        Another destination than 'executable'.
    """
    check_own(Graph, graph=graph)
    if graph == gcg():
        raise ValueError(f"The remote_code_load op cannot load the code for the graph it resides in ({graph.id}).")
    if destination != "executable":
        raise NotImplementedError(
            f"destination == '{destination}' for remote_code_load op, graph {graph.id} not supported."
        )
    create("RemoteCodeLoad", [], [], {"graph_id": graph.id}, options={"graph": graph})


def code_copy(graph: Graph, source: CODE_LOCATION, destination: CODE_LOCATION) -> None:
    """Not available (NotImplementedError)."""
    raise NotImplementedError("The code_copy op is not yet implemented. Use remote_code_load.")
