"""Memory that runs write large results into: NumPy arrays show it, so that a result is copied nowhere.

XLA writes a result into the memory of an argument that is donated for it, if that memory is XLA's own. So the arrays
of `initAnchorArrays` are views of such memory, which goes in and out of each run. This module works without JAX.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .._process.memory import is_limited
from ..buffers import aligned_empty, owner, unaligned_empty
from ..errors import popart_runtime_error

LEAST = 256 << 10
"""Bytes of a result from which on it is written in place; to copy less takes no longer than one more argument."""

Put = Callable[[np.ndarray], Any]


class ArrayKind(Protocol):
    """Shape and type of an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """Type of its elements."""
        ...


class ResultMemory:
    """Memory of one result. `view` is a NumPy array of it, which keeps it alive.

    `put` makes an array on the device from one on the host; `client` names the library that it belongs to, which is
    the only one whose programs may write here.
    """

    def __init__(self, kind: ArrayKind, put: Put, client: str) -> None:
        self.shape, self.dtype, self.client = tuple(kind.shape), np.dtype(kind.dtype), client
        self._put = put
        self._lent_to: Any = None
        self.is_lost = False
        self._allocate()

    def _allocate(self) -> None:
        given = unaligned_empty(self.shape, self.dtype)  # what XLA would share is not its own: it writes elsewhere
        self.array = self._put(given)
        self.array.block_until_ready()
        self.pointer: int = self.array.unsafe_buffer_pointer()
        self._is_shared = self.pointer == given.ctypes.data

    @property
    def nbytes(self) -> int:
        """Its size."""
        return _size(self)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's protocol."""
        return {"data": (self.pointer, False), "shape": (self.nbytes,), "typestr": "|u1", "version": 3}

    def view(self) -> np.ndarray:
        """An array of this memory."""
        return np.asarray(self).view(self.dtype).reshape(self.shape)

    def lend(self, user: WrittenResults) -> bool:
        """Whether this user alone may have runs write here; it is so until the user is gone."""
        with _lending:
            if not self._is_shared and (self._lent_to is None or self._lent_to() is None):
                self._lent_to = weakref.ref(user)
            return not self._is_shared and self._lent_to() is user

    def argument(self) -> Any:
        """The array to donate to a run; raises as `require`."""
        self.note_loss()
        self.require()
        if self.array.is_deleted():
            self._allocate()
        return self.array

    def note_loss(self) -> None:
        """Between runs: find out whether a run that failed has lost it, and somebody may hold a view."""
        self.is_lost = self._lent_to is not None and self.array.is_deleted()

    def require(self) -> None:
        """Raise popart_runtime_error if it is lost."""
        if self.is_lost:
            raise popart_runtime_error(
                "The memory of an array of initAnchorArrays() was lost when a run failed.\n"
                "  fix: take new arrays from initAnchorArrays(), and use the old ones no more."
            )

    def finish(self) -> None:
        """Wait for the run whose result `array` now is; raises its error.

        A result that lies elsewhere raises popart_runtime_error if somebody may hold a view.
        """
        try:
            self.array.block_until_ready()
        except Exception:
            self.array.delete()
            self.note_loss()
            raise
        pointer = self.array.unsafe_buffer_pointer()
        if pointer != self.pointer and self._lent_to is not None:
            raise popart_runtime_error("XLA has not written a result into the memory that was given for it.")
        self.pointer = pointer


_lending = threading.Lock()


def memory_of(array: np.ndarray) -> ResultMemory | None:
    """The memory that an array shows from its first to its last byte; None for any other array."""
    shown = owner(array).base
    if isinstance(shown, ResultMemory) and (array.ctypes.data, array.nbytes) == (shown.pointer, shown.nbytes):
        return shown
    return None


def require_kept(arrays: Iterable[np.ndarray]) -> None:
    """Raise popart_runtime_error if an array shows memory that a failed run has lost."""
    for array in arrays:
        memory = memory_of(array)
        if memory is not None:
            memory.require()


def _size(kind: ArrayKind) -> int:
    return math.prod(kind.shape) * np.dtype(kind.dtype).itemsize


def is_large(kind: ArrayKind) -> bool:
    """Whether a result of this type is written in place; 64-bit ones are not, which JAX may hold in 32 bits."""
    return np.dtype(kind.dtype).name in _TYPES and _size(kind) >= LEAST


_TYPES = {"float32", "float16", "bfloat16", "int32", "uint32", "int16", "uint16", "int8", "uint8", "bool"}


