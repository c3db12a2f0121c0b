"""Step I/O from a data loader, with prefetching: a thread puts the next step's data on the devices while one runs."""

from __future__ import annotations

import base64
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np

from ...buffers import aligned_empty, frozen
from ...errors import popart_exception, popart_runtime_error
from .arrays import StreamFact, check_type, to_device_type
from .stepio import IStepIO, contiguous

Put = Callable[[str, np.ndarray], Any]
Source = Iterable[Any] | Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class _Step:
    """Data of one step on the devices, and the state of the source after they were drawn."""

    arrays: Mapping[str, Any]
    host: Mapping[str, np.ndarray]
    state: Any


class Stream(IStepIO):
    """Inputs from a generator, a Grain or a PyTorch loader, for `Session.run`; anchors go to arrays.

    An item of the source holds a whole step's data, or a piece of it (pieces are concatenated): dictionaries by
    the inputs' names (in PopXL by their streams too), or sequences in the order of the session's inputs (a single array
    for a single input). In a job of several processes each has a source of its own, with the data of its replicas.

    Parameters
    ----------
    source : iterable, or callable that gives one
        Where the data come from. Its order must be the same every time for a run that is to be resumed.
    outputs : dict of str to numpy.ndarray, optional
        An array for each anchor, as `initAnchorArrays` makes them. PopXL's sessions return results and need none.
    prefetch : int
        How many steps are drawn ahead; 0 draws when a run begins.

    Raises
    ------
    popart_exception
        `prefetch` is negative, or an array is not C-contiguous.

    Examples
    --------
    >>> data = Stream(loader, session.initAnchorArrays())  # doctest: +SKIP
    >>> while data.more(session):  # doctest: +SKIP
    ...     session.run(data)
    """

    def __init__(self, source: Source, outputs: Mapping[str, np.ndarray] | None = None, *, prefetch: int = 1) -> None:
        if prefetch < 0:
            raise popart_exception(f"prefetch is {prefetch}: expected 0 or more steps.")
        self.outputs = {name: contiguous(a, name, "output") for name, a in (outputs or {}).items()}
        self.inputs: dict[str, np.ndarray] = {}
        self.positions: dict[tuple[str, str], int] = {}
        self.asserts = True
        self.plan: Any = None
        self._source, self._ahead = source, prefetch
        self._iterator: Any = None
        self._steps, self._state = 0, None
        self._waiting: queue.Queue[Any] = queue.Queue(max(1, prefetch))
        self._peeked: Any = None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    # -- position in the data

    def position(self) -> dict[str, Any]:
        """Number of steps that were run from this stream, and the source's state if it has one (Grain's iterators)."""
        return {"steps": self._steps, "processes": jax.process_count(), "state": self._state}

    def seek(self, position: Mapping[str, Any]) -> None:
        """Continue from a position, before the first run.

        If the source has a saved state and the job as many processes as then, that state is restored. Otherwise the
        first run draws the earlier steps once more and drops them.

        Raises
        ------
        popart_runtime_error
            Data were drawn already.
        """
        if self._iterator is not None:
            raise popart_runtime_error("A stream's position can't change any more: its data are being drawn.")
        self._steps, self._state = position["steps"], position["state"]
        if position["processes"] != jax.process_count():
            self._state = None

    def close(self) -> None:
        """Stop prefetching; the source keeps its present state."""
        self._closed.set()
        if self._thread is not None:
            while self._thread.is_alive():
                self._drop_waiting()
                self._thread.join(0.05)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- drawing

    def more(self, session: Any) -> bool:
        """Whether there are data for another step of a session that is ready to run; waits until that is known."""
        return self._peek(*session._streamed()) is not None

    def take(self, streams: list[StreamFact], put: Put) -> Mapping[str, Any]:
        """The next step's inputs, on the devices.

        Raises
        ------
        popart_runtime_error
            The source has ended, or its items do not make up a step.
        """
        found = self._peek(streams, put)
        if found is None:
            raise popart_runtime_error(f"The source of the stream has ended after {self._steps} steps.")
        self._peeked = None
        self._steps, self._state = self._steps + 1, found.state
        self.inputs = dict(found.host)
        return found.arrays

    def _peek(self, streams: list[StreamFact], put: Put) -> _Step | None:
        if self._peeked is None:
            if self._iterator is None:
                self._begin(streams)
            self._peeked = self._draw(streams, put) if not self._ahead else self._from_thread(streams, put)
        if isinstance(self._peeked, BaseException):
            raise self._peeked
        return self._peeked if isinstance(self._peeked, _Step) else None

    def _begin(self, streams: list[StreamFact]) -> None:
        """Start a fresh iterator and advance it to the position."""
        source = self._source() if callable(self._source) else self._source
        self._iterator = iter(source)
        if self._state is not None and hasattr(self._iterator, "set_state"):
            self._iterator.set_state(_unpacked(self._state))
            return
        for done in range(self._steps):
            if self._gather(streams) is None:
                raise popart_runtime_error(f"The source ended after {done} of the {self._steps} steps that were run.")

    def _from_thread(self, streams: list[StreamFact], put: Put) -> Any:
        if self._thread is None:
            self._thread = threading.Thread(target=self._fill, args=(streams, put), daemon=True)
            self._thread.start()
        return self._waiting.get()

    def _fill(self, streams: list[StreamFact], put: Put) -> None:
        found: Any = None
        while not self._closed.is_set() and (found is None or isinstance(found, _Step)):
            try:
                found = self._draw(streams, put)
            except BaseException as err:
                found = err
            while not self._closed.is_set():
                try:
                    self._waiting.put(found, timeout=0.1)
                    break
                except queue.Full:
                    continue

    def _drop_waiting(self) -> None:
        while not self._waiting.empty():
            self._waiting.get_nowait()

    def _draw(self, streams: list[StreamFact], put: Put) -> _Step | str:
        """The next step's data, or a text that says why there are none."""
        host = self._gather(streams)
        if host is None:
            return "ended"
        state = self._iterator.get_state() if hasattr(self._iterator, "get_state") else None
        arrays = {s.name: put(s.name, frozen(to_device_type(host[s.name], s).reshape(s.shape))) for s in streams}
        return _Step(arrays, host, _packed(state))

    def _gather(self, streams: list[StreamFact]) -> dict[str, np.ndarray] | None:
        """Items until every input of a step is full; None where the source ends before the first of them."""
        parts: dict[str, list[np.ndarray]] = {s.name: [] for s in streams}
        missing = {s.name: s.count for s in streams}
        while any(missing.values()):
            item = next(self._iterator, None)
            if item is None:
                if all(missing[s.name] == s.count for s in streams):
                    return None
                raise popart_runtime_error(f"The source ended inside a step: elements missing of each input {missing}.")
            for name, array in _named(item, streams).items():
                if array.size > missing[name]:
                    raise popart_runtime_error(
                        f"An item of the source has {array.size} elements for tensor {name}, where the step takes "
                        f"{missing[name]} more.\n  fix: items that make up whole steps, piece by piece."
                    )
                parts[name].append(array)
                missing[name] -= array.size
        return {s.name: _joined(parts[s.name], s) for s in streams}


