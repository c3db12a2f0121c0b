"""Variables and constants: host data and where they are stored."""

from __future__ import annotations

from math import ceil, prod
from typing import Literal

import numpy as np
import onnx_ir as ir

from .. import dtypes
from .._internal.enums import ExecutionContext, TensorType
from .._internal.values import RemotePlace
from .._running.host_data import host_array
from ..context import _execution_context, gcg, in_sequence
from ..graph import Graph
from ..remote_buffer import RemoteBuffer, remote_buffer
from ..replica_grouping import ReplicaGrouping
from .bindings import above, operators
from .checks import check_own
from .tensor import Constant, HostScalarTensor, Tensor, TensorLike, Variable

Retrieval = Literal["one_per_group", "all_replicas"]


def variable(
    data: HostScalarTensor,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: Retrieval | None = None,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """A tensor of the main graph that outlives a run.

    Parameters
    ----------
    data : scalar, sequence, ndarray, memmap or torch tensor
        Initial value; with several groups a leading axis of groups. A memmap is the host buffer itself.
    dtype : popxl.dtype, optional
        Type to convert to.
    downcast : bool
        Without `dtype`, 64-bit data become 32-bit.
    replica_grouping : ReplicaGrouping, optional
        Replicas that share a value; default all.
    retrieval_mode : {'one_per_group', 'all_replicas'}, optional
        What reading returns.
    log2_scale, nan_on_overflow : optional
        For float8 only, see `fp8_utils.host_pow2scale_cast_to_fp8`.

    Raises
    ------
    ValueError
        The current graph is not the main graph; data and grouping do not fit; a memmap that can't be used as it is.
    RuntimeError
        Float8 arguments without a float8 type.
    """
    host = host_array(data, dtype, downcast, replica_grouping, log2_scale, nan_on_overflow)
    grouping = ReplicaGrouping._chosen(replica_grouping, gcg().ir)
    return _make(host, grouping, retrieval_mode, name, _member_shape(host, grouping))


def _member_shape(host: np.ndarray, grouping: ReplicaGrouping) -> tuple[int, ...]:
    if grouping.num_groups == 1:
        return host.shape
    if not host.shape or host.shape[0] != grouping.num_groups:
        raise ValueError(
            f"The data must have a leading axis of {grouping.num_groups} groups for {grouping!r}, "
            f"got shape {host.shape}."
        )
    return host.shape[1:]


def _make(
    host: np.ndarray, grouping: ReplicaGrouping, mode: Retrieval | None, name: str | None, shape: tuple[int, ...]
) -> Variable:
    graph = gcg()
    if graph != graph.main_graph:
        raise ValueError(
            "You cannot initialise a variable tensor within a graph. It can only be initialised within the main graph. "
            "Please create a variable in the main graph, create a graph input and pass the variable to the call."
        )
    if mode not in (None, "one_per_group", "all_replicas"):
        raise ValueError(f"Invalid retrieval_mode: {mode}")
    return _variable_of(graph, graph._create_tensor_id(name), host, grouping, mode, shape)


def _variable_of(
    graph: Graph, full_id: str, host: np.ndarray, grouping: ReplicaGrouping, mode: Retrieval | None,
    shape: tuple[int, ...],
) -> Variable:  # fmt: skip
    self = Variable._make(graph, graph._new_value(full_id, shape, dtypes.dtype.as_dtype(host.dtype)))
    self._host, self._grouping, self._retrieval_mode = host, grouping, mode or "one_per_group"
    self._in_sync, self._remote = True, None
    return self


def constant(
    data: HostScalarTensor,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Constant:
    """A tensor whose value is part of the program, in the current graph.

    Raises
    ------
    TypeError
        Structured float8 data without a type.
    RuntimeError
        Float8 arguments without a float8 type.
    """
    given = getattr(data, "dtype", None)
    if dtype is None and isinstance(given, np.dtype) and given.fields is not None:
        raise TypeError(
            f"Please explicitly set the data type when calling `constant` with float8 data, an array of {given}."
        )
    host = host_array(data, dtype, downcast, None, log2_scale, nan_on_overflow)
    graph = gcg()
    return _constant_of(graph, graph._create_tensor_id(name), host)


def _constant_of(graph: Graph, full_id: str, host: np.ndarray) -> Constant:
    kind = dtypes.dtype.as_dtype(host.dtype)
    value = graph._new_value(full_id, host.shape, kind)
    shown = host.view(np.uint8).reshape(host.shape).view(kind._device) if kind._is_float8 else host
    value.const_value = ir.tensor(shown, name=value.name)
    value.meta["host"] = host
    graph._graph.register_initializer(value)
    return Constant._make(graph, value)


@above.enter("add_with_data")
def add_with_data(
    graph: Graph, full_id: str, kind: TensorType, data: np.ndarray, dtype: dtypes.dtype, shape: tuple[int, ...]
) -> Tensor:
    """A variable or constant of an id that the graph has not, made through the internal IR."""
    host = np.ascontiguousarray(data, dtype._np_type).reshape(shape)
    if kind is TensorType.Const:
        return _constant_of(graph, full_id, host)
    return _variable_of(graph, full_id, host, graph.ir.replica_grouping(), None, shape)


@above.enter("as_tensor")
def as_tensor(value: TensorLike, dtype: dtypes.dtype | None = None, raise_on_empty: bool = True) -> Tensor:
    """A tensor as it is, host data as a new constant of the current graph.

    Data without elements raise ValueError, what NumPy can't convert raises TypeError.
    """
    if isinstance(value, Tensor):
        return value
    if raise_on_empty and not isinstance(value, str) and 0 in np.asarray(value).shape:
        raise ValueError(
            "The value has 0 elements - this is most likely a mistake. If not, make it with `popxl.constant`."
        )
    return constant(value, dtype)


def remote_variable(
    data: HostScalarTensor,
    remote_buffer: RemoteBuffer,
    offset: int = 0,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: Retrieval | None = "one_per_group",
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """A variable whose storage is entry `offset` of a remote buffer; programs load and store the buffer.

    Only loads and stores compare shapes with the buffer's; a session needs as many elements as an entry has.

    Raises
    ------
    ValueError
        The conditions of `variable` are not met.
    """
    check_own(RemoteBuffer, remote_buffer=remote_buffer)
    made = variable(data, dtype, name, downcast, replica_grouping, retrieval_mode, log2_scale, nan_on_overflow)
    made._remote = RemotePlace(remote_buffer.remote_buffer_id, offset, None)
    return made


def remote_replica_sharded_variable(
    data: HostScalarTensor,
    remote_buffer: RemoteBuffer,
    offset: int = 0,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: Retrieval | None = "one_per_group",
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """A remote variable of which every replica stores one shard; the host sees the whole tensor.

    Raises
    ------
    ValueError
        There is one replica only, or the buffer is for tensors of another shape.
    """
    _check_replicas()
    check_own(RemoteBuffer, remote_buffer=remote_buffer)
    grouping = ReplicaGrouping._chosen(replica_grouping, gcg().ir)
    host = host_array(data, dtype, downcast, grouping, log2_scale, nan_on_overflow)
    return _sharded(host, remote_buffer, offset, name, grouping, retrieval_mode)


def _check_replicas() -> None:
    owner = gcg().ir
    if owner.replication_factor <= 1:
        raise ValueError(
            f"The IR's global replication factor is {owner.replication_factor}. "
            "It must be greater than 1 to create a replica sharded variable."
        )


def _sharded(
    host: np.ndarray,
    remote_buffer: RemoteBuffer,
    offset: int,
    name: str | None,
    grouping: ReplicaGrouping,
    retrieval_mode: Retrieval | None,
) -> Variable:
    """A remote variable of which every replica stores one shard, from its host's array."""
    shape = _member_shape(host, grouping)
    if remote_buffer.meta_shape == ():
        remote_buffer.meta_shape = shape
    if remote_buffer.meta_shape != shape:
        raise ValueError(
            f"Cannot use RemoteBuffer[id={remote_buffer.remote_buffer_id}] for replica sharded variable of shape "
            f"{shape}. The buffer's meta_shape has already been set to: {remote_buffer.meta_shape}."
        )
    shards = remote_buffer._shards or _shards(prod(shape), prod(remote_buffer.tensor_shape), grouping.group_size)
    made = _make(host, grouping, retrieval_mode, name, shape)
    made._meta_shape = shape
    made._remote = RemotePlace(remote_buffer.remote_buffer_id, offset, shards)
    return made


def _shards(elements: int, entry: int, replicas: int) -> int:
    """Number of shards for a buffer that does not say it; the last may be padding only, as for 9 elements over 4."""
    fitting = (k for k in range(replicas, 0, -1) if replicas % k == 0 and ceil(elements / k) == entry)
    return next(fitting, ceil(elements / max(1, entry)))


def replica_sharded_buffer(
    shape: tuple[int, ...],
    dtype: dtypes.dtype,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
    entries: int = 1,
) -> RemoteBuffer:
    """A remote buffer for shards of a tensor of this shape (as the host sees it).

    Raises
    ------
    ValueError
        `shard_over` exceeds or does not divide the group.
    """
    grouping = ReplicaGrouping._chosen(replica_grouping, gcg().ir)
    over = grouping.group_size if shard_over is None else shard_over
    if not 0 < over <= grouping.group_size:
        raise ValueError(
            f"The sharding group size ({over}) must be less than or equal to the replica group size "
            f"({grouping.group_size})."
        )
    if grouping.group_size % over:
        raise ValueError(
            f"The replica group size ({grouping.group_size}) must be divisible by the sharding group size ({over})."
        )
    whole = tuple(shape[1:] if grouping.num_groups > 1 else shape)
    buffer = remote_buffer((ceil(prod(whole) / over),), dtype, entries)
    buffer.meta_shape, buffer._shards = whole, over
    return buffer


def replica_sharded_variable(
    data: HostScalarTensor,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
    retrieval_mode: Retrieval | None = "one_per_group",
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> tuple[Variable, Tensor]:
    """A variable for the host and its shard on the device, loaded with the weights and stored back with them.

    Returns
    -------
    (Variable, Tensor)
        The variable, for reading and writing by the session; the shard, for the program.
    """
    _check_replicas()
    grouping = ReplicaGrouping._chosen(replica_grouping, gcg().ir)
    host = host_array(data, dtype, downcast, grouping, log2_scale, nan_on_overflow)
    kind = dtypes.dtype.as_dtype(host.dtype)
    buffer = replica_sharded_buffer(host.shape, kind, grouping, shard_over)
    made = _sharded(host, buffer, 0, name, grouping, retrieval_mode)
    with in_sequence("pass"):
        with _execution_context(ExecutionContext.WeightsFromHostFragment):
            shard = operators.remote_load(buffer, 0, name=f"{made.name}_rts")
        with _execution_context(ExecutionContext.WeightsToHostFragment):
            operators.remote_store(buffer, 0, shard)
    return made, shard
