"""Remote buffers: arrays of tensors outside the chip, one per replica."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

from ._building.bindings import above
from ._building.spec import checked_shape
from ._building.tensor import Tensor
from .context import gcg, gir
from .dtypes import dtype as Dtype

_READ_ONLY = {"tensor_shape", "tensor_dtype", "remote_buffer_id"}


class RemoteBuffer:
    """`entries` tensors of one shape and type in remote memory, per replica.

    Parameters
    ----------
    tensor_shape, tensor_dtype
        One entry.
    entries : int
        Number of entries, at least 1 (ValueError).
    """

    _ir: Any
    _id: int
    _meta_shape: tuple[int, ...]
    _shards: int | None
    _shape: tuple[int, ...]
    _dtype: Dtype
    _entries: int

    def __init__(self, tensor_shape: tuple[int, ...], tensor_dtype: Dtype, entries: int) -> None:
        owner = gcg().ir
        self._enter(owner, owner._next_buffer, tensor_shape, tensor_dtype, entries)

    def _enter(self, owner: Any, number: int, shape: tuple[int, ...], dtype: Dtype, entries: int) -> None:
        for name, value in (("_ir", owner), ("_id", number), ("_meta_shape", ()), ("_shards", None)):
            object.__setattr__(self, name, value)
        self.set_remote_buffer_info(dtype, shape, entries)
        owner._next_buffer = max(owner._next_buffer, number + 1)
        owner._buffers[number] = self

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _READ_ONLY:
            raise AttributeError(f"can't set attribute '{name}'")
        object.__setattr__(self, name, value)

    @property
    def _current_ir(self) -> Any:
        return self._ir._pb_ir

    @property
    def remote_buffer_id(self) -> int:
        """Number of the buffer in its Ir, from 1."""
        return self._id

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """Shape of an entry."""
        return self._shape

    @property
    def tensor_dtype(self) -> Dtype:
        """Type of an entry."""
        return self._dtype

    @property
    def entries(self) -> int:
        """Number of entries."""
        return self._entries

    @entries.setter
    def entries(self, value: int) -> None:
        self._entries = _checked(value)

    @property
    def meta_shape(self) -> tuple[int, ...]:
        """Shape of the whole tensor of which the entries are shards, else ``()``."""
        return self._meta_shape

    @meta_shape.setter
    def meta_shape(self, value: tuple[int, ...]) -> None:
        self._meta_shape = checked_shape(value)

    def set_remote_buffer_info(self, tensor_dtype: Dtype, tensor_shape: tuple[int, ...], entries: int) -> None:
        """Replace type, shape and number of entries."""
        self._dtype, self._shape = Dtype._checked(tensor_dtype, "tensor_dtype"), checked_shape(tensor_shape)
        self._entries = _checked(entries)

    def validate_tensor_matches_buffer(self, t: Tensor, num_shards: int = 1) -> None:
        """Check that `t` can be an entry.

        Parameters
        ----------
        num_shards : int
            More than 1: `t` is the whole tensor and the meta shapes are compared.

        Raises
        ------
        ValueError
            Shape or type differ.
        """
        mine, theirs = (self.meta_shape, t.meta_shape) if num_shards > 1 else (self.tensor_shape, t.shape)
        if tuple(mine) != tuple(theirs) or self.tensor_dtype != t.dtype:
            raise ValueError(
                f"Tensor {t.id} does not match buffer.\n"
                f"Existing remote buffer has shape={tuple(mine)} and dtype={self.tensor_dtype!r}.\n"
                f"The tensor has shape={tuple(theirs)}, dtype={t.dtype!r}."
            )

    def __hash__(self) -> int:
        return hash((self._ir.id, self._id))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteBuffer) and (self._ir.id, self._id) == (other._ir.id, other._id)

    def __repr__(self) -> str:
        return (
            f"RemoteBuffer[id={self._id} shape={self._shape} dtype={self._dtype!r} entries={self._entries} "
            f"meta_shape={self._meta_shape}]"
        )


def _checked(entries: int) -> int:
    if not isinstance(entries, SupportsIndex) or operator.index(entries) < 1:
        raise ValueError(f"Entries must be a non-zero, positive integer. Got {entries}")
    return operator.index(entries)


@above.enter("remote_buffer_of")
def remote_buffer_of(owner: Any, number: int, shape: tuple[int, ...], dtype: Dtype, entries: int) -> RemoteBuffer:
    """The buffer of that number of an Ir, which gets these entries; a new one if there is none."""
    found = owner._buffers.get(number)
    if found is not None:
        found.set_remote_buffer_info(dtype, shape, entries)
        return found
    made = object.__new__(RemoteBuffer)
    made._enter(owner, number, shape, dtype, entries)
    return made


def remote_buffer(tensor_shape: tuple[int, ...], tensor_dtype: Dtype, entries: int = 1) -> RemoteBuffer:
    """A new remote buffer of the current Ir."""
    gir()
    return RemoteBuffer(tensor_shape=tensor_shape, tensor_dtype=tensor_dtype, entries=entries)