def _named(item: Any, streams: list[StreamFact]) -> dict[str, np.ndarray]:
    """Arrays of one item by the inputs' names."""
    names = [s.name for s in streams]
    if isinstance(item, Mapping):
        given = {getattr(key, "tensor_id", key): value for key, value in cast("Mapping[Any, Any]", item).items()}
        lacking = [n for n in names if n not in given]
        if lacking:
            raise popart_runtime_error(f"An item of the source lacks {lacking}; it has {sorted(map(str, given))}.")
        return {n: np.asarray(given[n]) for n in names}
    values = cast("Sequence[Any]", item) if isinstance(item, (list, tuple)) else [item]
    if len(values) != len(names):
        raise popart_runtime_error(f"An item of the source has {len(values)} arrays, the session takes {names}.")
    return {n: np.asarray(x) for n, x in zip(names, values, strict=True)}


def _joined(parts: list[np.ndarray], stream: StreamFact) -> np.ndarray:
    """Pieces of a step concatenated in new memory, which the device may take over."""
    whole = aligned_empty(stream.shape, parts[0].dtype)
    check_type(stream, whole.dtype)
    flat, filled = whole.reshape(-1), 0
    for part in parts:
        flat[filled : filled + part.size] = part.reshape(-1)
        filled += part.size
    return whole


def _packed(state: Any) -> Any:
    """A source's state as JSON."""
    return {"bytes": base64.b64encode(state).decode()} if isinstance(state, bytes) else state


def _unpacked(state: Any) -> Any:
    held = cast("dict[Any, Any]", state) if isinstance(state, dict) else {}
    return base64.b64decode(held["bytes"]) if set(held) == {"bytes"} else cast("Any", state)
