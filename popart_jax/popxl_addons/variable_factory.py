"""Factories that make a graph input now and its variable, in the main graph, later."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from .. import popxl
from ..popxl import ReplicaGrouping, dtypes, ops
from ..popxl.utils import to_numpy
from .dot_tree import DotTree
from .named_remote_buffers import NamedRemoteBuffers
from .named_replica_grouping import NamedReplicaGrouping
from .named_tensors import NamedTensors

logger = logging.getLogger(__name__)
host_scalar_tensor_types = (float, int, bool, np.number, np.bool_, np.ndarray)
DataIter = Callable[[], Any] | Iterable[Any]


def _iterate(data_iter: DataIter) -> Iterator[Any]:
    """Iterate over the data; a callable is called for each element, after one trial call whose result is dropped.

    What is neither callable nor iterable, and a callable that fails, raises ValueError.
    """
    if callable(data_iter):
        try:
            data_iter()
        except Exception as err:
            raise ValueError("Passed callable via `data_iter` throws error.") from err
        return (data_iter() for _ in itertools.count())
    if isinstance(data_iter, Iterable):
        return iter(data_iter)
    raise ValueError(f"`data_iter` must be an iterable or callable. It is a {type(data_iter).__name__}.")


def _as_array(value: Any) -> np.ndarray:
    """One element as an array; ValueError unless it is an array, a number or a sequence of numbers."""
    known = isinstance(value, (np.ndarray, np.generic, int, float, bool, Iterable)) or hasattr(value, "detach")
    if not known or isinstance(value, (str, bytes)):
        raise ValueError(f"`data_iter` must be of a numpy array, torch tensor or iterable. It provided: {value}.")
    given = cast("Any", value)
    return to_numpy(given, copy=False) if hasattr(given, "detach") else np.asarray(given)


class VariableFactory:
    """Makes one variable, or one for each group of replicas, from an iterator of host data.

    Parameters
    ----------
    data_iter : callable or iterable
        A callable is called for each variable; of an iterable each variable takes the next element.
    dtype : dtype, optional
        Type of the variable; by default that of the data.
    name : str, optional
    by_ref : bool
        The graph input is passed by reference.
    replica_grouping : ReplicaGrouping, optional
        Default: all replicas share the variable.
    shard_over : int
        Number of replicas that each hold a part.

    Raises
    ------
    ValueError
        `data_iter` is neither, fails, or gives no numbers.
    AssertionError
        `shard_over` is larger than a group.
    """

    def __init__(
        self,
        data_iter: DataIter,
        dtype: dtypes.dtype | None = None,
        name: str | None = None,
        by_ref: bool = False,
        replica_grouping: ReplicaGrouping | None = None,
        shard_over: int = 1,
    ) -> None:
        self._elements = _iterate(data_iter)
        self.name = name
        self._peeked: list[np.ndarray] = []
        first = self._next()
        self._peeked.append(first)
        self.by_ref = by_ref
        self.dtype = dtype if dtype is not None else _dtype_of(first)
        self.replica_grouping = replica_grouping or popxl.gcg().ir.replica_grouping()
        assert shard_over <= self.replica_grouping.group_size, (
            f"shard_over {shard_over} is larger than the group size {self.replica_grouping.group_size}"
        )
        self.replica_sharded = shard_over > 1
        self.shape = (math.prod(first.shape) // shard_over,) if self.replica_sharded else tuple(first.shape)
        self.meta_shape = tuple(first.shape) if self.replica_sharded else None

    def create_input(self, prefix: str | None = None) -> popxl.Tensor:
        """A graph input of the variable's shape in the current graph, named ``<prefix>.<name>`` or ``<name>``."""
        name = f"{prefix}.{self.name}" if prefix else self.name
        meta = {"meta_shape": self.meta_shape} if self.meta_shape is not None else {}
        return popxl.graph_input(self.shape, self.dtype, name, by_ref=self.by_ref, **meta)

    def create_tensor(
        self,
        name: str | None = None,
        empty: bool = False,
        memmap_dir: str | None = None,
        read_only_if_exists: bool = False,
    ) -> popxl.tensor.Variable:
        """A variable in the main graph with the next data, in its whole shape also when the factory is sharded."""
        data = self._data(name, empty, memmap_dir, read_only_if_exists)
        return popxl.variable(data, self.dtype, name or self.name, replica_grouping=self.replica_grouping)

    def create_remote_tensor(
        self,
        buffer: popxl.RemoteBuffer,
        entry: int,
        name: str | None = None,
        empty: bool = False,
        memmap_dir: str | None = None,
        read_only_if_exists: bool = False,
    ) -> popxl.Tensor:
        """A remote variable at `entry` of `buffer`, sharded when the buffer holds shards."""
        data = self._data(name, empty, memmap_dir, read_only_if_exists)
        make = popxl.remote_replica_sharded_variable if buffer.meta_shape else popxl.remote_variable
        grouping = self.replica_grouping
        return make(data, buffer, entry, self.dtype, name or self.name, replica_grouping=grouping)

    def _data(self, name: str | None, empty: bool, memmap_dir: str | None, read_only_if_exists: bool) -> np.ndarray:
        if memmap_dir is None:
            return self.next_data(empty)
        return self.next_memmap(memmap_dir, name or self.name or "variable", empty, read_only_if_exists)

    def next_data(self, empty: bool = False) -> np.ndarray:
        """The next array; with several groups that many arrays, stacked on a leading axis."""
        groups = self.replica_grouping.num_groups
        if empty:
            shape = self._full_shape()
            return np.empty(shape if groups == 1 else (groups, *shape), self.dtype.as_numpy())
        arrays = [self._next() for _ in range(groups)]
        return arrays[0] if groups == 1 else np.stack(arrays)

    def _full_shape(self) -> tuple[int, ...]:
        return self.meta_shape if self.meta_shape is not None else self.shape

    def _next(self) -> np.ndarray:
        if self._peeked:
            return self._peeked.pop()
        try:
            return _as_array(next(self._elements))
        except StopIteration:
            raise ValueError(f"The `data_iter` of the variable factory {self.name!r} has no more elements.") from None

    def next_memmap(
        self, memmap_dir: str, name: str, empty: bool = False, read_only_if_exists: bool = False
    ) -> np.memmap:
        """The data in ``<memmap_dir>/<name>.npy``, a raw file; one that exists is used as it is.

        Raises
        ------
        ValueError
            The file that exists has another size.
        """
        path = Path(memmap_dir) / f"{name}.npy"
        groups = self.replica_grouping.num_groups
        shape = self._full_shape() if groups == 1 else (groups, *self._full_shape())
        if path.exists():
            needed = math.prod(shape) * self.dtype.as_numpy().itemsize
            if path.stat().st_size != needed:  # NumPy would read a part of it, or make it longer
                raise ValueError(
                    f"{path} has {path.stat().st_size} bytes, but {name!r} of shape {shape} and type {self.dtype} "
                    f"takes {needed}: it holds another variable."
                )
            return np.memmap(path, self.dtype.as_numpy(), "r" if read_only_if_exists else "r+", shape=shape)
        path.parent.mkdir(parents=True, exist_ok=True)
        stored = np.memmap(path, self.dtype.as_numpy(), "w+", shape=shape)
        if not empty:
            stored[...] = self.next_data()
            stored.flush()
        return stored


