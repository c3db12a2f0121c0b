"""The start of an inference session whose program an earlier process has compiled and left in a file.

Such a session needs XLA's client alone: importing JAX and ONNX, reading the graph and tracing it would take several
times as long. It can be prepared and can run plain arrays; the first call of anything else makes the session in full
(`SessionCore.__getattr__`), from the same bytes of the model.

The file is found by a key of everything that the session in full would read: the model without its weights, the
arguments of the constructor, the environment, what is installed, our sources, the processor. What can't be in a key (a
changed setting of JAX, a pattern or an operator that the program defines, a log level that wants more lines) rules
this out, so that only the first session of a process can start so. `start_files` says which sessions are kept.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import math
import os
import stat
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import session as later
from ..buffers import aligned_empty, frozen
from ..enums import DeviceConnectionType, DeviceType
from ..errors import popart_exception
from ..execution.room import Room
from ..execution.stored.cache_folder import file_in, mark_used
from ..execution.stored.container import Sealed
from ..execution.stored.described import XLA_VARIABLES, installed, machine, name_of, sources
from ..limits import limits
from ..logs import MODULES, module_logger
from ..model.files import wire
from ..model.origin import imported_as_popart
from ..preparation import PREPARE, Preparation
from ..timings import phase, watching
from .feeding.stepio import PyStepIO

MAIN = ""
"""Handle of the main program."""
RECORD = "start"
NAMED_RUNS = 1000
"""How many runs a session remembers by name."""
FOLDER = "JAX_COMPILATION_CACHE_DIR"
_COMPILER_VARIABLES = (*XLA_VARIABLES, "JAX")
_IRRELEVANT_VARIABLES = (FOLDER, "TF_CPP_MIN_LOG_LEVEL")  # JAX sets the latter
_OURS = ("POP",)
_EXTERNAL = b"location"
_DEVICES = (DeviceType.Cpu, DeviceType.IpuModel)


@dataclass(frozen=True)
class Asked:
    """Arguments of an inference session's constructor."""

    model: Any
    data_flow: Any
    device: Any
    shapes: Any
    patterns: Any
    options: Any
    name: str


@dataclass(frozen=True)
class Place:
    """The file for a session's program, which may not exist yet, and the session's model.

    Attributes
    ----------
    path : Path
        The file.
    model : wire.Apart
        The message of the model without the data of its initializers.
    arrays : dict of int to array
        Data of the initializers that were read, by number.
    stamp : tuple of int
        Tells whether the model's file was changed since.
    """

    path: Path
    model: wire.Apart
    arrays: dict[int, np.ndarray]
    stamp: tuple[int, ...]


def find_start(asked: Asked) -> tuple[Place | None, Start | None]:
    """The file for a session's program (None if it can't start from one), and the program if the file can be loaded."""
    folder = os.environ.get(FOLDER)
    if not folder or "://" in folder or not _plain(asked):
        return None, None
    try:
        stamp = stamp_of(asked.model)
        data = wire.Data(asked.model if isinstance(asked.model, bytes) else Path(asked.model))
    except (OSError, ValueError):  # no file, or none that can be read
        return None, None
    with closing(data):
        apart = wire.take_apart(data, 1)
        key = None if apart is None or _EXTERNAL in apart.rest else _key(asked, apart)
        if apart is None or key is None:
            return None, None
        place = Place(file_in(Path(folder), key), apart, {}, stamp)
        return place, _load_start(asked, place, data) if place.path.is_file() else None


def stamp_of(model: str | bytes | Path) -> tuple[int, ...]:
    """A stamp that changes with the model's file; OSError if there is no such file."""
    if isinstance(model, bytes):
        return ()
    facts = os.stat(model)
    if not stat.S_ISREG(facts.st_mode):
        raise FileNotFoundError(model)
    return facts.st_mtime_ns, facts.st_size, facts.st_ino, facts.st_dev


def _plain(asked: Asked) -> bool:
    """Whether a key can describe everything that the program depends on."""
    device = asked.device
    return (
        "jax" not in sys.modules
        and "patterns" not in sys.modules
        and isinstance(asked.model, (str, bytes, Path))
        and getattr(device, "type", None) in _DEVICES
        and device.connectionType is DeviceConnectionType.Always
        and device.last_engine is None
        and not any(module_logger(name).isEnabledFor(logging.INFO) for name in MODULES)
        and not watching()
        and limits.are_default
        and not any(name.startswith(_OURS) for name in os.environ)
    )


def _key(asked: Asked, model: wire.Apart) -> str | None:
    """The name of the file, a hash; None if something can't be described."""
    places = [(index, place.field, place.size) for index, place in model.places.items()]
    device = asked.device
    read = [n for n in os.environ if n.startswith(_COMPILER_VARIABLES) and n not in _IRRELEVANT_VARIABLES]
    variables = {n: os.environ[n] for n in read}
    return name_of(
        hashlib.sha256(model.rest).hexdigest(),
        places,
        (asked.data_flow, asked.shapes, asked.patterns, asked.options, asked.name, imported_as_popart()),
        (device.type, device.numIpus, device.ipuVersion, device.tilesPerIPU),
        (variables, installed(), sources(), machine()),
    )


@phase("load")
def _load_start(asked: Asked, place: Place, data: wire.Data) -> Start | None:
    """The start that a file holds; None if it is damaged, of another user, or of other constants."""
    try:
        file = Sealed(place.path, place.path.stem)
        record: Mapping[str, Any] = file.note(RECORD)
        _read(place, record["initializers"], data)
        if digest_of(place.arrays, record["constants"]) != record["digest"]:
            return None
        start = Start(asked, place, file, record)
        mark_used(place.path)
    except Exception as err:  # zip, the seal and XLA each raise errors of their own
        module_logger("session").warning("Failed to start from %s: %s", place.path, err)
        return None
    return start


