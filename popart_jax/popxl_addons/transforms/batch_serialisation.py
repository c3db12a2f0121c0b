"""Batch serialisation: run a graph several times on parts of a batch, with activations in remote buffers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from ... import popxl
from ...popxl import ops
from ...popxl.transforms.autodiff import ExpectedConnectionType
from ..graph import GraphWithNamedArgs
from ..named_tensors import NamedTensors
from ..remote import create_remote_buffer, on_io_tiles
from ..rts import gather_replica_sharded_tensor
from ..utils import null_context as null_context
from ..utils import suffix_graph_name

INDEX, SEED = "batch_serial_loop_index", "batch_serial_random_seed"
_MODES = ("compute", "io", "io_overlapped")
_logger = logging.getLogger("popart.python.addons")
RemoteBufferWithOffset = tuple[popxl.RemoteBuffer, int | None]
IoMode = Literal["compute", "io", "io_overlapped"]


@dataclass
class RemoteHandle:
    """Rows of a remote buffer that is a matrix with one column for each step.

    Attributes
    ----------
    buffer : RemoteBuffer
    row_offset : int, None or callable
        Added to the row; None always uses row 0; a callable maps the given row to another.
    shard_group : ReplicaGrouping, optional
        Values are stored sharded over it.
    """

    buffer: popxl.RemoteBuffer
    row_offset: int | Callable[[popxl.Tensor], popxl.Tensor] | None = 0
    shard_group: popxl.ReplicaGrouping | None = None

    def grow(self, steps: int, rows: int) -> None:
        """Make room for `rows` rows above the offset."""
        offset = self.row_offset if isinstance(self.row_offset, int) else 0
        self.buffer.entries = max(self.buffer.entries, steps * (rows + offset))

    def entry(self, row: popxl.Tensor, step: popxl.Tensor, steps: int) -> popxl.Tensor:
        """Index of an entry: row * steps + step."""
        if self.row_offset is None:
            return step
        at = self.row_offset(row) if callable(self.row_offset) else row + self.row_offset if self.row_offset else row
        return at * steps + step


@dataclass
class BatchSerialResult:
    """A serialised graph.

    Attributes
    ----------
    graph : GraphWithNamedArgs
        Its inputs are the row, then the seed if there is one, then the inputs that are not loaded.
    stored_buffers : dict of Tensor to RemoteHandle
        Where tensors of the original graph were stored.
    """

    graph: GraphWithNamedArgs
    stored_buffers: dict[popxl.Tensor, RemoteHandle]
    _remap: dict[popxl.Tensor, popxl.Tensor]

    def remap_tensors(self, ts: NamedTensors) -> NamedTensors:
        """Inputs of the original graph as inputs of the serialised one."""
        return ts.remap(self._remap)


def batch_serial_buffer(
    t: popxl.Tensor | popxl.TensorSpec,
    steps: int = 1,
    rows: int = 1,
    shard_group: popxl.ReplicaGrouping | None = None,
) -> popxl.RemoteBuffer:
    """A buffer for `steps` values of `t` in each of `rows` rows."""
    shards = None if shard_group is None else shard_group.group_size
    return create_remote_buffer(t, steps * rows, shard_group, shards)


def _handles(given: dict[popxl.Tensor, Any]) -> dict[popxl.Tensor, Any]:
    """Legacy tuples as handles, replaced in the given dictionary."""
    for tensor, handle in list(given.items()):
        if isinstance(handle, tuple):
            given[tensor] = RemoteHandle(*cast("tuple[Any, ...]", handle))
    return given


def _checked_mode(io_mode: str, steps: int, rows: int) -> str:
    if io_mode not in _MODES:
        raise ValueError(f"Unknown 'io_mode' {io_mode}. Supported: ({', '.join(_MODES)})")
    if rows < 1:
        raise ValueError("rows must be >0")
    if io_mode != "compute" and popxl.gcg().ir._pb_ir.getSessionOptions().numIOTiles <= 0:
        raise ValueError("IR must have IO tiles")
    if io_mode == "io_overlapped" and steps < 2:
        _logger.warning("batch_serialise: overlapping needs at least 2 steps, got %d; io_mode 'io' is used", steps)
        return "io"
    return io_mode


def batch_serialise(
    graph: GraphWithNamedArgs,
    steps: int,
    load_handles: dict[popxl.Tensor, Any],
    store_streams: dict[popxl.Tensor, popxl.DeviceToHostStream],
    store_buffers: dict[popxl.Tensor, Any],
    seed_input: popxl.Tensor | None = None,
    rows: int = 1,
    io_mode: IoMode = "io",
) -> BatchSerialResult:
    """A graph that runs `graph` `steps` times.

    Parameters
    ----------
    load_handles : dict of Tensor to HostToDeviceStream or RemoteHandle
        Inputs that are loaded at each step.
    store_streams, store_buffers : dict of Tensor to stream or RemoteHandle
        Outputs (or inputs) that are stored at each step; what is loaded from a buffer is not stored again.
    seed_input : Tensor, optional
        Input that gets another random seed at each step.
    rows : int
        Rows of the buffers.
    io_mode : {"compute", "io", "io_overlapped"}
        Tiles that transfers use; results are the same.

    Raises
    ------
    ValueError
        Unknown mode, no IO tiles, or `rows` below 1.
    TypeError
        A load handle is neither a stream nor rows of a remote buffer.
    """
    mode = _checked_mode(io_mode, steps, rows)
    loads, stores = _handles(load_handles), _handles(store_buffers)
    for t, handle in loads.items():
        if not isinstance(handle, (popxl.HostToDeviceStream, RemoteHandle)):
            raise TypeError(f"Incompatible handle in `load_handles` for tensor {t} : {handle}")
    kept = {t: h for t, h in stores.items() if not isinstance(loads.get(t), RemoteHandle)}
    for handle in (*loads.values(), *kept.values()):
        if isinstance(handle, RemoteHandle):
            handle.grow(steps, rows)
    body = _Body(graph, steps, loads, store_streams, kept, seed_input, mode != "compute")
    outer, remap = body.outer()
    args = NamedTensors.from_dict({n: remap[t] for n, t in graph.args.to_dict().items() if t in remap})
    already = {t: h for t, h in loads.items() if isinstance(h, RemoteHandle)}
    return BatchSerialResult(GraphWithNamedArgs(outer, args), {**already, **kept}, remap)


def batch_serialise_non_overlapped(
    graph: GraphWithNamedArgs, steps: int, load_handles: Any, store_streams: Any, store_buffers: Any,
    seed_input: popxl.Tensor | None = None, rows: int = 1, use_io_tiles: bool = False,
) -> BatchSerialResult:  # fmt: skip
    """`batch_serialise` without overlap."""
    mode: IoMode = "io" if use_io_tiles else "compute"
    return batch_serialise(graph, steps, load_handles, store_streams, store_buffers, seed_input, rows, mode)


def batch_serialise_overlapped(
    graph: GraphWithNamedArgs, steps: int, load_handles: Any, store_streams: Any, store_buffers: Any,
    seed_input: popxl.Tensor | None = None, rows: int = 1,
) -> BatchSerialResult:  # fmt: skip
    """`batch_serialise` with transfers overlapping computation."""
    return batch_serialise(graph, steps, load_handles, store_streams, store_buffers, seed_input, rows, "io_overlapped")


@dataclass
class _Body:
    """One step and the loop around it."""

    graph: GraphWithNamedArgs
    steps: int
    loads: Mapping[popxl.Tensor, Any]
    streams: Mapping[popxl.Tensor, popxl.DeviceToHostStream]
    stores: Mapping[popxl.Tensor, RemoteHandle]
    seed: popxl.Tensor | None
    io_tiles: bool

    def _passed(self) -> list[popxl.Tensor]:
        """Inputs of the graph that come from outside the loop."""
        return [t for t in self.graph.graph.inputs if t not in self.loads and t != self.seed]

    def _new_graph(self, suffix: str) -> popxl.Graph:
        owner = self.graph.graph.ir
        return owner._new_graph(owner._subgraph_id(suffix_graph_name(self.graph.graph.name, suffix)))

    def _add_passed(self, graph: popxl.Graph) -> dict[popxl.Tensor, popxl.Tensor]:
        by_ref = self.graph.graph._by_ref_inputs
        return {t: graph._add_input_like(t, t in by_ref) for t in self._passed()}

    def outer(self) -> tuple[popxl.Graph, dict[popxl.Tensor, popxl.Tensor]]:
        """The graph with the loop, and inputs of the original graph to its inputs."""
        loop = self._loop()
        graph = self._new_graph("batch_serial")
        with graph, popxl.in_sequence(True):
            row = popxl.graph_input((), popxl.int32, INDEX)
            seed = popxl.graph_input((2,), popxl.uint32, SEED) if self.seed is not None else None
            passed = self._add_passed(graph)
            start = popxl.constant(0, popxl.int32)
            carried = [start] if seed is None else [start, seed]
            ops.repeat(loop, self.steps, *carried, row, *passed.values())
        return graph, passed

    def _loop(self) -> popxl.Graph:
        """(step, seed?, row, passed...) -> (next step, next seed?)."""
        graph = self._new_graph("batch_serial_step")
        with graph, popxl.in_sequence(True):
            step = popxl.graph_input((), popxl.int32, "step")
            seed = popxl.graph_input((2,), popxl.uint32, SEED) if self.seed is not None else None
            row = popxl.graph_input((), popxl.int32, INDEX)
            following = step + 1  # read here first, the step is on the compute tiles, where rows are computed
            inputs = self._add_passed(graph)
            inputs |= {t: self._load(t, handle, row, step) for t, handle in self.loads.items()}
            if self.seed is not None and seed is not None:
                inputs[self.seed], seed = ops.split_random_seed(seed, 2)
            site = ops.call_with_info(self.graph.graph, inputs_dict=inputs)
            for t, stream in self.streams.items():
                ops.host_store(stream, site.graph_to_parent(t))
            for t, handle in self.stores.items():
                self._store(site.graph_to_parent(t), handle, row, step)
            popxl.graph_output(following)
            if seed is not None:
                popxl.graph_output(seed)
        return graph

    def _tiles(self):
        return popxl.io_tiles() if self.io_tiles else null_context()

    def _load(self, t: popxl.Tensor, handle: Any, row: popxl.Tensor, step: popxl.Tensor) -> popxl.Tensor:
        if not isinstance(handle, RemoteHandle):
            with self._tiles():
                loaded = ops.host_load(handle, t.name)
            return ops.io_tile_copy(loaded) if self.io_tiles else loaded
        at = handle.entry(row, step, self.steps)
        with self._tiles():
            loaded = ops.remote_load(handle.buffer, at, t.name)
        loaded = ops.io_tile_copy(loaded) if self.io_tiles else loaded
        sharded = handle.shard_group is not None and handle.shard_group.group_size > 1 and not t.meta_shape
        return gather_replica_sharded_tensor(loaded, replica_group=handle.shard_group) if sharded else loaded

    def _store(self, value: popxl.Tensor, handle: RemoteHandle, row: popxl.Tensor, step: popxl.Tensor) -> None:
        sharded = handle.shard_group is not None and handle.shard_group.group_size > 1 and not value.meta_shape
        value = ops.collectives.replica_sharded_slice(value, handle.shard_group) if sharded else value
        value = ops.io_tile_copy(value) if self.io_tiles else value
        at = handle.entry(row, step, self.steps)
        at = on_io_tiles(at) if self.io_tiles else at
        with self._tiles():
            ops.remote_store(handle.buffer, at, value)


def batch_serialise_fwd_and_grad(
    forward_graph: GraphWithNamedArgs,
    gradient_graph: GraphWithNamedArgs,
    named_inputs_for_grad_graph: NamedTensors,
    steps: int,
    load_handles: dict[popxl.Tensor, Any],
    store_streams: dict[popxl.Tensor, popxl.DeviceToHostStream],
    store_buffers: dict[popxl.Tensor, Any],
    seed_input: popxl.Tensor | None = None,
    rows: int = 1,
    io_mode: IoMode = "io",
) -> tuple[BatchSerialResult, BatchSerialResult]:
    """Serialise a graph and its gradient graph; activations pass between them through buffers.

    Parameters
    ----------
    named_inputs_for_grad_graph : NamedTensors
        Forward inputs, such as weights, that become named inputs of the gradient graph.
    store_buffers : dict of Tensor to RemoteHandle or ReplicaGrouping
        A grouping asks for a new buffer sharded over it.

    Raises
    ------
    ValueError
        A gradient that comes in has no load handle.
    RuntimeError
        The gradient graph reads tensors of another forward graph.
    """
    forward, info = forward_graph.graph, gradient_graph.grad_graph_info
    loads, stores = _handles(load_handles), _handles(store_buffers)
    for t, handle in list(stores.items()):
        if isinstance(handle, popxl.ReplicaGrouping):
            stores[t] = RemoteHandle(batch_serial_buffer(t, steps, rows, handle), 0, handle)
    named_inputs = {t: name for name, t in named_inputs_for_grad_graph.to_dict().items()}
    grad_args = dict(gradient_graph.args.to_dict())
    grad_loads: dict[popxl.Tensor, Any] = {}
    for index, (inner, connection) in enumerate(zip(info.graph.inputs, info.expected_inputs, strict=False)):
        source = connection.fwd_tensor
        if connection.connection_type is ExpectedConnectionType.FwdGrad:
            if inner not in loads:
                raise ValueError(
                    f"FwdGrad input (idx={index} {inner}) to Gradient graph must have a load_handle specified"
                )
        elif source in named_inputs:
            grad_args[named_inputs[source]] = inner
        else:
            grad_loads[inner] = _saved(source, forward, loads, stores, steps, rows)
    of_grad = {*info.graph.inputs, *info.graph.outputs}
    grad_loads |= {t: h for t, h in loads.items() if t in info.graph.inputs}

    def split(given: Mapping[popxl.Tensor, Any], grad: bool) -> dict[popxl.Tensor, Any]:
        return {t: h for t, h in given.items() if (t in of_grad) is grad}

    forward_loads = {t: h for t, h in loads.items() if t in forward.inputs}
    named = GraphWithNamedArgs(info.graph, NamedTensors.from_dict(grad_args), info)
    return (
        batch_serialise(
            forward_graph, steps, forward_loads, split(store_streams, False), split(stores, False), seed_input, rows,
            io_mode,
        ),
        batch_serialise(named, steps, grad_loads, split(store_streams, True), split(stores, True), None, rows, io_mode),
    )  # fmt: skip


def _saved(
    source: popxl.Tensor,
    forward: popxl.Graph,
    loads: Mapping[popxl.Tensor, Any],
    stores: dict[popxl.Tensor, Any],
    steps: int,
    rows: int,
) -> RemoteHandle:
    """Where the gradient graph loads a forward tensor from; one that no buffer has yet is stored in a new one.

    So is one that came from a stream: loading that again would take the next values from the host.
    """
    handle = loads.get(source)
    if isinstance(handle, RemoteHandle):
        return handle
    if source not in forward.inputs and source not in forward.outputs:
        raise RuntimeError(
            f"Fwd Connection {source} missing. It is no input or output of the forward graph {forward.id!r}, whose "
            "gradient graph was given."
        )
    if source not in stores:
        stores[source] = RemoteHandle(batch_serial_buffer(source, steps, rows))
    return stores[source]