def _dtype_of(array: np.ndarray) -> dtypes.dtype:
    narrow = {"float64": np.float32, "int64": np.int32, "uint64": np.uint32}.get(array.dtype.name)
    return dtypes.dtype.as_dtype(np.dtype(narrow) if narrow is not None else array.dtype)


class NamedVariableFactories(DotTree[VariableFactory]):
    """Factories by name."""

    def init(
        self,
        prefix: str | None = None,
        empty: bool = False,
        memmap_dir: str | None = None,
        read_only_if_exists: bool = False,
    ) -> NamedTensors:
        """Variables from all factories, in alphabetical order, named ``<prefix>.<key>`` or ``<key>``.

        Variables of sharded factories are whole, while their graph inputs take shards: slice them with
        `ops.collectives.replica_sharded_slice`, or use `init_remote` and `load_remote`.
        """
        given = (empty, memmap_dir, read_only_if_exists)
        return NamedTensors.from_dict({k: f.create_tensor(_joined(prefix, k), *given) for k, f in self._sorted()})

    def init_remote(
        self,
        buffers: NamedRemoteBuffers,
        entry: int = 0,
        prefix: str | None = None,
        empty: bool = False,
        memmap_dir: str | None = None,
        read_only_if_exists: bool = False,
    ) -> NamedTensors:
        """Remote variables in the buffers of the same keys."""
        places, given = buffers.to_dict(), (empty, memmap_dir, read_only_if_exists)
        return NamedTensors.from_dict(
            {k: f.create_remote_tensor(places[k], entry, _joined(prefix, k), *given) for k, f in self._sorted()}
        )

    def _sorted(self) -> list[tuple[str, VariableFactory]]:
        return sorted(self.to_dict().items(), key=lambda pair: pair[0])

    def init_zero(self) -> NamedTensors:
        """Zeros in the current graph, one tensor for each factory."""
        return self._init("zero")

    def init_undef(self) -> NamedTensors:
        """Tensors of unspecified content in the current graph."""
        return self._init("undef")

    def _init(self, kind: Any) -> NamedTensors:
        made = {k: ops.init(f.shape, f.dtype, k, kind, f.meta_shape) for k, f in self.to_dict().items()}
        return NamedTensors.from_dict(made)

    @property
    def replica_groupings(self) -> NamedReplicaGrouping:
        """Groupings of the factories."""
        return NamedReplicaGrouping.from_dict({k: f.replica_grouping for k, f in self.to_dict().items()})


def _joined(prefix: str | None, key: str) -> str:
    return f"{prefix}.{key}" if prefix else key


def add_variable_input(
    name: str,
    data_iter: DataIter,
    dtype: dtypes.dtype | None = None,
    by_ref: bool = False,
    replica_grouping: ReplicaGrouping | None = None,
) -> tuple[popxl.Tensor, VariableFactory]:
    """A graph input in the current graph and the factory of its variable."""
    factory = VariableFactory(data_iter, dtype, name, by_ref, replica_grouping)
    return factory.create_input(), factory


def add_replica_sharded_variable_input(
    name: str,
    data_iter: DataIter,
    dtype: dtypes.dtype | None = None,
    by_ref: bool = False,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
) -> tuple[popxl.Tensor, VariableFactory]:
    """As `add_variable_input` for a variable of which each replica of a group (default: all) holds a part."""
    grouping = replica_grouping or popxl.gcg().ir.replica_grouping()
    shards = grouping.group_size if shard_over is None else shard_over
    factory = VariableFactory(data_iter, dtype, name, by_ref, grouping, shards)
    return factory.create_input(), factory
