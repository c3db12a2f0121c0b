"""A session that starts from a file: the program that an earlier process has compiled, and what a run needs besides.

Such a session needs XLA's client alone: importing JAX and ONNX, reading the graph and tracing it would take several
times as long. It can be prepared and can run plain arrays; training sessions (`start_training`) can also exchange
weights and optimizer values. The first call of anything else makes the session in full (`Parts.__getattr__`), from the
same bytes of the model.
"""

from __future__ import annotations

import copy
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import session as later
from ..buffers import shareable
from ..errors import popart_exception
from ..execution.room import Room
from ..execution.stored.container import Sealed
from ..execution.uninterrupted import Uninterrupted
from ..execution.written_results import Destinations, WrittenResults
from ..logs import module_logger
from ..model.files import wire
from ..optimizers import Optimizer
from ..preparation import PREPARE, Preparation
from .feeding.stepio import PyStepIO

MAIN = ""
"""Handle of the main program."""
RECORD = "start"
NAMED_RUNS = 1000
"""How many runs a session remembers by name."""


@dataclass(frozen=True)
class Asked:
    """Arguments of a session's constructor. `loss` and `optimizer` are None for inference."""

    model: Any
    data_flow: Any
    device: Any
    shapes: Any
    patterns: Any
    options: Any
    name: str
    loss: str | None = None
    optimizer: Optimizer | None = None


@dataclass(frozen=True)
class Place:
    """The file for a session's program, which may not exist yet, and the session's model."""

    path: Path
    model: wire.Apart  # the message of the model without the data of its initializers
    arrays: dict[int, np.ndarray]  # data of the initializers that were read, by number
    stamp: tuple[int, ...]  # tells whether the model's file was changed since