def _read(place: Place, kinds: Mapping[str, Any], data: wire.Data) -> None:
    """Read the initializers from the model."""
    waiting = []
    for index, where in place.model.places.items():
        dtype, shape = kinds[str(index)]
        array = aligned_empty(shape, dtype)
        waiting.append((where, array.reshape(-1).view(np.uint8)))
        place.arrays[index] = frozen(array)
    data.read_into(waiting)


def digest_of(arrays: Mapping[int, np.ndarray], constants: list[int]) -> str:
    """A hash of the initializers whose values are part of the program."""
    digest = hashlib.sha256()
    for index in constants:
        digest.update(arrays[index].tobytes())
    return digest.hexdigest()


class Start:
    """A session's program, loaded without the session.

    Attributes
    ----------
    token : object
        Kept in the plan of each step I/O that was checked here.
    names : deque of str
        Names of the latest runs.
    prepared, sent : bool
        Whether the program has called `prepareDevice`, and `weightsFromHost`.
    """

    def __init__(self, asked: Asked, place: Place, file: Sealed, record: Mapping[str, Any]) -> None:
        own = {n: copy.deepcopy(getattr(asked, n)) for n in ("data_flow", "shapes", "patterns", "options")}
        self.asked, self.place = replace(asked, **own), place
        self.token, self.prepared, self.sent = object(), False, False
        self.names: deque[str] = deque(maxlen=NAMED_RUNS)
        self._record = record
        self._load(file)

    def _load(self, file: Sealed) -> None:
        from .._compat import xla

        self._to_host = xla.to_host
        record = self._record
        self._inputs = {n: (tuple(shape), np.dtype(host)) for n, host, _, shape in record["inputs"]}
        self._anchors = {n: (tuple(shape), np.dtype(dtype)) for n, dtype, shape in record["anchors"]}
        self._put = [_putting(xla, n, np.dtype(host), np.dtype(on), shape) for n, host, on, shape in record["inputs"]]
        self._call = self._program(xla, file, MAIN)
        self._room = Room.of(record["room"])
        weights = [xla.put(self.place.arrays[index]) for index in record["weights"]]
        note = record["preparation"]
        if note is not None:
            computed = None if note["host"] else self._program(xla, file, MAIN + PREPARE)
            preparation, made = Preparation.noted(computed, note), list[np.ndarray]()
            weights = list(preparation.take(weights, lambda x: made.append(x) or xla.put(x)))
            if note["host"]:
                self._replace_host_weights(preparation.seen(made))
        self._weights = weights

    def _replace_host_weights(self, views: Mapping[int, np.ndarray]) -> None:
        """Replace host weights by views of the device's reordered copies, so that memory holds them once."""
        for number, view in views.items():
            index = self._record["weights"][number]
            if view.shape == self.place.arrays[index].shape:
                self.place.arrays[index] = view

    def _program(self, xla: Any, file: Sealed, handle: str) -> Any:
        code = file.code(handle)
        if code is None:
            raise ValueError(f"it has no program {handle!r}")
        facts = self._record["programs"][handle]
        kinds = [xla.Kind(tuple(shape), np.dtype(dtype)) for dtype, shape in facts["results"]]
        return xla.Program(code, kinds, facts["kept"])

    def anchor_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of `initAnchorArrays`."""
        return {n: aligned_empty(shape, np.dtype(dtype)) for n, dtype, shape in self._record["arrays"]}

    def run(self, *args: Any, **kwargs: Any) -> bool:
        """Run one step if it has plain arrays of exactly the right sizes; else return False and do nothing."""
        stepio: Any = args[0] if args else None
        plain = not kwargs and len(args) < 3 and type(stepio) is PyStepIO
        if not plain or not self.prepared or not self._fits(stepio):
            return False
        direct = self._direct(stepio)
        try:
            direct()
        except popart_exception:
            raise
        except Exception as err:  # XLA has no narrower class
            module_logger("session").warning("Failed to run what was loaded from %s: %s", self.place.path, err)
            return False
        self.names.append(str(args[1]) if len(args) > 1 else "")
        stepio.plan = (self.token, direct)
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

    def _direct(self, stepio: PyStepIO) -> Any:
        """A function that runs one step with these arrays."""
        given = [stepio.inputs[n].reshape(shape) for n, (shape, _) in self._inputs.items()]
        fed = list(zip(self._put, given, strict=True))
        places = [stepio.outputs[n].reshape(shape) for n, (shape, _) in self._anchors.items()]
        call, to_host, weights, check = self._call, self._to_host, self._weights, self._room.check

        def run() -> None:
            check()
            results = call(*weights, *[put(array) for put, array in fed])
            for place, result in zip(places, results, strict=True):
                place[...] = to_host(result)

        return run


def _putting(xla: Any, name: str, host: np.dtype, on_device: np.dtype, shape: Sequence[int]) -> Any:
    """A function that puts an input on the device; 64-bit integers must fit into 32 bits."""
    put = xla.putting(xla.Kind(tuple(shape), on_device))
    if host == on_device:
        return put
    fitting, fact = np.iinfo(on_device), (name, host, on_device, tuple(shape))

    def narrow(array: np.ndarray) -> Any:
        if array.size and not fitting.min <= array.min() <= array.max() <= fitting.max:
            later.to_device_type(array, later.StreamFact(*fact))  # raises
        return put(array.astype(on_device))

    return narrow
