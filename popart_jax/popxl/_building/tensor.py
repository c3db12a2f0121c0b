"""Tensors of a graph: intermediates, variables and constants, and their operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union, cast

import numpy as np
import onnx_ir as ir

from .. import dtypes
from .._internal.enums import TensorType, TileSet
from .._internal.placement import placement
from ..errors import UndefinedValue
from ..typing_ import NewAliasAnnotation
from .bindings import above, operators
from .spec import TensorSpec as TensorSpec

if TYPE_CHECKING:
    from ..graph import Graph
    from ..ir import Ir
    from ..replica_grouping import ReplicaGrouping

ScalarType = int | float | bool
HostTensor = np.ndarray | Iterable[ScalarType]
"""What host data may be: a NumPy array, or numbers in sequence."""
HostScalarTensor = ScalarType | np.generic | HostTensor
TensorLike = Union["Tensor", HostScalarTensor]
host_tensor_types = (np.ndarray, Iterable)
TILE_SET_MAP = {TileSet.Compute: "compute", TileSet.IO: "io", TileSet.Undefined: "undefined"}


def _either_side(name: str) -> tuple[Callable[[Tensor, TensorLike], Tensor], ...]:
    """The methods of a Python operator that have a tensor on their left and on their right."""

    def left(self: Tensor, other: TensorLike) -> Tensor:
        return getattr(operators, name)(self, self._ensure_tensor(other))

    def right(self: Tensor, other: TensorLike) -> Tensor:
        return getattr(operators, name)(self._ensure_tensor(other), self)

    return left, right


class Tensor:
    """A value of a graph; made by operators, `graph_input` and the functions below, never directly.

    Raises
    ------
    RuntimeError
        On construction.
    """

    _tensor_type: ClassVar[TensorType] = TensorType.ActGrad
    _value: ir.Value
    _graph: Graph
    _meta_shape: tuple[int, ...]
    _kind: TensorType

    __iter__ = None
    __contains__ = None
    __array_ufunc__ = None

    def __init__(self) -> None:
        raise RuntimeError(f"popxl.{type(self).__name__} cannot be constructed directly.")

    def __init_subclass__(cls, tensor_type: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if tensor_type is not None:
            cls._tensor_type = TensorType[tensor_type]

    @classmethod
    def _make(
        cls, graph: Graph, value: ir.Value, meta_shape: Iterable[int] = (), kind: TensorType | None = None
    ) -> Any:
        """Wrap a value of a graph's IR and enter it into the graph."""
        self = object.__new__(cls)
        self._value, self._graph = value, graph
        self._meta_shape = tuple(meta_shape)
        self._kind = cls._tensor_type if kind is None else kind
        value.meta["tensor"] = self
        graph._tensors[self.id] = self
        return self

    @classmethod
    def _from_pb_tensor(cls, pb_tensor: Any) -> Tensor:
        return pb_tensor._tensor

    @property
    def _pb_tensor(self) -> Any:
        return above.tensor_view(self)

    @property
    def id(self) -> str:
        """Name in the whole Ir: the graph's scope, then the name."""
        return self._value.name or ""

    @property
    def name(self) -> str:
        """Name in its graph; name scopes are part of it."""
        scope = self.scope
        return self.id[len(scope) + 1 :] if scope else self.id

    @property
    def scope(self) -> str:
        """Scope of its graph; empty for the main graph."""
        return self._graph.name

    @property
    def dtype(self) -> dtypes.dtype:
        """Element type."""
        return dtypes.dtype._from_onnx(self._value.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, as one replica sees it."""
        shape = self._value.shape
        return () if shape is None else tuple(int(d) for d in shape)  # pyright: ignore[reportArgumentType]

    @property
    def meta_shape(self) -> tuple[int, ...]:
        """Shape of the whole tensor when this is one shard of it, else ``()``."""
        return self._meta_shape

    @property
    def spec(self) -> TensorSpec:
        """Shape, type and meta shape."""
        return TensorSpec(self.shape, self.dtype, self.meta_shape)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nelms(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def strides(self, shape: Iterable[int] | None = None) -> tuple[int, ...]:
        """Bytes between neighbours along each axis of a C-ordered array of this type."""
        dims = self.shape if shape is None else tuple(shape)
        size = self.dtype.as_numpy().itemsize
        return tuple(int(size * np.prod(dims[i + 1 :], dtype=np.int64)) for i in range(len(dims)))

    @property
    def location_info(self) -> Any:
        """Where the tensor is stored."""
        return self._pb_tensor.tensorLocationInfo

    @property
    def ir(self) -> Ir:
        """The Ir that owns the tensor."""
        return self._graph.ir

    @property
    def ipu(self) -> int:
        """IPU that holds the tensor.

        Raises
        ------
        UndefinedValue
            Neither a producer nor a consumer is placed.
        """
        found = self._placement()[0]
        if found is None:
            raise UndefinedValue("Tensor's IPU is undefined.")
        return found

    @property
    def tile_set(self) -> Literal["compute", "io"]:
        """Tiles that hold the tensor.

        Raises
        ------
        UndefinedValue
            Neither a producer nor a consumer is placed.
        """
        found = TILE_SET_MAP.get(self._placement()[1], "undefined")
        if found == "undefined":
            raise UndefinedValue("Tensor's tile set is undefined.")
        return found  # pyright: ignore[reportReturnType]

    def _placement(self) -> tuple[int | None, TileSet]:
        return placement(self)

    @property
    def in_sync_with_ipu(self) -> bool:
        """Whether the host's copy is the device's."""
        return True

    @property
    def T(self) -> Tensor:
        """The tensor with its axes reversed."""
        return self.transpose()

    @property
    def T_(self) -> Tensor:
        """A view with the axes reversed."""
        return self.transpose_()

    def transpose(self, permutation: Iterable[int] | None = None) -> Tensor:
        """See `ops.transpose`."""
        return operators.transpose(self, permutation)

    def transpose_(self, permutation: Iterable[int] | None = None) -> Tensor:
        """See `ops.transpose_`."""
        return operators.transpose_(self, permutation)

    def reshape(self, shape: Iterable[int]) -> Tensor:
        """See `ops.reshape`."""
        return operators.reshape(self, shape)

    def reshape_(self, shape: Iterable[int]) -> Tensor:
        """See `ops.reshape_`."""
        return operators.reshape_(self, shape)

    def flatten(self) -> Tensor:
        """See `ops.flatten`."""
        return operators.flatten(self)

    def flatten_(self) -> Tensor:
        """See `ops.flatten_`."""
        return operators.flatten_(self)

    def detach(self) -> Tensor:
        """See `ops.detach`."""
        return operators.detach(self)

    def detach_(self) -> Tensor:
        """See `ops.detach_`."""
        return operators.detach_(self)

    def diag(self) -> Tensor:
        """The diagonal of a matrix.

        Raises
        ------
        ValueError
            The tensor has not two axes.
        """
        if self.rank != 2:
            raise ValueError("Diag expected a 2d tensor.")
        return self.flatten()[0 : min(self.shape) * (self.shape[1] + 1) : self.shape[1] + 1]

    def copy_to_ipu(self, destination: int, source: int | None = None) -> Tensor:
        """See `ops.ipu_copy`."""
        return operators.ipu_copy(self, destination, source)

    def _ensure_tensor(self, value: TensorLike, dtype: dtypes.dtype | None = None) -> Tensor:
        return above.as_tensor(value, self.dtype if dtype is None else dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.id} {self.dtype!r} {self.shape}]"

    def __hash__(self) -> int:
        return hash((self.id, self.ir.id))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.id == other.id and self.ir == other.ir

    def __len__(self) -> int:
        if not self.shape:
            raise ValueError("Tensor is a scalar and doesn't have a length.")
        return self.shape[0]

    __add__, __radd__ = _either_side("add")
    __sub__, __rsub__ = _either_side("sub")
    __mul__, __rmul__ = _either_side("mul")
    __truediv__, __rtruediv__ = _either_side("div")
    __mod__, __rmod__ = _either_side("fmod")
    __matmul__, __rmatmul__ = _either_side("matmul")
    __and__, __rand__ = _either_side("logical_and")
    __or__, __ror__ = _either_side("logical_or")

    def __iadd__(self, other: TensorLike) -> Tensor:
        operators.add_(self, self._ensure_tensor(other))
        return self

    def __pow__(self, other: TensorLike) -> Tensor:
        return operators.pow(self, other)

    def __rpow__(self, other: TensorLike) -> Tensor:
        return operators.pow(above.as_tensor(other), self)

    def __neg__(self) -> Tensor:
        return operators.negate(self)

    def __invert__(self) -> Tensor:
        return operators.logical_not(self)

    def __getitem__(self, key: Any) -> Tensor:
        return above.index(self, key)


class Variable(Tensor, tensor_type="Variable"):
    """A tensor that outlives a run; it lives in the main graph.

    Its host data belong to the Ir; a session that is attached holds the device's copy.
    """

    _host: Any
    _retrieval_mode: Literal["one_per_group", "all_replicas"]
    _grouping: ReplicaGrouping
    _in_sync: bool
    _remote: Any

    @property
    def _memmap_arr(self) -> np.memmap | None:
        """The memory map that is the host's copy, if one is."""
        return cast("np.memmap", self._host) if isinstance(self._host, np.memmap) else None

    @property
    def replica_grouping(self) -> ReplicaGrouping:
        """Groups of replicas that share one value."""
        return self._grouping

    @property
    def retrieval_mode(self) -> Literal["one_per_group", "all_replicas"]:
        """What reading returns: one value per group, or every replica's."""
        return self._retrieval_mode

    @property
    def shape_on_replica(self) -> tuple[int, ...]:
        """Shape that one replica sees."""
        return self.shape

    @property
    def shape_on_host(self) -> tuple[int, ...]:
        """Shape of the host's data: with more than one group a leading axis of groups."""
        groups = self._grouping.num_groups
        return (groups, *self._host_member_shape) if groups > 1 else self._host_member_shape

    @property
    def _host_member_shape(self) -> tuple[int, ...]:
        return self.shape

    @property
    def in_sync_with_ipu(self) -> bool:
        """Whether the host's copy is the device's."""
        return self._in_sync

    def copy_to_ipu(self, dst: int, src: int) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """See `ops.ipu_copy`; a variable has no producer, so the source must be given."""
        return operators.ipu_copy(self, dst, src)


class Constant(Tensor, tensor_type="Const"):
    """A tensor whose value is part of the program."""

    def copy_to_ipu(self, dst: int, src: int) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """See `ops.ipu_copy`; a constant has no producer, so the source must be given."""
        return operators.ipu_copy(self, dst, src)

    @property
    def _host(self) -> np.ndarray:
        return cast("np.ndarray", self._value.meta["host"])


if TYPE_CHECKING:
    _ByRef = Tensor
else:
    _ByRef = NewAliasAnnotation("TensorByRef", Tensor)
TensorByRef = _ByRef
"""Annotation of a graph's argument: the caller's tensor goes in itself, no copy, so that it may be written."""