@dataclass(frozen=True)
class Destinations:
    """Where the results of runs with the same arrays go; by the index of the result."""

    others: Mapping[int, np.ndarray]  # the caller's arrays that results are copied into
    memories: Mapping[int, ResultMemory]  # memory that runs write into
    copied: Mapping[int, np.ndarray]  # the caller's arrays that don't show that memory

    def arguments(self) -> tuple[Any, ...]:
        """The arrays to donate to a run, its last arguments; raises as `ResultMemory.argument`."""
        return tuple(m.argument() for m in self.memories.values())

    def keep(self, results: Sequence[Any]) -> None:
        """Hold the memory that has come back as results."""
        for i, memory in self.memories.items():
            memory.array = results[i]

    def note_losses(self) -> None:
        """Find out what a run that failed has lost."""
        for memory in self.memories.values():
            memory.note_loss()

    @contextmanager
    def watched(self) -> Generator[None]:
        """Scope of a run; one that fails may have lost memory."""
        try:
            yield
        except BaseException:
            self.note_losses()
            raise

    def fill(self, results: Sequence[Any], to_host: Callable[[Any], np.ndarray]) -> None:
        """Wait for results that were kept, and copy them where they are not written in place."""
        for i, place in self.others.items():
            place[...] = to_host(results[i])
        for i, memory in self.memories.items():
            memory.finish()
            if i in self.copied:
                self.copied[i][...] = memory.view()


class WrittenResults:
    """The memory for the large results of one program, by name: that of a caller's arrays, else its own.

    `lends`: whether XLA's plan of the program writes all of them in place, on `device` where there are several. Users
    take turns.
    """

    def __init__(
        self, kinds: Mapping[str, ArrayKind], put: Put, client: str, *, lends: bool, device: Any = None
    ) -> None:
        self._kinds, self._put, self._client, self._lends = dict(kinds), put, client, lends
        self._device = device
        self._own: dict[str, ResultMemory] = {}

    def new_array(self, name: str, kind: ArrayKind) -> np.ndarray:
        """An uninitialised array of this kind for a result, which runs write into if it is large."""
        made = self._kinds.get(name)
        if made is None or (made.dtype, math.prod(made.shape)) != (kind.dtype, math.prod(kind.shape)):
            return aligned_empty(kind.shape, kind.dtype)
        return ResultMemory(made, self._put, self._client).view().reshape(kind.shape)

    def own(self) -> list[ResultMemory]:
        """Memory of this object for each result; made when it is needed."""
        return [self._own_for(name) for name in self._kinds]

    def destinations(self, places: Mapping[str, np.ndarray], first: int, inputs: Iterable[np.ndarray]) -> Destinations:
        """Where runs with these arrays for all anchors, and with these inputs, put results.

        The anchors are in order, the results of the program from index `first` on. To be called between runs.
        """
        if not self._kinds:
            return Destinations(dict(enumerate(places.values(), first)), {}, {})
        read = list(inputs)
        by_index = {first + i: (name, place) for i, (name, place) in enumerate(places.items())}
        large = {i: x for i, x in by_index.items() if x[0] in self._kinds}
        lent = {i: memory for i, x in large.items() if (memory := self._lent(*x, read)) is not None}
        if len(set(map(id, lent.values()))) < len(lent):  # one array for two anchors
            lent = {}
        for i in lent:
            self._own.pop(large[i][0], None)
        return Destinations(
            {i: place for i, (_, place) in by_index.items() if i not in large},
            {i: lent.get(i) or self._own_for(name) for i, (name, _) in large.items()},
            {i: place for i, (_, place) in large.items() if i not in lent},
        )

    def _lent(self, name: str, place: np.ndarray, inputs: Sequence[np.ndarray]) -> ResultMemory | None:
        """The memory of a caller's array if runs may write into it, and read nothing that lies there."""
        memory = memory_of(place)
        usable = (
            memory is not None
            and self._lends
            and memory.client == self._client
            and (memory.dtype, memory.shape) == (self._kinds[name].dtype, self._kinds[name].shape)
            and place.dtype == memory.dtype
            and not is_limited()  # a run that finds too little memory has given up what was donated to it
            and not any(np.may_share_memory(place, x) for x in inputs)
            and memory.lend(self)
            and (self._device is None or memory.array.devices() == {self._device})
        )
        return memory if usable else None

    def _own_for(self, name: str) -> ResultMemory:
        if name not in self._own:
            self._own[name] = ResultMemory(self._kinds[name], self._put, self._client)
        return self._own[name]
