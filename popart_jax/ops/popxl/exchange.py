"""Transfers: host streams and remote buffers are program state, copies between IPUs and tiles are identities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
from jax import lax

from .. import replicas
from ..arrays import Array, as_results, device_dtype
from ..operator import BETWEEN_REPLICAS, EFFECT, MOVES_DATA, NOT_OUTLINED, as_graphcore, gradient, operator
from ..registry import NodeRef, ProgramState, lowers
from . import DOMAIN


@lowers("Init", domain=DOMAIN)
def init(*, shape: Sequence[int], dtype: int, program: ProgramState) -> jax.Array:
    """Zeros; undefined content is zero as well."""
    return jnp.zeros(shape, device_dtype(dtype))


def load(program: Any, stream: str) -> Any:
    """The next slot of a host-to-device stream."""
    data, cursor = program.state[f"h2d:{stream}"], f"h2d#{stream}"
    at = program.state.get(cursor)
    if at is None:
        return data[0]
    program.state[cursor] = (at + 1) % data.shape[0]
    return cast("jax.Array", lax.dynamic_index_in_dim(data, at, keepdims=False))


def store(program: Any, stream: str, x: Any) -> None:
    """Fill the next slot of a device-to-host stream."""
    data, cursor = program.state[f"d2h:{stream}"], f"d2h#{stream}"
    at = program.state.get(cursor)
    x = jnp.asarray(x).astype(data.dtype)
    if at is None:
        program.state[f"d2h:{stream}"] = x[None]
        return
    program.state[f"d2h:{stream}"] = lax.dynamic_update_index_in_dim(data, x, at, 0)
    program.state[cursor] = (at + 1) % data.shape[0]


operator(
    "HostLoad",
    MOVES_DATA | NOT_OUTLINED | EFFECT,
    gradients=(),
    popxl=as_graphcore(module="exchange", parameters="sid=stream"),
)


operator(
    "HostLoadInplace",
    MOVES_DATA | NOT_OUTLINED | EFFECT,
    popxl=as_graphcore(module="exchange", runs_as="HostLoad", parameters="sid=stream"),
)


@lowers("HostLoad", domain=DOMAIN)
def host_load(start: Array | None = None, /, *, stream: str, program: ProgramState) -> Array:
    return load(program, stream)


operator(
    "HostStore", MOVES_DATA | NOT_OUTLINED | EFFECT, popxl=as_graphcore(module="exchange", parameters="sid=stream")
)


@lowers("HostStore", domain=DOMAIN)
def host_store(x: Array, /, *, stream: str, program: ProgramState) -> tuple[Any, ...]:
    store(program, stream, x)
    return ()


def missing_entry(row: int, buffer: int | str, entries: int) -> str | None:
    """What is wrong with a row of a remote buffer."""
    return None if 0 <= row < entries else f"there is no entry {row} in remote buffer {buffer}, which has {entries}"


def _row(offset: Any, buffer: int, entries: int) -> Any:
    """Row of a remote buffer; the first one if no offset is given. One that is known while tracing must exist."""
    if offset is None:
        return 0
    if isinstance(offset, np.ndarray | np.generic):
        wrong = missing_entry(int(cast("np.ndarray", offset).item()), buffer, entries)
        if wrong is not None:
            raise ValueError(wrong)
    return jnp.asarray(offset).reshape(()).astype(jnp.int32)


operator(
    "RemoteLoad", MOVES_DATA, gradients=(), popxl=as_graphcore(module="exchange", parameters="remoteBufferId=buffer")
)


operator(
    "RemoteLoadInplace",
    MOVES_DATA,
    popxl=as_graphcore(module="exchange", runs_as="RemoteLoad", parameters="remoteBufferId=buffer"),
)


@lowers("RemoteLoad", domain=DOMAIN)
def remote_load(start: Array, offset: Array | None = None, /, *, buffer: int, program: ProgramState) -> jax.Array:
    held = program.state[f"remote:{buffer}"]
    return cast("jax.Array", lax.dynamic_index_in_dim(held, _row(offset, buffer, held.shape[0]), keepdims=False))


operator("RemoteStore", MOVES_DATA | EFFECT, popxl=as_graphcore(module="exchange", parameters="remoteBufferId=buffer"))


@lowers("RemoteStore", domain=DOMAIN)
def remote_store(x: Array, offset: Array | None = None, /, *, buffer: int, program: ProgramState) -> tuple[Any, ...]:
    name = f"remote:{buffer}"
    held = program.state[name]
    row = _row(offset, buffer, held.shape[0])
    program.state[name] = lax.dynamic_update_index_in_dim(held, jnp.asarray(x).astype(held.dtype), row, 0)
    return ()


operator("MultiExchange", MOVES_DATA | EFFECT, popxl=as_graphcore(module="exchange"))


@lowers("MultiExchange", domain=DOMAIN)
def multi_exchange(*args: Any, node: NodeRef, program: ProgramState) -> tuple[Any, ...]:
    """Several exchanges at once, in their order; operands and results are concatenated."""
    results: list[Any] = []
    position = 0
    rows = {"HostLoad": host_load, "HostStore": host_store, "RemoteLoad": remote_load, "RemoteStore": remote_store}
    for part in cast("Sequence[ir.Node]", node.meta["parts"]):
        n = len(part.inputs)
        name = "stream" if part.op_type.startswith("Host") else "buffer"
        value = part.attributes[name].value
        results.extend(as_results(rows[part.op_type](*args[position : position + n], **{name: value}, program=program)))
        position += n
    return tuple(results)


operator("IoTileCopy", MOVES_DATA, gradients=gradient(name="IoTileCopy"), popxl=as_graphcore())
operator(
    "IpuCopy",
    MOVES_DATA | NOT_OUTLINED,
    gradients=gradient(name="IpuCopy"),
    popxl=as_graphcore(parameters="source destination"),
)


@lowers("IpuCopy", domain=DOMAIN)
@lowers("IoTileCopy", domain=DOMAIN)
def copy(x: Array, /) -> Array:
    return x


operator("RemoteCodeLoad", MOVES_DATA, popxl=as_graphcore(module="exchange", parameters="graph_id location"))


@lowers("RemoteCodeLoad", domain=DOMAIN)
def remote_code_load(*, graph_id: str = "", program: ProgramState) -> tuple[Any, ...]:
    """No effect here; only the cost model moves code."""
    return ()


operator(
    "AllReduce",
    BETWEEN_REPLICAS,
    gradients=gradient(of=None),
    popxl=as_graphcore(module="collectives", parameters="op ipus identicalInputs identicalGradInputs"),
)


@lowers("AllReduce", domain=DOMAIN)
def all_reduce(*xs: Any, op: int, identicalInputs: int = 0, identicalGradInputs: int = 0) -> tuple[Any, ...]:
    """Reduction across the IPUs of one replica; identical inputs count as reduced already."""
    if identicalInputs:
        return tuple(xs)
    total = replicas._REDUCERS[op](jnp.stack(xs))
    return tuple(total for _ in xs)


@lowers("AllReduceGrad", domain=DOMAIN)
def all_reduce_grad(*xs: Any, op: int, identicalInputs: int = 0, identicalGradInputs: int = 0) -> tuple[Any, ...]:
    """Gradients are reduced like values; identical ones are reduced already."""
    return all_reduce(*xs, op=op, identicalInputs=identicalGradInputs)


def _groups(groups: tuple[int, ...]) -> replicas.Groups:
    return replicas.groups_from(groups)


@lowers("ReplicatedAllReduce", domain=DOMAIN)
def replicated_all_reduce(x: Array, /, *, op: int, groups: tuple[int, ...], program: ProgramState) -> Array:
    return replicas.all_reduce(jnp.asarray(x), op, _groups(groups))


@lowers("ReplicatedReduceScatter", domain=DOMAIN)
def replicated_reduce_scatter(x: Array, /, *, op: int, groups: tuple[int, ...], program: ProgramState) -> jax.Array:
    return replicas.reduce_scatter(jnp.asarray(x), op, _groups(groups))


@lowers("ReplicatedAllGather", domain=DOMAIN)
def replicated_all_gather(
    x: Array, /, *, groups: tuple[int, ...], shape: Sequence[int], program: ProgramState
) -> jax.Array:
    """The members' values one after the other; padding at the end is dropped."""
    flat = replicas.all_gather(jnp.asarray(x), _groups(groups))
    return flat[: int(np.prod(shape, dtype=np.int64))].reshape(shape)