class Start:
    """A session's program, loaded without the session."""

    def __init__(self, asked: Asked, place: Place, file: Sealed, record: Mapping[str, Any]) -> None:
        own = {n: copy.deepcopy(getattr(asked, n)) for n in ("data_flow", "shapes", "patterns", "options", "optimizer")}
        self.asked, self.place = replace(asked, **own), place
        self.token = object()  # kept in the plan of each step I/O that was checked here
        self.prepared, self.sent = False, False  # whether `prepareDevice`, and `weightsFromHost`, was called
        self.turn = threading.RLock()
        self.successor: Any = None
        self.names: deque[str] = deque(maxlen=NAMED_RUNS)  # of the latest runs
        self.record = record  # what `start_files` has written
        self._load(file)

    def _load(self, file: Sealed) -> None:
        from .._compat import xla

        self.xla: Any = xla
        record = self.record
        self._inputs = {n: (tuple(shape), np.dtype(host)) for n, host, _, shape in record["inputs"]}
        self._anchors = {n: (tuple(shape), np.dtype(dtype)) for n, dtype, shape in record["anchors"]}
        self._put = [_putting(xla, n, np.dtype(host), np.dtype(on), shape) for n, host, on, shape in record["inputs"]]
        self.call = self._program(file, MAIN)  # the step, on device arrays
        self.room = Room.of(record["room"])
        written = {n: xla.Kind(tuple(shape), np.dtype(dtype)) for n, dtype, shape in record["written"]}
        self.written = WrittenResults(written, xla.put, "XLA alone", lends=record["in_place"])
        weights = [xla.put(self.place.arrays[index]) for index in record["weights"]]
        note = record["preparation"]
        if note is not None:
            computed = None if note["host"] else self._program(file, MAIN + PREPARE)
            preparation, made = Preparation.noted(computed, note), list[np.ndarray]()
            weights = list(preparation.take(weights, lambda x: made.append(x) or xla.put(x)))
            if note["host"]:
                self._replace_host_weights(preparation.seen(made))
        self.weights = weights

    def _replace_host_weights(self, views: Mapping[int, np.ndarray]) -> None:
        """Replace host weights by views of the device's reordered copies, so that memory holds them once."""
        for number, view in views.items():
            index = self.record["weights"][number]
            if view.shape == self.place.arrays[index].shape:
                self.place.arrays[index] = view

    def _program(self, file: Sealed, handle: str) -> Any:
        code = file.code(handle)
        if code is None:
            raise ValueError(f"it has no program {handle!r}")
        facts = self.record["programs"][handle]
        kinds = [self.xla.Kind(tuple(shape), np.dtype(dtype)) for dtype, shape in facts["results"]]
        return self.xla.Program(code, kinds, facts["kept"])

    def anchor_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of `initAnchorArrays`."""
        kinds = {n: self.xla.Kind(tuple(shape), np.dtype(dtype)) for n, dtype, shape in self.record["arrays"]}
        return {n: self.written.new_array(n, kind) for n, kind in kinds.items()}

    def prepare(self) -> bool:
        """`prepareDevice`. This and the next methods return whether they did it; if not, they did nothing."""
        with self.turn:
            if self.successor is not None:
                return False
            self.prepared = True
            return True

    def send(self) -> bool:
        """`weightsFromHost`."""
        with self.turn:
            if not self.prepared or self.successor is not None:
                return False
            self.sent = True
            return True

    def fetch(self) -> bool:
        """`weightsToHost`."""
        return False

    def read(self, into: Mapping[str, np.ndarray]) -> bool:
        """`readWeights`."""
        del into
        return False

    def replace_optimizer(self, optimizer: Optimizer) -> bool:
        """`updateOptimizerFromHost`."""
        del optimizer
        return False

    def run(self, *args: Any, **kwargs: Any) -> bool:
        """`run`, for plain arrays of exactly the right sizes."""
        stepio: Any = args[0] if args else None
        plain = not kwargs and len(args) < 3 and type(stepio) is PyStepIO
        if not plain or not self._ready() or not self._fits(stepio):
            return False
        direct = self._direct(stepio)
        try:
            direct()
        except popart_exception:
            raise
        except Exception as err:  # XLA has no narrower class
            if not self._may_go_on():
                raise
            module_logger("session").warning("Failed to run what was loaded from %s: %s", self.place.path, err)
            return False
        self.names.append(str(args[1]) if len(args) > 1 else "")
        stepio.plan = (self.token, direct)
        return True

    def _ready(self) -> bool:
        return self.prepared

    def _may_go_on(self) -> bool:
        """Whether the session in full can repeat a run that failed."""
        return True

    def _fits(self, stepio: PyStepIO) -> bool:
        pairs = [(self._inputs, stepio.inputs), (self._anchors, stepio.outputs)]
        return (
            not stepio.iterators
            and all(kinds.keys() == arrays.keys() for kinds, arrays in pairs)
            and all(
                arrays[n].dtype == dtype and arrays[n].size == math.prod(shape)
                for kinds, arrays in pairs
                for n, (shape, dtype) in kinds.items()
            )
            and all(array.flags.writeable for array in stepio.outputs.values())
        )

    def _direct(self, stepio: PyStepIO) -> Callable[[], None]:
        """A function that runs one step with these arrays."""
        fed, destinations = self._arrays(stepio, 0)
        call, to_host, weights, check = self.call, self.xla.to_host, self.weights, self.room.ensure

        def run() -> None:
            check()
            destinations.fill(call(*weights, *[put(array) for put, array in fed]), to_host)

        def in_turn() -> None:
            with self.turn:
                check()
                given = [put(array) for put, array in fed]
                with Uninterrupted(), destinations.watched():
                    results = call(*weights, *given, *destinations.arguments())
                    destinations.keep(results)
                destinations.fill(results, to_host)

        return in_turn if destinations.memories else run

    def _arrays(self, stepio: PyStepIO, first: int) -> tuple[list[tuple[Any, np.ndarray]], Destinations]:
        """Each input with the function that puts it on the device, and where results from index `first` on go."""
        given = [stepio.inputs[n].reshape(shape) for n, (shape, _) in self._inputs.items()]
        places = {n: stepio.outputs[n].reshape(shape) for n, (shape, _) in self._anchors.items()}
        with self.turn:
            destinations = self.written.destinations(places, first, given)
        return list(zip(self._put, given, strict=True)), destinations

    def hand_over(self, parts: Any) -> None:
        """Bring the parts of the session in full, which were just made, to the state of this one, which then ends."""
        with self.turn:
            if self.prepared:
                parts.prepare_device(True, None)
            if self.sent:
                parts.weights.send(parts.place.ready("weightsFromHost"))
            parts.runner.enter_runs(self.names)
            self.successor = parts.runner


def _putting(xla: Any, name: str, host: np.dtype, on_device: np.dtype, shape: Sequence[int]) -> Any:
    """A function that puts an input on the device; 64-bit integers must fit into 32 bits."""
    place = xla.putting(xla.Kind(tuple(shape), on_device))

    def put(array: np.ndarray) -> Any:
        return place(shareable(array))

    if host == on_device:
        return put
    fitting, fact = np.iinfo(on_device), (name, host, on_device, tuple(shape))

    def narrow(array: np.ndarray) -> Any:
        if array.size and not fitting.min <= array.min() <= array.max() <= fitting.max:
            later.to_device_type(array, later.StreamFact(*fact))  # raises
        return put(array.astype(on_device))

    return narrow
